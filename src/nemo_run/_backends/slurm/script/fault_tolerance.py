"""What a batch script does for ``ft_launcher``: restarts are counted in a file, and limited."""

from __future__ import annotations

from nemo_run import _shell
from nemo_run._backends.slurm.containers import RUNDIR
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


def use_files(launcher: FaultTolerance, remote_dir: str, job_name: str) -> None:
    """Have the launcher's files in the directory of a job, where the user names no others."""
    for name, path in _files(remote_dir, job_name).items():
        setattr(launcher, name, getattr(launcher, name) or path)


def leave_files(launcher: FaultTolerance, remote_dir: str, job_name: str) -> None:
    """Forget the files of a job that the launcher belongs to no more; see `use_files`."""
    for name, path in _files(remote_dir, job_name).items():
        if getattr(launcher, name) == path:
            setattr(launcher, name, "")


def _files(remote_dir: str, job_name: str) -> dict[str, str]:
    if not remote_dir:  # it is not known yet which job
        return {}
    return {
        "cfg_path": f"{remote_dir}/{job_name}_ft_cfg.yml",
        "finished_flag_file": f"{RUNDIR}/{job_name}_finished_flag",
        "job_results_file": f"{remote_dir}/{job_name}_job_results",
    }


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
