#!/usr/bin/env bash
# system-packages.sh: programs that the tests use and that pip cannot install.
set -euo pipefail

missing=()
command -v dot >/dev/null || missing+=(graphviz)
command -v pgrep >/dev/null || missing+=(procps)
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
else
    echo "The tests need: ${missing[*]}. Install them, for example: apt-get install ${missing[*]}" >&2
    exit 2
fi
