"""A machine of a cluster to work on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._durations import seconds
from nemo_run.config import Config
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.base import Executor
    from nemo_run.core.tunnel.client import Callback, SSHTunnel

LAUNCH = "launch_devspace"
_HOST = re.compile(r"([^@\s]+)@([^@\s]+)")


class DevSpace:
    """A job that runs an ssh server, and all that leads a user there.

    The job is one of an experiment called ``devspace-<name>``: it goes on when this process ends,
    and `nemorun devspace list`, `connect` and `stop` find it from any process.

    Args:
        name: part of the host that ssh is given, ``tunnel.<name>.<name>``.
        executor: where it runs: a `SlurmExecutor`, `DockerExecutor` or `LocalExecutor`. Its
            ``job_dir``, where given, is the workspace; otherwise each name has one, which is kept.
        cmd: the method of the executor to call; ``bash`` of Slurm's opens a shell on a node.
        use_packager: have the code that the executor's packager collects travel with the job.
        env_vars: for all sessions, over those of the executor.
        add_workspace_to_pythonpath: let Python import what is in the workspace.
        idle: end it after so long without a connection: ``2h``, ``90m`` or seconds.
        editor: what to open: ``code``, ``cursor``, ``jupyter`` or ``none``; asked for by default.
        reverse: have the job log in to the cluster's login node and be reached from there, where
            login nodes may not connect to compute nodes: True, or that host as nodes know it.
        detach: return once it is up.
    """

    def __init__(
        self,
        name: str,
        executor: Executor,
        cmd: str = LAUNCH,
        use_packager: bool = False,
        env_vars: dict[str, str] | None = None,
        add_workspace_to_pythonpath: bool = True,
        *,
        idle: str | float | None = None,
        editor: str | None = None,
        reverse: bool | str = False,
        detach: bool = False,
    ) -> None:
        self.name = name
        self.executor = executor
        self.cmd = cmd
        self.use_packager = use_packager
        self.env_vars = env_vars
        self.add_workspace_to_pythonpath = add_workspace_to_pythonpath
        self.idle = idle
        self.editor = editor
        self.reverse = reverse
        self.detach = detach

    @property
    def __io__(self) -> Any:
        """The config that this was built from: what was set, or what the arguments make."""
        return self.__dict__.get("_io") or self._derived_config()

    @__io__.setter
    def __io__(self, config: Any) -> None:
        self.__dict__["_io"] = config

    def _derived_config(self) -> Config[DevSpace]:
        values = {name: value for name, value in vars(self).items() if name != "_io"}
        return Config(DevSpace, **{**values, "executor": self.executor.to_config()})

    def config_to_connect(self) -> Config[Any]:
        """Return the config without variables, which may be secret and no client needs."""
        config = self._derived_config()
        config.env_vars = None
        config.executor.env_vars = {}
        return config

    @property
    def idle_s(self) -> float:
        """Seconds without a connection until the end; 0 for never.

        Raises:
            ConfigError: ``idle`` is not a duration.
        """
        if self.idle is None or isinstance(self.idle, (int, float)):
            return float(self.idle or 0)
        return seconds(self.idle)

    def launch(self) -> None:
        """Launch the devspace, unless it runs, and stay with it until Ctrl-C or its end."""
        if self.use_packager:
            self.executor.packager.setup()
        self.execute_cmd()

    def execute_cmd(self) -> None:
        """Call the executor's method ``cmd``.

        Raises:
            ConfigError: it has none of that name.
        """
        method = getattr(self.executor, self.cmd, None)
        if not callable(method):
            kind = type(self.executor).__name__
            raise ConfigError(
                f"{kind} has no method {self.cmd!r}, so devspace {self.name!r} cannot be launched "
                f"on it. {LAUNCH!r} is one of SlurmExecutor, DockerExecutor and LocalExecutor."
            )
        if self.cmd != LAUNCH:
            method()
            return
        from nemo_run.core.tunnel.client import Callback

        callback = method(
            self,
            env_vars=self.env_vars,
            add_workspace_to_pythonpath=self.add_workspace_to_pythonpath,
        )
        if isinstance(callback, Callback):
            self.attend(self.executor.tunnel, callback)  # type: ignore[attr-defined]  # has one

    def launch_on(
        self,
        executor: Any,
        *,
        job_name: str,
        env_vars: dict[str, str] | None,
        add_workspace_to_pythonpath: bool,
    ) -> Callback | None:
        """Do what `launch_devspace` of our executors promises."""
        from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
        from nemo_run.devspace import _job
        from nemo_run.devspace._attached import SlurmTunnelCallback

        self.add_workspace_to_pythonpath = add_workspace_to_pythonpath
        record = _job.submit(self, executor, job_name=job_name, env_vars=env_vars or {})
        callback = SlurmTunnelCallback(executor, self, record=record)
        if isinstance(getattr(executor, "tunnel", None), SSHTunnel):
            return callback
        self.attend(LocalTunnel(job_dir=""), callback)
        return None

    def callback_on(self, executor: Any, *, tunnel_dir: str | Path | None) -> Callback:
        """Do what `connect_devspace` of our executors promises."""
        from nemo_run.devspace._attached import SlurmTunnelCallback

        return SlurmTunnelCallback(executor, space=self, tunnel_dir=tunnel_dir)

    def attend(self, tunnel: Any, callback: Callback) -> None:
        """Stay with the devspace until Ctrl-C or its end; with ``detach``, until it is up."""
        if not self.detach:
            tunnel.keep_alive(callback)
            return
        callback.setup(tunnel)
        callback.on_start()

    @classmethod
    def connect(
        cls, host: str, path: str, *, editor: str | None = None, detach: bool = False
    ) -> None:
        """Connect to a devspace that another machine has launched.

        Args:
            host: of the cluster, as ``user@hostname``.
            path: the directory that its server has printed.

        Raises:
            ValueError: ``host`` has another form, or there is no devspace in ``path``.
        """
        from nemo_run.core.tunnel._node_server import SPACE
        from nemo_run.core.tunnel.client import SSHTunnel

        parts = _HOST.fullmatch(host)
        if parts is None:
            raise ConfigError(f"A host is written user@hostname, not {host!r}.")
        tunnel = SSHTunnel(host=parts[2], user=parts[1], job_dir=path)
        text = tunnel.read(f"{path}/{SPACE}").decode("utf-8", "replace")
        if not text:
            raise ConfigError(f"There is no devspace in {path!r} on {host}: it has no {SPACE}.")
        space = cls.to_connect(text, tunnel)
        space.editor, space.detach = editor, detach
        callback = space.executor.connect_devspace(space, tunnel_dir=Path(path))  # type: ignore[attr-defined]
        space.attend(tunnel, callback)

    @classmethod
    def to_connect(cls, text: str, tunnel: SSHTunnel) -> DevSpace:
        """Return the devspace that ``text`` of a cluster describes, as far as connecting needs it.

        Nothing that the text names is imported or called: what another machine has written must
        not decide what runs on this one.

        Raises:
            ConfigError: it describes something else.
        """
        from nemo_run.core.execution.slurm import SlurmExecutor
        from nemo_run.core.serialization.peek import Peek, peek

        found = peek(text)
        name = found.arguments.get("name") if isinstance(found, Peek) else None
        if not isinstance(name, str) or not found.target.endswith(":DevSpace"):
            raise ConfigError(f"What {tunnel.host} has is not the description of a devspace.")
        return cls(name, SlurmExecutor(account="", tunnel=tunnel))
