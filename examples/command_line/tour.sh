#!/usr/bin/env bash
# The command line, one command after the other, in a home directory of its own.
#
#     bash examples/command_line/tour.sh

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
here=$PWD
out=$(mktemp -d)
export NEMORUN_HOME=$out/home
trap 'rm -rf -- "$out"' EXIT

show() {
    printf '\n$ %s\n' "$*"
    "$@" 2>&1
}

printf '\n# A command asks before it runs something.\n'
show python task.py --factory recipe steps=1 <<<y

printf '\n# A task can be written to a file, whole or a part of it, and read back.\n'
show python task.py model=small steps=5 --to-yaml "$out/task.yaml" --to-json "$out/task.json"
show python task.py model=small model.depth=9 --to-toml "$out/model.toml:model"
show python task.py --yaml "$out/task.json" "model=@$out/model.toml" --yes

printf '\n# A mistake is explained, and runs nothing.\n'
show python task.py modle=small || echo "exit code $?"

printf '\n# A shell has the task in it.\n'
show python task.py model=small --repl <<<$'task.steps = 7\nrun_task()'

printf '\n# Commands and factories may come from a workspace.py of this directory or of one above it.\n'
cd "$here/workspace/below"
show nemorun mine greet name=reader
show python "$here/task.py" model=small run.executor=patient --dryrun
cd "$here"

printf '\n# What was launched is found again, by its title, its id or as the latest.\n'
show python nap.py --detach --yes
show nemorun experiment list
show nemorun experiment cancel latest
show nemorun experiment status nap
show nemorun experiment logs nap 0
show python task.py model=small run.executor=local --name done --yes
show nemorun experiment wait done
show nemorun experiment list --state SUCCEEDED --ids
