"""What Lepton's client speaks of, in both its generations, as small values of our own.

Up to 0.27 the package ``leptonai`` has its types in ``api.v1``, from 0.47 on in ``api.v2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from nemo_run._extras import require
from nemo_run.exceptions import ConfigError, MissingDependencyError


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the workspace says about a job.

    Attributes:
        state: name of a member of the vendor's enum; ``Unknown`` also for a missing one.
        ready, active, failed, succeeded: numbers of replicas.
        restarts: how often the whole job was started again.
    """

    id: str
    state: str
    ready: int = 0
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    size: int = 1
    restarts: int = 0
    created_at: float | None = None
    ended_at: float | None = None
    labels: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One container of a job, or one that has been."""

    id: str
    created_at: float


@dataclass(frozen=True)
class LogLine:
    """A line as it was stored, without its newline."""

    time_ns: int
    text: str


def job_states() -> Any:
    """Return the vendor's enum of the states of a job."""
    return vendor_types("job").LeptonJobState


class LeptonSettingError(ConfigError, RuntimeError):
    """A mount or node group is wrong; also a ``RuntimeError``, since scripts may have caught it."""


def check_spec(spec: Mapping[str, Any]) -> None:
    """Find what the vendor's client would not accept, or would drop without a word.

    Raises:
        ConfigError: says which setting.
    """
    model = vendor_types("job").LeptonJobUserSpec
    unknown = sorted(set(spec) - set(model.model_fields))
    if unknown:
        raise ConfigError(
            f"Lepton's jobs have no setting {', '.join(map(repr, unknown))}. Check custom_spec; "
            f"known are: {', '.join(sorted(model.model_fields))}."
        )
    try:
        model(**spec)
    except ValueError as err:  # pydantic's is one, and shows values, which may be secret
        wrong = [
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
            for item in getattr(err, "errors", list)()
        ]
        raise ConfigError(
            f"Lepton's client would not accept the job: {'; '.join(wrong) or err}."
        ) from None


def vendor_types(name: str) -> ModuleType:
    """Return the vendor's module of that name, of whichever generation is installed."""
    newer, older = f"leptonai.api.v2.types.{name}", f"leptonai.api.v1.types.{name}"
    try:
        return require(newer, extra="lepton", needed_by="LeptonExecutor")
    except MissingDependencyError as err:
        why = err.__cause__
        if isinstance(why, ModuleNotFoundError) and why.name and newer.startswith(why.name):
            return require(older, extra="lepton", needed_by="LeptonExecutor")
        raise


def parse_job(job: Any) -> Job:
    status, metadata = job.status, job.metadata
    state = getattr(getattr(status, "state", None), "name", None) or "Unknown"
    return Job(
        id=str(metadata.id_),
        state=state,
        ready=getattr(status, "ready", None) or 0,
        active=getattr(status, "active", None) or 0,
        failed=getattr(status, "failed", None) or 0,
        succeeded=getattr(status, "succeeded", None) or 0,
        size=job.spec.completions or 1,
        restarts=len(getattr(status, "job_history", None) or ()),
        created_at=seconds(metadata.created_at),
        ended_at=seconds(getattr(status, "completion_time", None)),
        labels=metadata.labels or {},
    )


def seconds(moment: int | None) -> float | None:
    """Return seconds since the epoch: some fields are in those, others in milliseconds."""
    if not moment:
        return None
    return moment / 1000 if moment > 1e11 else float(moment)
