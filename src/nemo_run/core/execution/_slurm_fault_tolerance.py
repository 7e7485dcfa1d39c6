"""What a batch script does for ``ft_launcher``: restarts are counted in a file, and limited."""

from __future__ import annotations

from nemo_run import _shell
from nemo_run.core.execution.launcher import FaultTolerance
from nemo_run.exceptions import ConfigError

_AT_START = r"""
# A line a start: job, restart, and X (unknown as yet), S (succeeded) or F (failed).
nemo_run_limit_reached() {
    [ "$TORCHX_MAX_RETRIES" -gt 0 ] || return 0
    local last
    last=$(tail -n "$TORCHX_MAX_RETRIES" "$FAULT_TOL_RESULTS_FILE")
    [ "$(echo "$last" | wc -l)" -ge "$TORCHX_MAX_RETRIES" ] || return 1
    ! echo "$last" | grep -qv '[XF]$'
}
nemo_run_finished=$(dirname "$FAULT_TOL_RESULTS_FILE")/$(basename "$FAULT_TOL_FINISHED_FLAG_FILE")
if [ "$nemo_run_restart" -gt 0 ]; then
    if [ -e "$nemo_run_finished" ]; then
        nemo_run_keep 0
        exit 0
    fi
    if nemo_run_limit_reached; then
        nemo_run_keep 1
        exit 1
    fi
else
    rm -f "$nemo_run_finished" "$FAULT_TOL_RESULTS_FILE"
fi
echo "$SLURM_JOB_ID $nemo_run_restart X" >>"$FAULT_TOL_RESULTS_FILE"
"""

AT_END = r"""
nemo_run_await_cancel
nemo_run_mark=S
[ "$nemo_run_code" -eq 0 ] || nemo_run_mark=F
sed -i "s/^$SLURM_JOB_ID $nemo_run_restart X\$/$SLURM_JOB_ID $nemo_run_restart $nemo_run_mark/" \
    "$FAULT_TOL_RESULTS_FILE"
if [ ! -e "$nemo_run_finished" ] && ! nemo_run_limit_reached && nemo_run_may_go_on \
    && scontrol requeue "$nemo_run_id"; then
    exit "$nemo_run_code"
fi
nemo_run_keep "$nemo_run_code"
exit "$nemo_run_code"
""".strip("\n")


def at_start(launcher: FaultTolerance) -> str:
    """Return the lines that come before the tasks.

    Raises:
        ConfigError: the launcher was not told where its files are.
    """
    paths = {
        "FAULT_TOL_CFG_PATH": launcher.cfg_path,
        "FAULT_TOL_FINISHED_FLAG_FILE": launcher.finished_flag_file,
        "FAULT_TOL_RESULTS_FILE": launcher.job_results_file,
    }
    if not all(paths.values()):
        raise ConfigError(
            "FaultTolerance needs cfg_path, finished_flag_file and job_results_file on Slurm. "
            "An experiment sets them; outside of one, set them yourself."
        )
    exports = [_shell.export(name, value) for name, value in paths.items()]
    return "\n".join([*exports, _AT_START.strip("\n")])
