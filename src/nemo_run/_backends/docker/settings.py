"""From the settings of a `DockerExecutor` to those of a container, in plain values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run.config import RUNDIR_SPECIAL_NAME
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.docker import DockerExecutor

RUNDIR = "/nemo_run"
HOSTNAME_LENGTH = 32
STOP_SIGNAL = "SIGTERM"

WITHOUT_NAMES = ("host", "none", "bridge", "default")
"""Networks that every engine has, and that do not know containers by name."""

_NAME_LENGTH = 120
_LABEL_LENGTH = 63
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9.-]+")
_ULIMIT = re.compile(r"([a-z]+)[=:](-?\d+)(?::(-?\d+))?")
_SIZE = re.compile(r"\d+(\.\d+)?\s*([bkmgt]b?)?", re.IGNORECASE)
_OURS = {
    "image": "container_image",
    "environment": "env_vars",
    "network": "network",
    "command": "the task",
    "name": "the name of the job",
    "network_mode": "network",
    "networking_config": "network",
}
# How containers come and go is ours to say.
_WITHOUT_EFFECT = frozenset({"detach", "remove", "auto_remove"})


def container_names(experiment_id: str, roles: Sequence[str]) -> list[str]:
    """Return what the container of each role is called; the same input gives the same names."""
    names: list[str] = []
    for role in roles:
        name = _plain(f"{experiment_id}_{role}" if experiment_id else role)
        if len(name) > _NAME_LENGTH:
            digest = hashlib.sha256(f"{experiment_id}\0{role}".encode()).hexdigest()[:8]
            name = f"{name[: _NAME_LENGTH - 9].rstrip('-.')}-{digest}"
        while name in names:
            name += "-2"
        names.append(name)
    return names


def host_name(name: str) -> str:
    """Return what a container calls itself."""
    return name[-HOSTNAME_LENGTH:].lstrip("-.")


def network_names(roles: Sequence[str]) -> list[str]:
    """Return the name by which the other tasks of a group reach each; no two have the same."""
    names: list[str] = []
    for role in roles:
        # Of a long name the end, which has the number of the task.
        plain = name = _plain(role)[-_LABEL_LENGTH:].lstrip("-.")
        number = 1
        while name in names:
            number += 1
            name = f"{plain[: _LABEL_LENGTH - len(str(number)) - 1]}-{number}"
        names.append(name)
    return names


def _plain(text: str) -> str:
    return _NOT_IN_NAMES.sub("-", text.replace("_", "-")).strip("-.") or "job"


def parse_ulimit(text: str) -> dict[str, Any]:
    """Read ``name=soft``, ``name=soft:hard``, or the same with a colon in place of ``=``.

    Raises:
        ConfigError: it is neither.
    """
    match = _ULIMIT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"{text!r} is not a limit. Write name=soft or name=soft:hard, such as "
            "'memlock=-1' or 'nofile=1024:4096'."
        )
    name, soft, hard = match.groups()
    return {"name": name, "soft": int(soft), "hard": int(hard if hard is not None else soft)}


def volume(text: str, job_dir: str) -> str:
    """Return a volume as the engine takes it: ``/$nemo_run``, ``~`` and ``./`` filled in.

    Raises:
        ConfigError: it does not say where it goes.
    """
    source, colon, target = text.partition(":")
    if not colon or not source or not target.startswith("/"):
        raise ConfigError(
            f"{text!r} is not a volume. Write what to mount and where, such as "
            "'/data:/data' or '/data:/data:ro'."
        )
    if source == RUNDIR_SPECIAL_NAME or source.startswith(f"{RUNDIR_SPECIAL_NAME}/"):
        source = f"{job_dir}{source.removeprefix(RUNDIR_SPECIAL_NAME)}"
    elif source.startswith("~"):
        source = str(Path(source).expanduser())
    elif source in (".", "..") or source.startswith(("./", "../")):
        source = str(Path(source).resolve())
    return f"{source}:{target}"


def check(executor: DockerExecutor) -> None:
    """Find what is wrong with the settings without asking the engine.

    Raises:
        ConfigError: says which setting.
    """
    if not isinstance(executor.container_image, str) or not executor.container_image.strip():
        raise ConfigError("A DockerExecutor needs a container_image, and none is set.")
    if executor.pull not in ("always", "missing", "never"):
        raise ConfigError(
            f"pull={executor.pull!r} is not known. Use 'always', 'missing' or 'never'."
        )
    if executor.num_gpus is not None and executor.num_gpus < -1:
        raise ConfigError(f"num_gpus={executor.num_gpus} makes no sense. Use -1 for all GPUs.")
    if executor.retries < 0:
        raise ConfigError(f"retries={executor.retries} makes no sense. Use 0 for none.")
    if executor.shm_size is not None and not _SIZE.fullmatch(str(executor.shm_size).strip()):
        raise ConfigError(
            f"shm_size={executor.shm_size!r} is not a size. Write a number with a unit: '8g'."
        )
    for text in executor.ulimits:
        parse_ulimit(text)
    for text in executor.volumes:
        volume(text, executor.job_dir)
    for name in executor.additional_kwargs:
        if name in _OURS:
            raise ConfigError(
                f"additional_kwargs has {name!r}, which {_OURS[name]} decides. Take it out."
            )


def settings(
    executor: DockerExecutor, name: str, labels: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the settings of a container, but for its names in a network.

    ``additional_kwargs`` of the executor win, but do not take away what a job needs.
    """
    more = {k: v for k, v in executor.additional_kwargs.items() if k not in _WITHOUT_EFFECT}
    own_volumes, own_mounts = more.pop("volumes", None), more.pop("mounts", None)
    own_labels = more.pop("labels", None) or {}
    if not isinstance(own_labels, Mapping):
        own_labels = dict.fromkeys(own_labels, "")
    made: dict[str, Any] = {
        "working_dir": f"{RUNDIR}/code",
        "hostname": host_name(name),
        "labels": {**own_labels, **labels},
        # Otherwise what a Python task prints would come late, and not at all if it is killed.
        "environment": {"PYTHONUNBUFFERED": "1", **environment},
        "runtime": executor.runtime,
        "shm_size": executor.shm_size,
        "ulimits": [parse_ulimit(text) for text in executor.ulimits],
        "ipc_mode": executor.ipc_mode,
        "healthcheck": dict(executor.healthcheck) or None,
        "privileged": executor.privileged,
        "stop_signal": STOP_SIGNAL,
        "volumes": _volumes(executor, own_volumes),
        "mounts": [*_mounts(executor), *(own_mounts or ())],
    }
    if executor.num_gpus:
        request = {"count": executor.num_gpus, "capabilities": [["compute", "utility"]]}
        made["device_requests"] = [request]
    if executor.retries:
        made["restart_policy"] = {"Name": "on-failure", "MaximumRetryCount": executor.retries}
    if executor.network.startswith("container:"):
        del made["hostname"]  # the other's
    return {k: v for k, v in {**made, **more}.items() if v not in (None, [], {})}


def _volumes(executor: DockerExecutor, more: Any) -> list[str]:
    ours = [volume(text, executor.job_dir) for text in executor.volumes]
    if isinstance(more, Mapping):
        return [*ours, *(f"{k}:{v['bind']}:{v.get('mode', 'rw')}" for k, v in more.items())]
    return [*ours, *(more or ())]


def _mounts(executor: DockerExecutor) -> list[dict[str, Any]]:
    # Not as volumes, whose parts a colon separates: a path may have one in it.
    mounts = [{"Type": "bind", "Source": executor.job_dir, "Target": RUNDIR, "ReadOnly": False}]
    main = Path(executor.job_dir).parent / "__main__.py"
    if main.is_file():
        # Where functions of the launching script are looked for, above /nemo_run.
        source, target = str(main), f"/{main.name}"
        mounts.append({"Type": "bind", "Source": source, "Target": target, "ReadOnly": True})
    return mounts
