#!/usr/bin/env bash
# system-packages.sh: programs that tests of real engines use and that pip cannot install.
#
# Says what it would install, and asks first unless CI or YES=1 is set.
set -euo pipefail

# Daemons are in sbin, which an ordinary user's PATH leaves out.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=()
needs() { command -v "$1" >/dev/null || missing+=("$2"); }
needs dot graphviz
needs ps procps
needs cc gcc
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

stop() {
    printf '%s\n' "$@" >&2
    exit 2
}

if [ "$(id -u)" != 0 ]; then
    stop "Tests of real engines start Slurm, Docker and sshd on loopback, and need root for it." \
        "As any other user, run \`make test\`: it needs none of them."
fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

command -v apt-get >/dev/null ||
    stop "These packages are missing, and there is no apt-get to install them: ${missing[*]}"
echo "Tests of real engines need packages that are missing here. This installs them with apt-get:"
echo "    ${missing[*]}"
echo "and makes environments for torch and SkyPilot, of some gigabytes, in this directory."
if [ -z "${CI:-}" ] && [ "${YES:-}" != 1 ]; then
    answer=
    if [ -t 0 ]; then read -r -p "Go on? [y/N] " answer; fi
    case $answer in
        [yY]*) ;;
        *) stop "Nothing was installed. YES=1 or CI in the environment says yes beforehand." ;;
    esac
fi
# Others may be installing something: wait for them.
options=(-y -qq --no-install-recommends -o DPkg::Lock::Timeout=300)
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "${missing[@]}" >/dev/null
