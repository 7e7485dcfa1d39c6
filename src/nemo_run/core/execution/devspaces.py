"""What executors that can run a devspace have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from nemo_run.core.tunnel.client import Callback


class Space(Protocol):
    """As much of a `DevSpace`, which is made of executors, as executors call."""

    def launch_on(
        self,
        executor: Any,
        *,
        job_name: str,
        env_vars: dict[str, str] | None,
        add_workspace_to_pythonpath: bool,
    ) -> Callback | None: ...

    def callback_on(self, executor: Any, *, tunnel_dir: str | Path | None) -> Callback: ...


class RunsDevSpaces:
    """A part of executors whose jobs the user can log in to."""

    def launch_devspace(
        self,
        space: Space,
        job_name: str = "interactive",
        env_vars: dict[str, str] | None = None,
        add_workspace_to_pythonpath: bool = True,
    ) -> Callback | None:
        """Have a job run the ssh server of ``space``, and this machine know the way to it.

        Where the jobs are reached over ssh, returns what keeps the user informed, for
        `Tunnel.keep_alive`; otherwise does that itself, and returns None at the end.

        Raises:
            ConfigError: it cannot be run like this; nothing was submitted.
        """
        return space.launch_on(
            self,
            job_name=job_name,
            env_vars=env_vars,
            add_workspace_to_pythonpath=add_workspace_to_pythonpath,
        )

    def connect_devspace(self, space: Space, tunnel_dir: str | Path | None = None) -> Callback:
        """Return what leads to a devspace that runs already, for `Tunnel.keep_alive`."""
        return space.callback_on(self, tunnel_dir=tunnel_dir)
