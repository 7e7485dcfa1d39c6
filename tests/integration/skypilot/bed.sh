#!/usr/bin/env bash
# bed.sh DIR VENV COMMAND...: run COMMAND beside a real SkyPilot on a real Slurm of four nodes.
#
# They live in namespaces of their own, with no network but loopback: SkyPilot's fixed ports are
# free there, nothing can leave this machine, accounts and host names of this machine stay as they
# are, and with the command everything ends. What they write is in DIR, which is made anew.
#
# Needs root, Debian's slurmctld, slurmd, slurm-client, munge, openssh-server and busybox, and a VENV
# with skypilot[slurm,remote].
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

HOST=loop # what SkyPilot calls the Slurm cluster
NODES=4

main() {
    if [ "$1" != --inside ]; then
        local dir venv
        dir=$(realpath -m "${1:?a directory}")
        venv=$(realpath "${2:?a virtual environment}")
        shift 2
        rm -rf "$dir"
        mkdir -p "$dir"/{etc,run,log,state,spool,bin,nodehome,runtime,home,tmp}
        unshare --mount --net --pid --fork --kill-child --mount-proc \
            "$0" --inside "$dir" "$venv" "$@" &
        # It lets no signal through, except that one.
        trap "kill -KILL $! 2>/dev/null || true; forget '$dir'" EXIT
        trap 'exit 130' INT TERM HUP
        wait $!
        exit
    fi
    local dir=$2 venv=$3
    shift 3
    machine "$dir" "$venv"
    programs "$dir" "$venv"
    slurm "$dir"
    sshd "$dir"
    skypilot "$dir" "$venv"
    "$@"
}

forget() {
    # Where a job may write to /, it has its directory as /nemo_run.
    case $(readlink /nemo_run) in "$1"/*) rm -f /nemo_run ;; esac
}

SSH_PORT=2222
SLURM_PORT=6817 # of the controller; those of the nodes follow

machine() {
    # SkyPilot edits the login files of the account that it uses, and looks up the names of nodes.
    local dir=$1 venv=$2 n path
    busybox ip link set lo up
    # Where 127.0.0.1 is the only address, names are not resolved to any of its kind.
    busybox ip addr add 127.0.0.2/8 dev lo
    sed "s#^\(root:.*\):[^:]*:[^:]*\$#\1:$dir/nodehome:/bin/bash#" /etc/passwd >"$dir/etc/passwd"
    cp /etc/hosts "$dir/etc/hosts"
    # A client that calls the API server "elsewhere" takes it for a remote one.
    echo "127.0.0.1 $(hostname) elsewhere" >>"$dir/etc/hosts"
    for n in $(seq $NODES); do echo "127.0.0.1 node$n" >>"$dir/etc/hosts"; done
    mount --bind "$dir/etc/passwd" /etc/passwd
    mount --bind "$dir/etc/hosts" /etc/hosts
    # SkyPilot leaves much in /tmp, and the sockets of its ssh connections are found by others there.
    for path in "$dir" "$venv" "$PWD"; do
        [ "${path#/tmp/}" != "$path" ] || continue
        path=$(cut -d / -f 3 <<<"$path")
        mkdir -p "$dir/tmp/$path"
        mountpoint -q "$dir/tmp/$path" || mount --bind "/tmp/$path" "$dir/tmp/$path"
    done
    mount --rbind "$dir/tmp" /tmp
}

programs() {
    # Nodes have SkyPilot's runtime already, as its own images do: VENV, with a Python that starts
    # quickly. What would install it is a program that says so.
    local dir=$1 venv=$2 path warm=$PWD/tests/integration/skypilot/warm_python.py
    mkdir -p "$dir/node/bin"
    ln -s "$venv"/bin/* "$dir/node/bin/"
    ln -s "$venv/lib" "$venv/pyvenv.cfg" "$dir/node/"
    rm "$dir"/node/bin/{python*,activate,sky}
    for path in activate sky; do sed "s#$venv#$dir/node#g" "$venv/bin/$path" >"$dir/node/bin/$path"; done
    cat >"$dir/node/bin/python" <<EOF
#!/bin/sh
exec "$(realpath "$venv/bin/python")" -IS "$warm" run "$dir/run/warm.sock" "$venv/bin/python" \
    "$dir/node/bin/python" "\$@"
EOF
    chmod 755 "$dir"/node/bin/{python,sky}
    ln -s python "$dir/node/bin/python3"
    HOME=$dir/nodehome OPENBLAS_NUM_THREADS=1 "$venv/bin/python" "$warm" serve "$dir/run/warm.sock" \
        >"$dir/log/warm.log" 2>&1 &
    cat >"$dir/bin/uv" <<EOF
#!/bin/bash
case "\$*" in
    -V) echo "uv 0" ;;
    *venv*/skypilot-runtime*) ln -sfn "$dir/node" "\$(printf '%s\n' "\$@" | grep '/skypilot-runtime\$')" ;;
    "pip list") echo "skypilot 0" ;;
    "pip install"* | "pip uninstall"*) ;;
    *) exit 1 ;;
esac
EOF
    ln -s "$(realpath "$venv/bin/python")" "$dir/bin/python3"
    echo "export PATH=$dir/bin:\$PATH" >"$dir/nodehome/.profile"
    # Each cluster of SkyPilot's has a home directory of its own, in which it looks for uv, and a
    # daemon whose process id, if there is none yet, is taken for that of another cluster.
    cat >"$dir/bin/prolog" <<EOF
