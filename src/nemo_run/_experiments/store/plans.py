"""What is to be submitted for a job, as it is kept until it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchx.specs import AppDef, Role

from nemo_run._values import marks, with_marks
from nemo_run.exceptions import PackagingError


@dataclass(frozen=True)
class Plan:
    """What is to be submitted for a job.

    Attributes:
        cwd: the directory that the task starts in, where that is one of this machine.
        apps: its applications, one for each handle.
        staged: where its code is that travels: the archive, and the directory it was unpacked to.
    """

    cwd: str
    apps: Sequence[AppDef]
    staged: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        apps = [_app_to_json(app) for app in self.apps]
        return {"cwd": self.cwd, "apps": apps, "staged": list(self.staged)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        apps = [_app_from_json(app) for app in data["apps"]]
        return cls(data["cwd"], apps, tuple(data.get("staged", ())))

    def check_staged(self, job_id: str) -> None:
        """Refuse to launch a job without its code.

        Raises:
            PackagingError: code that was collected is not there any more.
        """
        for path in self.staged:
            if not _is_staged(Path(path)):
                raise PackagingError(
                    f"The code of job {job_id!r} is gone: {path!r}, where it was collected to, is "
                    "not there any more or empty. Nothing was submitted for the job. Run the "
                    "experiment again with reset()."
                )


def staged_code(job_dir: str, job_id: str) -> list[str]:
    """Return where the code of a job is that has just been collected; nothing if none travels."""
    places = [Path(job_dir, f"{job_id}.tar.gz"), Path(job_dir, "code")]
    return [str(place) for place in places if _is_staged(place)]


def _is_staged(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False  # other trouble says nothing about the code


_ROLE_FIELDS = (
    "name",
    "image",
    "entrypoint",
    "args",
    "env",
    "num_replicas",
    "min_replicas",
    "max_retries",
    "port_map",
    "metadata",
)


# JSON knows texts only. In the metadata, which every release keeps as it is.
_MARKS = "nemo_run/values"


def _app_to_json(app: AppDef) -> dict[str, Any]:
    roles = []
    for role in app.roles:
        fields = {name: getattr(role, name) for name in _ROLE_FIELDS}
        if marked := marks(role.args, role.env):
            fields["metadata"] = {**role.metadata, _MARKS: marked}
        roles.append(fields)
    return {"name": app.name, "metadata": app.metadata, "roles": roles}


def _app_from_json(data: Mapping[str, Any]) -> AppDef:
    roles = [Role(**role) for role in data["roles"]]
    for role in roles:
        role.metadata = dict(role.metadata)
        role.args, role.env = with_marks(role.metadata.pop(_MARKS, {}), role.args, role.env)
    return AppDef(name=data["name"], metadata=dict(data["metadata"]), roles=roles)
