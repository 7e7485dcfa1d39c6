"""The shell script that makes the pods of a Run:ai workload a Ray cluster for one command."""

from __future__ import annotations

from collections.abc import Sequence

from nemo_run import _shell

HEAD_TRIES, HEAD_PAUSE_S = 120, 5
"""How often the head looks for its workers."""
WORKER_TRIES, WORKER_PAUSE_S = 120, 3
"""How often a worker looks for its head."""

# Nothing here ends by itself on an error (no set -e): a head that ends without a word would have
# its workers wait. What is in the directory of an earlier run of the same workload, say before it
# was suspended, is recognised by the address in it.
_BOOTSTRAP = r"""
dir={directory}
nodes={nodes}
gpus={gpus}
command={command}
name=${{HOSTNAME:-$(hostname)}}
prefix=$(printf %s "$name" | sed -E 's/-(master|launcher|worker)-[0-9]+$//')
head_file=$dir/.ray_head_ip_$prefix done_file=$dir/.ray_done_$prefix
rank=0
[ "$nodes" = 1 ] || rank=${{name##*[!0-9]}}
ip=${{RAY_NODE_IP:-$(hostname -i 2>/dev/null | cut -d' ' -f1)}}
address=${{ip:-$name}}:${{RAY_HEAD_PORT:-6379}}
say() {{ echo "ray bootstrap on $name: $*"; }}
tell() {{ printf '%s\n' "$2" >"$1.$$" && mv -f "$1.$$" "$1"; }}
mkdir -p "$dir"

before_ray() {{
{before}
}}
if ! before_ray; then
    say "a command before Ray failed"
    [ "$rank" != 0 ] || tell "$done_file" "1 $address"
    exit 1
fi

started() {{
    ray start "$@" --num-gpus="$gpus" --resources='{{"nemo_run_node": 1}}' \
        --disable-usage-stats --block &
    ray=$!
}}
finish() {{
    tell "$done_file" "$1 $address"
    # Not by `ray stop`, which ends every Ray that it sees; with --block, this one ends its own.
    kill "$ray" 2>/dev/null
    exit "$1"
}}

if [ "$rank" = 0 ]; then
    rm -f "$head_file" "$done_file"
    # The dashboard is for this pod alone: the command runs here.
    started --head --node-ip-address="${{address%:*}}" --port="${{address##*:}}" \
        --dashboard-host=127.0.0.1 --dashboard-port="${{RAY_DASHBOARD_PORT:-8265}}"
    trap 'finish 143' TERM INT
    export RAY_ADDRESS=$address
    joined=0
    for try in $(seq {head_tries}); do
        kill -0 "$ray" 2>/dev/null || {{ say "the head has ended by itself"; finish 1; }}
        joined=$(ray status 2>/dev/null |
            sed -nE 's|.*/([0-9]+)\.[0-9]+ nemo_run_node.*|\1|p' | head -n 1)
        # Told once the head answers, so that a worker does not join the one before.
        [ -z "$joined" ] || [ -e "$head_file" ] || tell "$head_file" "$address"
        [ "${{joined:-0}}" -lt "$nodes" ] || break
        sleep "${{RAY_BOOTSTRAP_PAUSE_S:-{head_pause}}}"
    done
    if [ "${{joined:-0}}" -lt "$nodes" ]; then
        say "${{joined:-0}} of $nodes nodes have joined, and no more came"
        finish 1
    fi
    bash -c "$command" &
    child=$!
    trap 'kill -TERM "$child" 2>/dev/null; wait "$child"; finish 143' TERM INT
    wait "$child"
    finish $?
fi

for try in $(seq {worker_tries}); do
    [ ! -s "$head_file" ] || break
    sleep "${{RAY_BOOTSTRAP_PAUSE_S:-{worker_pause}}}"
done
[ -s "$head_file" ] || {{ say "the head did not say where it is"; exit 1; }}
address=$(cat "$head_file")
started --address="$address"
trap 'kill "$ray" 2>/dev/null; exit 143' TERM INT
patience={done_tries}
while :; do
    read -r code whose 2>/dev/null <"$done_file" || code='' whose=''
    if [ "$whose" = "$address" ]; then
        kill "$ray" 2>/dev/null
        exit "$code"
    fi
    # A head that was lost tells nothing; Ray's own process ends some time after it.
    if ! kill -0 "$ray" 2>/dev/null; then
        [ $((patience -= 1)) -gt 0 ] || {{ say "the head is gone"; exit 1; }}
    fi
    sleep "${{RAY_BOOTSTRAP_PAUSE_S:-{done_pause}}}"
done
"""


def build_ray_bootstrap_script(
    training_command: str,
    gpus_per_node: int,
    num_nodes: int,
    head_ip_dir: str = "/workspace/nemo_run",
    *,
    before_ray: Sequence[str] = (),
) -> str:
    """Return what every pod runs: the first is the head and runs the command, others join it.

    1. The command is run when all nodes have joined; where some do not, the workload fails.
    2. All pods end with the exit code of the command.
    3. ``head_ip_dir`` is a directory that all pods see.
    """
    lines = "\n".join(f"{line} || return 1" for line in before_ray) or ":"
    return "#!/bin/bash\n" + _BOOTSTRAP.format(
        directory=_shell.render([head_ip_dir]),
        nodes=num_nodes,
        gpus=gpus_per_node,
        command=_shell.render([training_command]),
        before=lines,
        head_tries=HEAD_TRIES,
        head_pause=HEAD_PAUSE_S,
        worker_tries=WORKER_TRIES,
        worker_pause=WORKER_PAUSE_S,
        done_tries=6,
        done_pause=10,
    )
