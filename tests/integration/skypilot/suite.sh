#!/usr/bin/env bash
# suite.sh: the tests that need SkyPilot, inside of bed.sh. Arguments are for pytest.
#
# Jobs mostly wait for each other's questions, so more tests run at once than there are processors.
# What fails is tried once more, when nothing else is going on, and must pass then. Each managed job
# makes a cluster of its own: SKYPILOT_JOBS, an expression as for pytest -k, runs some of these only.
set -uo pipefail
LOG=$NEMO_RUN_TEST_SKYPILOT/log/sky.log
TESTS=(python -m pytest -q --timeout 1200 --durations 8 -o "cache_dir=$NEMO_RUN_TEST_SKYPILOT/cache")
JOBS=${SKYPILOT_JOBS:-test}
PLACES=(tests/contract tests/integration/skypilot)

# Two nodes on which most tests run their jobs.
sky launch -y --fast -c "$NEMO_RUN_TEST_SKYPILOT_CLUSTER" --infra slurm/loop --num-nodes 2 \
    --cpus 32 --memory 32 true >>"$LOG" 2>&1 || { cat "$LOG"; exit 1; }

status=0
run() {
    "${TESTS[@]}" "$@" "${PLACES[@]}" ||
        "${TESTS[@]}" --last-failed --last-failed-no-failures none "${PLACES[@]}" || status=$?
}
"${TESTS[@]}" -k skypilot tests/compat/test_listings.py || status=$?
run -n 6 --dist worksteal -m "skypilot and not skypilot_alone" \
    -k "not (test_schedulers and skypilot_jobs) or ($JOBS)" "$@"
run -m skypilot_alone "$@"
exit $status
