"""Executors: descriptions of where a task runs and what to ask for there."""

from __future__ import annotations

import copy
import dataclasses
import os
from dataclasses import dataclass, field
from importlib import util as importlib_util
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from nemo_run._config import defaults
from nemo_run._files import PRIVATE_FILE
from nemo_run._values import like, literal
from nemo_run.config import ConfigurableMixin, get_nemorun_home
from nemo_run.core.execution.launcher import LAUNCHER_MAP, Launcher
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchx.specs import Role
    from typing_extensions import Self

    from nemo_run._order import RunIf
    from nemo_run.config import Config
    from nemo_run.core.execution.leftovers import Leftover
    from nemo_run.core.tunnel.client import Tunnel


NEW = {"new": True}
"""Metadata of executor fields that NeMo Run 0.12 does not have."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an executor can do; `Experiment` asks this and never for a class.

    Attributes:
        detach: jobs go on after the launching process has ended.
        dependencies: the backend can hold a job back until others have ended.
        groups: several tasks can be launched together and share their fate.
        merged_groups: a group is one submission with one role for each task.
        local_paths: jobs see the files of this machine under their own names.
        retries: the backend starts a failed job again by itself.
        time_limit: the backend ends a job after the time that the executor states.
        log_times: lines of a log can be chosen by when they were written.
        shell_values: the job's shell fills in variables and commands in what the user wrote for
            ``env_vars``, ``Script.env`` and ``Script.args``.
        rendezvous: how the nodes of a job find each other: by what a launcher is told, by
            ``MASTER_ADDR``, ``MASTER_PORT`` and ``NODE_RANK`` in the job's environment, or by what
            the platform tells a launcher itself.
        poll_s: pause between two looks at a job, at first and once it has been running for long.
        batch: how many jobs the backend takes, or is asked about, in one call.
    """

    detach: bool = False
    dependencies: bool = False
    groups: bool = False
    merged_groups: bool = False
    local_paths: bool = False
    retries: bool = False
    time_limit: bool = False
    log_times: bool = True
    shell_values: bool = False
    rendezvous: Literal["arguments", "variables", "platform"] = "arguments"
    poll_s: tuple[float, float] = (2.0, 60.0)
    batch: int = 1


@dataclass(kw_only=True)
class ExecutorMacros(ConfigurableMixin):
    """Names of the variables that hold, on a cluster, what is only known there.

    A task's arguments and environment may contain the constants below; `apply` puts in the
    variables of the executor at hand.
    """

    HEAD_NODE_IP_VAR: ClassVar[str] = "${head_node_ip_var}"
    NPROC_PER_NODE_VAR: ClassVar[str] = "${nproc_per_node_var}"
    NUM_NODES_VAR: ClassVar[str] = "${num_nodes_var}"
    NODE_RANK_VAR: ClassVar[str] = "${node_rank_var}"
    FT_LAUNCHER_CFG_PATH_VAR: ClassVar[str] = "${ft_launcher_cfg_path_var}"

    head_node_ip_var: str
    nproc_per_node_var: str
    num_nodes_var: str
    node_rank_var: str
    het_group_host_var: str
    ft_launcher_cfg_path_var: str = "FAULT_TOL_CFG_PATH"

    @staticmethod
    def group_host(index: int) -> str:
        """Return the placeholder for the first host of a heterogeneous job's group."""
        return f"$$${{het_group_host_var}}_{index}"

    def apply(self, role: Role) -> Role:
        """Return a copy of ``role`` with every argument and value that has a placeholder filled in.

        Others, and what is a `literal`, stay as they are, so that a ``$$`` of the user's own
        arrives as it was written.
        """
        role = copy.deepcopy(role)
        role.args = [self._filled(arg) for arg in role.args]
        role.env = {name: self._filled(value) for name, value in role.env.items()}
        return role

    def _filled(self, text: str) -> str:
        ours = any(f"${{{item.name}}}" in text for item in dataclasses.fields(self))
        if not ours or isinstance(text, literal):
            return text
        return like(text, self.substitute(text))

    def substitute(self, arg: str) -> str:
        """Return ``arg`` with our placeholders filled in; others stay, and ``$$`` becomes ``$``."""
        return Template(arg).safe_substitute(dataclasses.asdict(self))


@runtime_checkable
class LogSupportedExecutor(Protocol):
    """An executor whose backend prints logs itself."""

    @classmethod
    def logs(cls, app_id: str, fallback_path: str | None) -> None: ...