#!/bin/bash
for home in $dir/nodehome/.sky_clusters/*/; do
    [ ! -d "\$home" ] || [ -e "\$home/.local/bin/uv" ] ||
        { mkdir -p "\$home/.local/bin" && ln -sfn $dir/bin/uv "\$home/.local/bin/uv"; }
done
for mark in $dir/runtime/*/.sky/.sky_slurm_cluster; do
    [ ! -e "\$mark" ] || [ -e "\${mark%/*}/skylet_pid" ] || echo -1 >"\${mark%/*}/skylet_pid"
done
exit 0
EOF
    chmod 755 "$dir/bin/uv" "$dir/bin/prolog"
}

slurm() {
    local dir=$1 n
    head -c 1024 /dev/urandom >"$dir/etc/munge.key"
    chmod 400 "$dir/etc/munge.key"
    munged --force --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.sock" \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" \
        --seed-file="$dir/state/munge.seed"
    {
        cat <<EOF
ClusterName=$HOST
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$SLURM_PORT
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=$dir/run/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$dir/bin/prolog
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=5
KillWait=3
ReturnToService=2
EOF
        for n in $(seq $NODES); do
            echo "NodeName=node$n NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((SLURM_PORT + n))" \
                "CPUs=64 Boards=1 Sockets=1 CoresPerSocket=64 ThreadsPerCore=1 RealMemory=256000"
        done
        echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
    } >"$dir/etc/slurm.conf"
    printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n' >"$dir/etc/cgroup.conf"
    export SLURM_CONF=$dir/etc/slurm.conf
    slurmctld -i -f "$SLURM_CONF"
    for n in $(seq $NODES); do
        mkdir -p "$dir/spool/node$n"
        slurmd -N "node$n" -f "$SLURM_CONF"
    done
    for n in $(seq 60); do
        [ "$(timeout 5 sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = $NODES ] && return
        sleep 0.5
    done
    echo "The nodes of Slurm did not become idle; see $dir/log" >&2
    return 1
}

sshd() {
    local dir=$1
    ssh-keygen -q -t ed25519 -N '' -f "$dir/etc/id_ed25519"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/etc/host_ed25519"
    mkdir -p /run/sshd
    cat >"$dir/etc/sshd_config" <<EOF
ListenAddress 127.0.0.1
Port $SSH_PORT
HostKey $dir/etc/host_ed25519
AuthorizedKeysFile $dir/etc/id_ed25519.pub .ssh/authorized_keys
PidFile $dir/run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 200
MaxSessions 200
SetEnv SLURM_CONF=$dir/etc/slurm.conf
AcceptEnv *
Subsystem sftp internal-sftp
EOF
    /usr/sbin/sshd -f "$dir/etc/sshd_config" -E "$dir/log/sshd.log"
}

PACKAGE='
import importlib.metadata, importlib.util, os
where = os.path.dirname(importlib.util.find_spec("sky").origin)
print(where, importlib.metadata.version("skypilot"))
'

skypilot() {
    local dir=$1 venv=$2 package version
    read -r package version <<<"$("$venv/bin/python" -c "$PACKAGE")"
    mkdir -p "$dir/home/.slurm" "$dir/home/.sky/wheels/none" "$dir/home/.sky/catalogs/v8/common"
    cat >"$dir/home/.slurm/config" <<EOF
Host $HOST
    HostName 127.0.0.1
    User root
    Port $SSH_PORT
    IdentityFile $dir/etc/id_ed25519
    IdentitiesOnly yes
EOF
    cat >"$dir/home/.sky/config.yaml" <<EOF
allowed_clouds: [slurm]
slurm:
  cluster_configs:
    $HOST: {tmpdir: $dir/runtime}
jobs:
  controller:
    consolidation_mode: true
EOF
    # Instead of the catalog that SkyPilot would download.
    printf "AcceleratorName,Clouds\nH100,\"['Slurm']\"\n" \
        >"$dir/home/.sky/catalogs/v8/common/accelerators.csv"
    # The controller of managed jobs asks two public addresses whether there is a network; here it
    # asks our own server. VENV is there for nothing but these tests.
    sed -i "s#^_TEST_IP_LIST = .*#_TEST_IP_LIST = ['http://127.0.0.1:46580/api/health']#" \
        "$package/backends/backend_utils.py"
    # Its workers import networkx at their first launch. One that is cancelled meanwhile leaves a
    # worker in which every later launch fails, so they have it from the beginning.
    echo 'import sys; any("multiprocessing" in w for w in sys.orig_argv) and __import__("networkx")' \
        >"${package%/*}/nemo_run_bed.pth"
    # What nodes would install their runtime from, newer than the package so that it is not built.
    touch "$dir/home/.sky/wheels/none/skypilot-$version-py3-none-any.whl"
    export HOME=$dir/home SKYPILOT_DISABLE_USAGE_COLLECTION=1 PATH=$venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    export NEMO_RUN_TEST_SKYPILOT=$dir NEMO_RUN_TEST_SKYPILOT_CLUSTER=shared
    # SkyPilot leaves out of what it copies what a repository around it ignores.
    export GIT_CEILING_DIRECTORIES=$dir
    # By its memory it decides how many processes it starts.
    export SKYPILOT_POD_MEMORY_GB_LIMIT=12
    # It waits a minute for its server, which on a busy machine takes longer.
    {
        "$dir/node/bin/sky" api start || "$dir/node/bin/sky" api start &&
            "$dir/node/bin/sky" check slurm
    } >"$dir/log/sky.log" 2>&1 || { cat "$dir/log/sky.log" >&2; return 1; }
}

main "$@"
