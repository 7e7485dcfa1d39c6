"""What the executors for SkyPilot's clusters and for its managed jobs have in common."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._credentials import mask
from nemo_run._extras import require
from nemo_run._secrets.masking import holds_secret, mask_environment, masked_text
from nemo_run._shell import assignment, check_names, render
from nemo_run._values import literal
from nemo_run.core.execution.base import Executor, ExecutorMacros
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    import sky

    from nemo_run.core.execution.checks import Finding

log = logging.getLogger(__name__)

RUN_DIR_VAR = "nemo_run_dir"
"""Variable of the run script that says where the job directory is on the cluster."""

_MAX_NAME = 100
_DIGEST = 10

TRY = "nemo_run: try"
"""How the line in a job's log begins that says which try follows."""

_CHOICES = (
    "cloud",
    "region",
    "zone",
    "cpus",
    "memory",
    "instance_type",
    "use_spot",
    "infra",
    "network_tier",
    "image_id",
    "disk_size",
    "disk_tier",
    "ports",
)
"""What may be a list, with one element for each choice that SkyPilot has."""

# /nemo_run at the start of an argument, or of the value that follows ``=``, ``:`` or ``,``.
_RUN_DIR = re.compile(r"(^|[=:,])/nemo_run(?=/|$)")


@dataclass(kw_only=True)
class SkypilotTask(Executor):
    """Which machines SkyPilot is to find, and what is to be put on them.

    Of the fields that take a list, element *i* of each belongs to choice *i*; SkyPilot takes the
    cheapest choice that can be had.

    Attributes:
        infra: where to run in SkyPilot's short form, such as ``aws/us-east-1``; instead of
            ``cloud``, ``region`` and ``zone``.
        gpus: names of accelerators any of which will do, ``gpus_per_node`` of them.
        file_mounts, storage_mounts: as in a task of SkyPilot, by their path on the cluster.
        setup: shell commands that prepare each node, run in the job's code before each job.
        cluster_config_overrides: handed to SkyPilot's resources as it is.
    """

    HEAD_NODE_IP_VAR: ClassVar[str] = "head_node_ip"
    NPROC_PER_NODE_VAR: ClassVar[str] = "SKYPILOT_NUM_GPUS_PER_NODE"
    NUM_NODES_VAR: ClassVar[str] = "num_nodes"
    NODE_RANK_VAR: ClassVar[str] = "SKYPILOT_NODE_RANK"
    HET_GROUP_HOST_VAR: ClassVar[str] = "het_group_host"

    container_image: str | None = None
    cloud: str | list[str] | None = None
    region: str | list[str] | None = None
    zone: str | list[str] | None = None
    gpus: str | list[str] | None = None
    gpus_per_node: int | None = None
    cpus: int | float | list[int | float] | None = None
    memory: int | float | list[int | float] | None = None
    instance_type: str | list[str] | None = None
    num_nodes: int = 1
    use_spot: bool | list[bool] | None = None
    disk_size: int | list[int] | None = None
    disk_tier: str | list[str] | None = None
    ports: tuple[str] | None = None
    file_mounts: dict[str, str] | None = None
    storage_mounts: dict[str, dict[str, Any]] | None = None
    cluster_name: str | None = None
    setup: str | None = None
    autodown: bool = False
    idle_minutes_to_autostop: int | None = None
    torchrun_nproc_per_node: int | None = None
    cluster_config_overrides: dict[str, Any] | None = None
    infra: str | None = None
    network_tier: str | None = None
    retry_until_up: bool = False
    packager: Packager = field(default_factory=GitArchivePackager)
    job_name: str = field(init=False, default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("cloud", "region", "zone") if getattr(self, name) is not None]
        if self.infra is not None and given:
            raise ConfigError(
                f"infra={self.infra!r} already says where to run, so {', '.join(given)} cannot be "
                "given as well. Leave one of the two out."
            )
        if self.cloud is not None:
            _recommend_infra()
        if self.cluster_name is not None and "___" in self.cluster_name:
            raise ConfigError(
                f"cluster_name={self.cluster_name!r} has '___' in it, which separates the parts of "
                "our job ids. Use another name."
            )
        if self.num_nodes < 1:
            raise ConfigError(f"num_nodes={self.num_nodes} would run nowhere. Use at least 1.")

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether SkyPilot is there and takes the resources that are asked for."""
        from nemo_run._backends.skypilot.checks import diagnose

        return diagnose(self)

    @property
    def workdir(self) -> str:
        return str(Path(self.job_dir) / "workdir")

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)
        self.job_name = task_id

    def submit(self, task: Any) -> str:
        """Ask SkyPilot to launch a task of its own, and return the id of that request."""
        raise NotImplementedError

    def package_configs(self, *cfgs: tuple[str, str]) -> list[str]:
        super().package_configs(*cfgs)
        return [f"/nemo_run/configs/{name}" for name, _ in cfgs]

    def nnodes(self) -> int:
        return self.num_nodes

    def nproc_per_node(self) -> int:
        return self.torchrun_nproc_per_node or self.gpus_per_node or 1

    def macro_values(self) -> ExecutorMacros | None:
        return ExecutorMacros(
            head_node_ip_var=self.HEAD_NODE_IP_VAR,
            nproc_per_node_var=self.NPROC_PER_NODE_VAR,
            num_nodes_var=self.NUM_NODES_VAR,
            node_rank_var=self.NODE_RANK_VAR,
            het_group_host_var=self.HET_GROUP_HOST_VAR,
        )

    def resources_config(self) -> dict[str, Any]:
        """Return the resources as SkyPilot writes them in YAML.

        Raises:
            ConfigError: lists that belong together differ in length.
        """
        config: dict[str, Any] = {}
        if self.gpus is not None:
            names = [self.gpus] if isinstance(self.gpus, str) else self.gpus
            config["accelerators"] = {name: self.gpus_per_node or 1 for name in names}
        if self.container_image is not None:
            config["image_id"] = self.container_image
        lists: dict[str, list[Any]] = {}
        for name in _CHOICES:
            value = getattr(self, name, None)
            if isinstance(value, list):
                lists[name] = [_none(item) for item in value]
            elif value is not None:
                config[name] = _none(list(value) if isinstance(value, tuple) else value)
        lengths = {name: len(values) for name, values in lists.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise ConfigError(
                f"Element i of each list belongs to choice i, but {told}. Make them equally long."
            )
        config["any_of"] = [
            dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)
        ]
        if self.cluster_config_overrides is not None:
            # SkyPilot takes what it is given apart.
            config["_cluster_config_overrides"] = copy.deepcopy(self.cluster_config_overrides)
        return config

    def to_resources(self) -> set[sky.Resources] | set[sky.Resources]:
        """Return what SkyPilot is asked for: one choice, or several.

        Raises:
            ConfigError: SkyPilot does not take it; says why.
        """
        sdk = _sky(self)
        try:
            found: set[sky.Resources] = sdk.Resources.from_yaml_config(self.resources_config())
        except ValueError as err:
            raise ConfigError(f"SkyPilot does not accept these resources: {err}") from err
        return found

    def to_task(
        self,
        name: str,
        cmd: list[str] | None = None,
        env_vars: dict[str, str] | None = None,
    ) -> sky.task.Task:
        """Return a task that runs ``cmd`` in the job's code, with the job directory beside it.

        Variables that sound secret become secrets of the task, which SkyPilot does not show.

        Raises:
            ConfigError: SkyPilot does not take a setting; says why.
        """
        sdk = _sky(self)
        name = task_name(name, max_length=_MAX_NAME)
        # SkyPilot writes YAML, which takes nothing but texts themselves.
        environment = {k: str(v) for k, v in {**self.env_vars, **(env_vars or {})}.items()}
        check_names(environment)
        hidden = {key: value for key, value in environment.items() if _is_hidden(key, value)}
        with _accepting("this task", "Change the setting that it names."):
            task = sdk.Task(
                name,
                # Nodes would run an empty one, too.
                setup=setup_script(name, self.setup) if self.setup else None,
                run=None if cmd is None else run_script(name, cmd, retries=self._tries()),
                envs={key: value for key, value in environment.items() if key not in hidden},
                secrets=hidden,
                num_nodes=self.num_nodes,
            )
        task.set_file_mounts({**(self.file_mounts or {}), remote_directory(name): self.job_dir})
        if self.storage_mounts:
            task.set_storage_mounts(
                {path: self._storage(path, config) for path, config in self.storage_mounts.items()}
            )
        task.set_resources(self.to_resources())
        return task

    def _storage(self, path: str, config: Any) -> Any:
        if not isinstance(config, Mapping):
            raise ConfigError(
                f"storage_mounts[{path!r}] is {config!r}, not settings of a storage. Write it as "
                "in a task of SkyPilot's, such as {'source': 's3://bucket', 'mode': 'MOUNT'}; "
                "files of this machine belong into file_mounts."
            )
        storage = require("sky.data", extra="skypilot", needed_by=type(self).__name__).Storage
        with _accepting(f"storage_mounts[{path!r}]", "Write it as in a task of SkyPilot's."):
            return storage.from_yaml_config(copy.deepcopy(config))

    def _tries(self) -> int:
        """Return how often the run script itself starts a failed command again."""
        return self.retries


@contextlib.contextmanager
def _accepting(what: str, advice: str) -> Iterator[None]:
    """Turn what SkyPilot raises about wrong settings into an error of ours."""
    try:
        yield
    except (ValueError, TypeError, AssertionError) as err:
        said = masked_text(str(err)).rstrip(". \n")
        raise ConfigError(f"SkyPilot does not accept {what}: {said}. {advice}") from err


def _is_hidden(variable: str, value: str) -> bool:
    # SkyPilot takes all that it needs to log in for an image as secrets, or nothing of it.
    return holds_secret(variable, value) or variable.startswith("SKYPILOT_DOCKER_")


@functools.cache  # executors are copied and read again many times
def _recommend_infra() -> None:
    log.warning("SkyPilot has deprecated cloud: use infra instead, such as infra='aws/us-east-1'.")


def task_name(name: str, max_length: int = 60) -> str:
    """Return ``name`` as SkyPilot takes it for tasks and clusters: no two signs in a row.

    So ``___`` is in none, which separates the parts of our job ids. What is cut off is what tells
    experiments of one title apart, so a hash stands for it.
    """
    words = re.sub(r"[^A-Za-z0-9]*([^A-Za-z0-9])[^A-Za-z0-9]*", _sign, name).strip("._-")
    if len(words) <= max_length:
        return words or "job"
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{words[: max_length - _DIGEST - 1].rstrip('._-')}-{digest}"


def _sign(match: re.Match[str]) -> str:
    return match[0] if match[0] in ("_", ".", "-") else "-"


def remote_directory(name: str) -> str:
    """Return where the directory of job ``name`` is put: jobs of one cluster do not share it."""
    return f"~/.nemo_run/{name}"


def setup_script(name: str, setup: str) -> str:
    """Return what prepares each node: where SkyPilot starts it there is nothing of the job's."""
    return "\n".join([*_enter_code(name), setup, ""])


