#!/usr/bin/env bash
# pythons.sh VERSION...: run the fast tests with each of these versions of Python that is installed.
# They are looked for on PATH and among those of pyenv.
set -euo pipefail

find_python() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # A shim of pyenv's is there for versions, too, that are not chosen.
        if "$candidate" -c 'import ensurepip' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

results=() failed=0 found=0
for version in "$@"; do
    if ! python=$(find_python "$version"); then
        results+=("$version: not installed here")
        continue
    fi
    found=1 dir=.venv-python$version
    scripts/make-venv.sh "$python" "$dir" '.[test,lepton,kubeflow]' leptonai==0.47.1
    if "$dir/bin/python" -m pytest -q -n 3 --dist worksteal -m "not slow and not engine" tests; then
        results+=("$version: passed")
    else
        results+=("$version: FAILED") failed=1
    fi
done
printf '%s\n' "${results[@]}"
[ "$found" = 1 ] || { echo "None of these is installed: $*" >&2; exit 2; }
exit "$failed"
