#!/usr/bin/env bash
# suite.sh: the tests that need SkyPilot, inside of bed.sh. Arguments are for pytest.
#
# Jobs mostly wait for each other's questions, so more tests run at once than there are processors.
# Each managed job makes a cluster of its own, which takes minutes of a processor: SKYPILOT_JOBS, an
# expression as for pytest -k, runs some of these only, and SKYPILOT_LEFT_OUT leaves out tests of all.
set -uo pipefail
LOG=$NEMO_RUN_TEST_SKYPILOT/log/sky.log
TESTS=(python -m pytest -q --timeout 1200 --durations 8 -o "cache_dir=$NEMO_RUN_TEST_SKYPILOT/cache")
# SkyPilot starts an API server by itself and does not wait for that process, which Python notices when
# pytest has run its last test.
TESTS+=(-W ignore:subprocess:ResourceWarning)
JOBS=${SKYPILOT_JOBS:-test}
CHOSEN="not (skypilot_jobs or SkypilotJobs) or test_executors or test_skypilot_dryrun or ($JOBS)"
CHOSEN="($CHOSEN) and not (${SKYPILOT_LEFT_OUT:-no_such_test})"
PLACES=(tests/contract tests/integration/skypilot)

# Two nodes on which most tests run their jobs.
sky launch -y --fast -c "$NEMO_RUN_TEST_SKYPILOT_CLUSTER" --infra slurm/loop --num-nodes 2 \
    --cpus 32 --memory 32 true >>"$LOG" 2>&1 || { cat "$LOG"; exit 1; }

status=0
run() {
    "${TESTS[@]}" -k "$CHOSEN" "$@" "${PLACES[@]}" || status=$?
}
"${TESTS[@]}" -k skypilot tests/compat/test_listings.py || status=$?
run -n 6 --dist worksteal -m "skypilot and not skypilot_alone" "$@"
run -m skypilot_alone "$@"
exit $status
