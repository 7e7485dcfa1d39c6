"""Jobs on Slurm: batch scripts, what is asked on the cluster, and what its answers mean."""
