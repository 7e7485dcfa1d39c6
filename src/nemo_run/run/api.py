"""Run one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nemo_run._config.fiddle import fdl
from nemo_run._experiments.main_module import check_not_loading
from nemo_run.config import Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.run.plugin import ExperimentPlugin
from nemo_run.run.task import direct_run_fn


def run(
    fn_or_script: Partial[Any] | Script,
    executor: Executor | None = None,
    plugins: ExperimentPlugin | Sequence[ExperimentPlugin] | None = None,
    name: str = "",
    dryrun: bool = False,
    direct: bool = False,
    detach: bool = False,
    tail_logs: bool = True,
    log_level: str = "INFO",
    check: bool | None = None,
) -> None:
    """Run a task: in this process, or with an executor as an experiment of one job.

    Args:
        plugins: edit task and executor first; not for direct runs.
        name: of the experiment and its job; the task's own by default.
        dryrun: only show what would be done.
        direct: run in this process although there is an executor.
        detach: return when the job is launched.
        tail_logs: print the job's log while waiting.
        log_level: see `Experiment`.
        check: what to do if the job does not succeed: raise (True), nothing (False), or show it
            and end the program with exit code 1 unless it looks at the outcome (None); see
            `Experiment`. A task in this process raises what it raises.

    Raises:
        TypeError: this is not a task.
        JobFailedError: the job did not succeed, with ``check=True`` or directly.
    """
    check_not_loading()
    if not isinstance(fn_or_script, (fdl.Buildable, Script)) and not _is_lazy(fn_or_script):
        raise TypeError(f"Need a run.Partial or run.Script to run, got {fn_or_script!r}.")
    if direct or executor is None:
        direct_run_fn(fn_or_script, dryrun=dryrun)
        return

    from nemo_run._experiments.jobs.adding import default_name
    from nemo_run.run.experiment import Experiment

    plugins = [plugins] if isinstance(plugins, ExperimentPlugin) else plugins
    name = name or default_name(fn_or_script)
    if plugins and _is_lazy(fn_or_script):
        # Plugins read arguments, which a task that is put together later has not.
        here = fn_or_script._resolved_here()  # type: ignore[union-attr]  # see LazyEntrypoint
        fn_or_script = here or fn_or_script
    with Experiment(name, executor=executor, log_level=log_level, check=check) as experiment:
        experiment.add(fn_or_script, name=name, plugins=plugins, tail_logs=tail_logs)
        if dryrun:
            experiment.dryrun()
        else:
            experiment.run(detach=detach)


def _is_lazy(task: Any) -> bool:
    return bool(getattr(type(task), "is_lazy", False))
