#!/usr/bin/env bash
# make-venv.sh PYTHON DIR REQUIREMENT [PACKAGE...]: a virtual environment with the tested versions.
set -euo pipefail
python=$1 dir=$2 requirement=$3
shift 3

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "nemo_run needs Python 3.10 or newer; $python is $("$python" --version 2>&1). Set PYTHON=." >&2
    exit 2
fi
# Debian ships Python without ensurepip.
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "Python's venv module is missing. Install it: apt-get install python$version-venv" >&2
    exit 2
fi
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$dir/bin/python" -m pip install --quiet -c constraints.txt -e "$requirement" "$@"
