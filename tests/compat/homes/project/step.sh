echo "step $1 of $OF"
