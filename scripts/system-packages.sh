#!/usr/bin/env bash
# system-packages.sh: programs that the tests use and that pip cannot install.
set -euo pipefail

# Daemons are in sbin, which an ordinary user's PATH leaves out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=()
needs() { command -v "$1" >/dev/null || missing+=("$2"); }
needs dot graphviz
needs pgrep procps
needs busybox busybox-static
# Shells that completion is for.
needs zsh zsh
needs fish fish
# A Slurm cluster on loopback, reached over ssh.
needs ssh openssh-client
needs sshd openssh-server
needs rsync rsync
needs openssl openssl
needs munged munge
needs slurmctld slurmctld
needs slurmd slurmd
needs slurmdbd slurmdbd
needs sbatch slurm-client
needs mariadbd mariadb-server
# A Docker engine.
needs dockerd docker.io
needs containerd containerd
# Another runtime for containers.
needs podman podman
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Others may be installing something: wait for them.
    options=(-y -qq --no-install-recommends -o DPkg::Lock::Timeout=300)
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "${missing[@]}" >/dev/null
else
    echo "The tests need: ${missing[*]}. Install them, for example: apt-get install ${missing[*]}" >&2
    exit 2
fi
