#!/usr/bin/env bash
# suite.sh: all tests that need SkyPilot, inside of bed.sh. Arguments are for pytest.
set -uo pipefail
LOG=$NEMO_RUN_TEST_SKYPILOT/log/sky.log
TESTS=(python -m pytest -q --timeout 1200)

# Two nodes on which most tests run their jobs.
sky launch -y --fast -c $NEMO_RUN_TEST_SKYPILOT_CLUSTER --infra slurm/loop --num-nodes 2 \
    --cpus 32 --memory 32 true >>"$LOG" 2>&1 || { cat "$LOG"; exit 1; }

status=0
"${TESTS[@]}" -n 6 --dist worksteal -m "skypilot and not skypilot_alone" "$@" tests/contract tests/integration/skypilot || status=$?
"${TESTS[@]}" -m skypilot_alone "$@" tests/contract tests/integration/skypilot || status=$?
exit $status
