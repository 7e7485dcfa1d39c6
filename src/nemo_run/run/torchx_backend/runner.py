"""The torchx runner, for executors instead of run options."""

from __future__ import annotations

from typing import Any, cast

from nemo_run._home import check_surroundings

check_surroundings()  # before torchx asks for the same directories, with a traceback

from torchx.runner.api import Runner as TorchxRunner  # noqa: E402
from torchx.schedulers import SchedulerFactory, get_scheduler_factories  # noqa: E402
from torchx.specs import AppDef, AppDryRunInfo, AppHandle, make_app_handle  # noqa: E402

from nemo_run.core.execution.base import Executor  # noqa: E402
from nemo_run.exceptions import ConfigError  # noqa: E402

SESSION = "nemo_run"


class Runner(TorchxRunner):
    """Runs applications on the schedulers of the entry-point group ``torchx.schedulers``."""

    def dryrun(  # type: ignore[override]  # cfg is an executor
        self,
        app: AppDef,
        scheduler: str,
        cfg: Executor | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
    ) -> AppDryRunInfo[Any]:
        """Return the request that `run` would submit. ``workspace`` has no effect.

        Raises:
            ConfigError: the application has no role, or one that starts nothing.
        """
        if not app.roles:
            raise ConfigError(f"Application {app.name!r} has no roles, so there is nothing to run.")
        for role in app.roles:
            if not role.entrypoint:
                raise ConfigError(f"Role {role.name!r} of {app.name!r} has no entrypoint.")
            if role.num_replicas <= 0:
                raise ConfigError(
                    f"Role {role.name!r} of {app.name!r} has {role.num_replicas} replicas. "
                    "Ask for at least one."
                )
        try:
            sched: Any = self._scheduler(scheduler)
        except KeyError as err:
            raise ConfigError(
                f"No scheduler {scheduler!r} is installed, which {type(cfg).__name__} needs. "
                "Install the package that has it as an entry point of the group "
                f"torchx.schedulers. Installed: {', '.join(sorted(self.scheduler_backends()))}."
            ) from err
        sched._validate(app, scheduler)
        info: AppDryRunInfo[Any] = sched.submit_dryrun(app, cfg)
        info._scheduler = scheduler
        return info

    def run(  # type: ignore[override]  # cfg is an executor
        self,
        app: AppDef,
        scheduler: str,
        cfg: Executor | None = None,
        workspace: str | None = None,
        parent_run_id: str | None = None,
        dryrun_info: AppDryRunInfo[Any] | None = None,
    ) -> AppHandle:
        """Submit an application, or what was planned for it, and return its handle."""
        return self.schedule(dryrun_info or self.dryrun(app, scheduler, cfg))

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> AppHandle:
        """Submit what was planned and return its handle."""
        scheduler = dryrun_info._scheduler or ""
        app_id = self._scheduler(scheduler).schedule(dryrun_info)
        handle = make_app_handle(scheduler, self._name, app_id)
        if dryrun_info._app is not None:
            self._apps[handle] = dryrun_info._app
        return handle

    def scheduler_of(self, app_handle: AppHandle) -> tuple[Any, str]:
        """Return the scheduler of a job, and its app id there."""
        scheduler, _, app_id = self._scheduler_app_id(app_handle, check_session=False)
        return scheduler, app_id


def get_runner(
    component_defaults: dict[str, dict[str, str]] | None = None, **scheduler_params: Any
) -> Runner:
    """Return a runner; ``scheduler_params`` go to every scheduler it makes."""
    return Runner(
        SESSION,
        _factories(),
        component_defaults,
        scheduler_params=scheduler_params,
    )


def _factories() -> dict[str, SchedulerFactory]:
    from nemo_run.run.torchx_backend.schedulers.local import create_scheduler

    # Working from a source tree that is not installed, there are no entry points.
    builtin = {"local_persistent": cast("SchedulerFactory", create_scheduler)}
    return {**builtin, **get_scheduler_factories()}
