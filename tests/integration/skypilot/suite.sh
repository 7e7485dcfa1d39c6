#!/usr/bin/env bash
# suite.sh: the tests that need SkyPilot, inside of bed.sh. Arguments are for pytest.
#
# Each managed job makes a cluster of its own, which takes two processors a minute: of the contract
# suite they run what SKYPILOT_JOBS chooses; with SKYPILOT_JOBS=test all of it.
set -uo pipefail
LOG=$NEMO_RUN_TEST_SKYPILOT/log/sky.log
JOBS=${SKYPILOT_JOBS:-test_executors or TestPlanning or where_the_job_ended or started_again_as_often or cancel_returns}
TESTS=(python -m pytest -q --timeout 1200)
PLACES=(tests/contract tests/integration/skypilot)

# Two nodes on which most tests run their jobs.
sky launch -y --fast -c "$NEMO_RUN_TEST_SKYPILOT_CLUSTER" --infra slurm/loop --num-nodes 2 \
    --cpus 32 --memory 32 true >>"$LOG" 2>&1 || { cat "$LOG"; exit 1; }

status=0
"${TESTS[@]}" -n 4 --dist worksteal -m "skypilot and not skypilot_alone" \
    -k "not skypilot_jobs or ($JOBS)" "$@" "${PLACES[@]}" || status=$?
"${TESTS[@]}" -m skypilot_alone "$@" "${PLACES[@]}" || status=$?
exit $status