@dataclass(kw_only=True)
class Executor(ConfigurableMixin):
    """Where a task runs and what to ask for there.

    An executor is a value: it can be printed, compared, copied and stored, and using it does not
    change it, but that `get_launcher` puts an object in place of a word. An experiment works on
    copies of its own, which it tells by `assign` where their job lives.

    A new executor is one file: a subclass that names its torchx scheduler in ``SCHEDULER``, the
    scheduler, and an entry point of the group ``torchx.schedulers``.

    Attributes:
        packager: which code travels.
        launcher: what is put in front of the command; a word of `LAUNCHER_MAP` will do.
        env_vars: set for the task, over what it inherits.
        retries: how often a failed task is started again.
        experiment_id, job_dir: set by the experiment.
    """

    SCHEDULER: ClassVar[str] = ""
    CAPABILITIES: ClassVar[Capabilities] = Capabilities()
    # Such as the name of the job, which `assign` sets, and settings that plugins make.
    _keeps_what_is_set_later: ClassVar[bool] = True
    _UNSAID: ClassVar[frozenset[str]] = frozenset()
    """Settings that are not told to the backend where they are None."""
    _SEEN_AS: ClassVar[str] = ""
    """What the job sees its directory as, where that is not ``job_dir``."""

    packager: Packager = field(default_factory=Packager)
    launcher: Launcher | str | None = None
    # Not shown: values may be secret.
    env_vars: dict[str, str] = field(default_factory=dict, repr=False)
    retries: int = 0
    experiment_id: str | None = None
    job_dir: str = ""
    experiment_dir: str = field(init=False, default="")
    _launcher_setup: bool = field(init=False, default=False, repr=False)

    def __post_init__(self) -> None:
        self.fill_in_defaults()

    def fill_in_defaults(self) -> None:
        """Put their defaults in place of None into settings that cannot be None."""
        defaults.fill_in(self, self._UNSAID)

    @classmethod
    def merge(cls, executors: Sequence[Self], num_tasks: int) -> Self:
        """Return one executor for a group that is one submission: see ``merged_groups``."""
        raise NotImplementedError(f"{cls.__name__} does not run a group as one job.")

    def info(self) -> str:
        """Return how a status table names this executor."""
        return type(self).__qualname__

    def clone(self) -> Self:
        """Return an independent copy with what the constructor takes."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return type(self)(**copy.deepcopy(fields))

    def to_config(self) -> Config[Any]:
        """Return a config with every field that the constructor takes.

        Fields that 0.12 does not know are left out at their defaults, so that it can read it.
        """
        config = super().to_config()
        for item in dataclasses.fields(self):
            if item.metadata == NEW and getattr(self, item.name) == item.default:
                delattr(config, item.name)
        return config

    def get_launcher(self) -> Launcher:
        """Return the launcher that is used: what is set on it counts.

        A word is looked up, and None is a plain launcher; from then on it is the executor's.

        Raises:
            ConfigError: there is no launcher of that name.
        """
        self.launcher = _as_launcher(self.launcher)
        return self.launcher

    def launcher_in_use(self) -> Launcher:
        """Return what `get_launcher` returns, and leave the executor as it is: for planning."""
        before = self.launcher
        try:
            return self.get_launcher()
        finally:
            self.launcher = before

    def _launcher_is(self, *kinds: type[Launcher]) -> bool:
        """Tell of what kind the launcher is, or would be; a word stays one."""
        return isinstance(_as_launcher(self.launcher), kinds)

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Tell this executor, a copy of the user's, which job it belongs to."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its jobs live.")

    def _belong_to(self, exp_id: str, exp_dir: str, task_dir: str) -> None:
        """Do what every executor does in `assign`."""
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = str(Path(exp_dir) / task_dir)

    def nnodes(self) -> int:
        """Return the number of nodes asked for."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many nodes it uses.")

    def nproc_per_node(self) -> int:
        """Return the number of processes a launcher such as torchrun starts on each node."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many tasks it runs.")

    def macro_values(self) -> ExecutorMacros | None:
        """Return the backend's variables, or None where nothing is to be substituted."""
        return None

    def python(self) -> str:
        """Return the interpreter that runs Python tasks."""
        return "python"

    def get_launcher_prefix(self) -> list[str] | None:
        """Return the profiler's arguments, its folder made, or None where profiling is off."""
        launcher = self.launcher_in_use()
        if launcher.nsys_profile:
            (Path(self.job_dir) / launcher.nsys_folder).mkdir(parents=True, exist_ok=True)
        return launcher.get_nsys_prefix(profile_dir=self._SEEN_AS or self.job_dir)

    def get_nsys_entrypoint(self) -> tuple[str, str]:
        """Return the profiler's program, and an argument to put last (empty for none)."""
        return "nsys", ""

    def supports_launcher_transform(self) -> bool:
        """Tell whether a launcher may replace the command by a script."""
        return False

    def package_configs(self, *cfgs: tuple[str, str]) -> list[str]:
        """Write each ``(name, content)`` below the job directory; return the paths the job sees.

        Only the owner can read them: they may hold an environment.
        """
        paths = []
        for name, content in cfgs:
            path = f"{self.job_dir}/configs/{name}"
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(os.open(path, flags, PRIVATE_FILE), "wb") as file:
                # A script may be in another encoding; its bytes arrive as they are.
                file.write(content.encode("utf-8", "surrogateescape"))
            paths.append(f"{self._SEEN_AS or self.job_dir}/configs/{name}")
        return paths

    def implied_run_if(self) -> RunIf | None:
        """Return when a job with dependencies runs, where a setting of the executor says it."""
        return None

    def held_back(self, before: Sequence[tuple[Executor, str]], run_if: str) -> Executor | None:
        """Return a copy that lets jobs, with their handles, end first; None if we have to wait.

        See the capability ``dependencies``.
        """
        return None

    def queues(self) -> bool:
        """Tell whether jobs wait in line on this machine, and are launched in the order added."""
        return False

    @property
    def way(self) -> Tunnel | None:
        """The tunnel that the job, its code and its logs go through, where there is one."""
        return None

    @property
    def remote_dir(self) -> str:
        """Where the job lives at its backend; empty where that is no path of its own."""
        return ""

    def rundir(self) -> str | None:
        """Return what ``/nemo_run`` in a task stands for, or None where the task sees it so."""
        return None

    def create_job_dir(self) -> None:
        """Make the job directory; it may be there already."""
        Path(self.job_dir).mkdir(parents=True, exist_ok=True)

    def package(self, packager: Packager, job_name: str) -> None:
        """Collect the code that travels, into ``<job_dir>/code``.

        The archive it comes from stays as ``<job_dir>/<job_name>.tar.gz``. A packager that takes
        nothing along leaves the directory empty. Called once for each job before the first is
        submitted, and not for a dry run; a backend that sends archives overrides it.

        Raises:
            PackagingError: the code could not be collected.
            ConfigError: the executor belongs to no job.
        """
        from nemo_run.core.packaging._staging import check_assigned, extract, stage

        check_assigned(self.job_dir)
        code = Path(self.job_dir) / "code"
        code.mkdir(parents=True, exist_ok=True)
        launcher = self.launcher_in_use()
        if launcher.nsys_profile:
            (Path(self.job_dir) / launcher.nsys_folder).mkdir(parents=True, exist_ok=True)
        staged = stage(packager, self.job_dir, job_name)
        if staged is not None:
            extract(staged.archive, code)

    def get_ready(self) -> None:
        """Do what takes time before the first job, such as to connect, while jobs are planned.

        Trouble need not be told: the launch meets it again. The user must not be asked anything.
        """

    def cleanup(self, handle: str) -> None:
        """Remove what an ended job left at its backend.

        Called by the experiment that waited for the job; for one that was detached, by nothing.
        """

    @property
    def _tidies_itself(self) -> bool:
        """Whether `cleanup` is only for asking by hand."""
        return False

    def leftovers(self, handle: str) -> Iterable[Leftover]:
        """Return what an ended job still has at its backend, without asking it."""
        return ()