def _enter_code(name: str) -> list[str]:
    return [
        f'{RUN_DIR_VAR}="$HOME/{remote_directory(name).removeprefix("~/")}"',
        # For tasks that name it themselves, where this is allowed: it leads to the latest job.
        "if [ -L /nemo_run ] || [ ! -e /nemo_run ]; then",
        f'  ln -sfn "${RUN_DIR_VAR}" /nemo_run 2>/dev/null || true',
        "fi",
        f'mkdir -p "${RUN_DIR_VAR}/code" && cd "${RUN_DIR_VAR}/code" || exit 1',
    ]


def run_script(name: str, cmd: Sequence[str], *, retries: int) -> str:
    """Return what runs on each node."""
    macros = (
        SkypilotTask.HEAD_NODE_IP_VAR,
        SkypilotTask.NPROC_PER_NODE_VAR,
        SkypilotTask.NUM_NODES_VAR,
        SkypilotTask.NODE_RANK_VAR,
        SkypilotTask.HET_GROUP_HOST_VAR,
        RUN_DIR_VAR,
    )
    # A path in our own directory is the same in every job, so it cannot be taken literally.
    command = [
        arg if isinstance(arg, literal) else _RUN_DIR.sub(rf"\g<1>${{{RUN_DIR_VAR}}}", arg)
        for arg in cmd
    ]
    lines = [
        "if command -v conda >/dev/null 2>&1; then conda deactivate >/dev/null 2>&1 || true; fi",
        'num_nodes=$(printf "%s\\n" "$SKYPILOT_NODE_IPS" | wc -l)',
        'head_node_ip=$(printf "%s\\n" "$SKYPILOT_NODE_IPS" | head -n 1)',
        "export num_nodes head_node_ip",
        *_enter_code(name),
    ]
    run = render(command, expand=macros)
    if not retries:
        return "\n".join([*lines, run, ""])
    return "\n".join(
        [
            *lines,
            assignment("nemo_run_tries", str(retries + 1)),
            "nemo_run_try=1",
            f"until {run}; do",
            "  nemo_run_code=$?",
            '  [ "$nemo_run_try" -lt "$nemo_run_tries" ] || exit "$nemo_run_code"',
            "  sleep $((nemo_run_try < 6 ? 1 << (nemo_run_try - 1) : 60))",
            "  nemo_run_try=$((nemo_run_try + 1))",
            f'  echo "{TRY} $nemo_run_try of $nemo_run_tries, after exit code $nemo_run_code"',
            "done",
            "",
        ]
    )


def log_directory(job_dir: str, app_id: str) -> Path:
    """Return where the logs of an ended job are kept."""
    return Path(job_dir, "sky_logs", app_id.rpartition("___")[2])


def shown(task: Any) -> dict[str, Any]:
    """Return a task of SkyPilot as plain data, without secrets and who logs in to URLs."""
    config: dict[str, Any] = _without_logins(task.to_yaml_config())
    if config.get("envs"):
        config["envs"] = mask_environment(config["envs"])
    if config.get("secrets"):
        config["secrets"] = {name: mask("hidden") for name in config["secrets"]}
    return config


def _without_logins(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_logins(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_logins(item) for item in value]
    return masked_text(value)


def _none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _sky(executor: Executor) -> Any:
    return require("sky", extra="skypilot", needed_by=type(executor).__name__)