def _as_launcher(given: Any) -> Launcher:
    if given is None:
        return Launcher()
    if isinstance(given, Launcher):
        return given
    if not isinstance(given, str):
        raise ConfigError(f"A launcher is a Launcher or the name of one, not {given!r}.")
    if given not in LAUNCHER_MAP:
        import difflib

        close = difflib.get_close_matches(given, LAUNCHER_MAP, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise UnknownNameError(
            f"There is no launcher {given!r}.{hint} Known: {', '.join(sorted(LAUNCHER_MAP))}."
        )
    return LAUNCHER_MAP[given]()


def import_executor(
    name: str, file_path: str | None = None, call: bool = True, **kwargs: Any
) -> Executor:
    """Return the executor called ``name`` in a Python file, by default ``<home>/executors.py``.

    A function of that name is called with ``kwargs``; with ``call=False`` it is returned.

    Raises:
        ConfigError: there is no such file.
        AttributeError: nothing in it has that name.
    """
    path = Path(file_path) if file_path else Path(get_nemorun_home()) / "executors.py"
    spec = importlib_util.spec_from_file_location("executors", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(
            f"Cannot load executor {name!r}: there is no Python file {str(path)!r}. "
            "Create it, or pass file_path."
        )
    module = importlib_util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Any = getattr(module, name)
    return found(**kwargs) if call and callable(found) else found  # type: ignore[no-any-return]
