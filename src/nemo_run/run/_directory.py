"""The directory of an experiment: what is in which file, and how it is read and written.

Next to the files of NeMo Run 0.12 there are, for each job, ``_STATE/<n>.json`` (what became of
it, written after every step) and ``_PLAN/<n>.json`` (the application to submit, so that any
process can go on where another was killed).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchx.specs import AppDef, AppState, Role, is_terminal

from nemo_run._files import make_private_directory, read_whole, try_lock, write_whole
from nemo_run._home import get_nemorun_home
from nemo_run._records import JobPart
from nemo_run.exceptions import ConfigError, ExperimentNotFoundError, RecordError
from nemo_run.run._names import directory_for_title
from nemo_run.run._order import combined

log = logging.getLogger(__name__)

CONFIG, VERSION, TASKS, TUNNELS, DONE = "_CONFIG", "_VERSION", "_TASKS", "_TUNNELS", "_DONE"
MAIN, SCRIPT = "__main__.py", "_SCRIPT"
STATE, PLAN, LOCK = "_STATE", "_PLAN", "_CONDUCTOR"


@dataclass
class MemberState:
    """What became of one task: of the only one of a job, or of one in a group.

    ``tag`` is chosen and written before the task is submitted, ``handle`` when it was.
    """

    tag: str = ""
    handle: str = ""
    state: AppState = AppState.UNSUBMITTED
    message: str = ""
    exit_code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    parts: Sequence[JobPart] = ()
    lost: bool = False
    """Submitted, but nobody knows anything of it: there is nothing to wait for."""

    @property
    def ended(self) -> bool:
        return self.lost or is_terminal(self.state)


@dataclass
class JobState:
    """What became of a job."""

    members: list[MemberState] = field(default_factory=lambda: [MemberState()])

    @property
    def state(self) -> AppState:
        return combined([member.state for member in self.members])

    @property
    def ended(self) -> bool:
        return all(member.ended for member in self.members)

    @property
    def launched(self) -> bool:
        return any(member.handle for member in self.members) or self.ended

    @property
    def message(self) -> str:
        """What is said of the members; of a group that failed, by whom."""
        told = [m.message for m in self.members if m.message]
        failed = [i for i, m in enumerate(self.members) if m.state is AppState.FAILED]
        if len(self.members) > 1 and failed:
            codes = [f"task {i} ended with {self.members[i].exit_code}" for i in failed]
            told = [*codes, *(m for m in told if m != "cancelled")]
        return "; ".join(dict.fromkeys(told))

    @property
    def parts(self) -> list[JobPart]:
        return [part for member in self.members for part in member.parts]

    @property
    def exit_code(self) -> int | None:
        """Of the first member that failed, else of any that is known."""
        known = [m for m in self.members if m.exit_code is not None]
        known.sort(key=lambda member: member.state is not AppState.FAILED)
        return known[0].exit_code if known else None

    @property
    def duration_s(self) -> float | None:
        """How long the job ran, or has been running; None if it has not started."""
        starts = [m.started_at for m in self.members if m.started_at is not None]
        if not starts:
            return None
        ends = [m.ended_at for m in self.members if m.ended_at is not None]
        end = max(ends) if self.ended and ends else time.time()
        return max(0.0, end - min(starts))


class ExperimentDirectory:
    """The files of one experiment."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, exist_ok: bool = False) -> None:
        """Make the directory.

        Raises:
            ConfigError: it cannot be made, or is there already.
        """
        try:
            make_private_directory(self.path.parent)
        except OSError as err:
            raise self._cannot_create(err) from err
        try:
            self.path.mkdir(mode=0o700, exist_ok=exist_ok)
        except FileExistsError as err:
            raise ConfigError(
                f"Experiment directory {str(self.path)!r} is there already. "
                "Use another id, or none."
            ) from err
        except OSError as err:
            raise self._cannot_create(err) from err

    def _cannot_create(self, err: OSError) -> ConfigError:
        return ConfigError(
            f"Cannot create the experiment directory {str(self.path)!r}: {err.strerror} "
            f"({err.filename}). Set NEMORUN_HOME, or base_dir, to where you can write."
        )

    def remove(self) -> None:
        """Delete the directory and everything in it; it may be gone already."""
        shutil.rmtree(self.path, ignore_errors=True)

    def write(self, name: str, text: str, *, sync: bool = False) -> None:
        """Replace a file as a whole, so that nobody sees half of it.

        Only the owner can read it: stored executors and plans hold environments. With ``sync``
        it is there after a power failure, too.
        """
        path = self.path / name
        data = text.encode("utf-8", "surrogateescape")
        try:
            try:
                write_whole(path, data, sync=sync)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, data, sync=sync)
        except OSError as err:
            raise RecordError(
                f"Cannot write {str(path)!r}: {err.strerror}. What was written before is kept.",
                path=path,
            ) from err

    def read(self, name: str) -> str | None:
        """Return a file's text, or None if it is not there."""
        data = read_whole(self.path / name)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_tasks(self) -> list[tuple[str, str]]:
        """Return the stored jobs, each with its task, as they are in the file.

        Raises:
            RecordError: the file is missing or damaged.
        """
        path = self.path / TASKS
        text = self.read(TASKS)
        if text is None:
            raise RecordError(
                f"{str(self.path)!r} has no {TASKS}: it was never run, or is no experiment.",
                path=path,
            )
        try:
            return [(str(job), str(task)) for job, task in json.loads(text)]
        except ValueError as err:
            raise RecordError(
                f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path
            ) from err

    def write_state(self, index: int, state: JobState, *, sync: bool) -> None:
        """Write down what is known of the job at ``index``."""
        members = [
            {
                **vars(member),
                "state": member.state.name,
                "parts": [part._asdict() for part in member.parts],
            }
            for member in state.members
        ]
        self.write(f"{STATE}/{index}.json", json.dumps({"members": members}), sync=sync)

    def read_state(self, index: int) -> JobState | None:
        """Return what is known of a job; None where nothing was written (by 0.12, or yet)."""
        text = self.read(f"{STATE}/{index}.json")
        if text is None:
            return None
        known = {f.name for f in dataclasses.fields(MemberState)}
        try:
            members = [
                MemberState(
                    **{
                        **{key: value for key, value in member.items() if key in known},
                        "state": AppState[member["state"]],
                        "parts": tuple(JobPart(**part) for part in member.get("parts", ())),
                    }
                )
                for member in json.loads(text)["members"]
            ]
        except (ValueError, KeyError, TypeError) as err:
            path = self.path / STATE / f"{index}.json"
            raise RecordError(
                f"Cannot read {str(path)!r}: it is damaged ({err}).", path=path
            ) from err
        return JobState(members)

    def write_plan(self, index: int, apps: Sequence[AppDef]) -> None:
        """Keep the applications of a job, and the directory they start in."""
        plan = {"cwd": str(Path.cwd()), "apps": [_app_to_json(app) for app in apps]}
        self.write(f"{PLAN}/{index}.json", json.dumps(plan))

    def read_plan(self, index: int) -> tuple[str, list[AppDef]] | None:
        """Return the directory to start a job in and its applications; None where none are kept."""
        text = self.read(f"{PLAN}/{index}.json")
        if text is None:
            return None
        plan = json.loads(text)
        return plan["cwd"], [_app_from_json(app) for app in plan["apps"]]

    def request_cancel(self, index: int) -> None:
        """Ask whoever conducts not to start a job that has not been started."""
        self.write(f"{STATE}/{index}.cancel", "")

    def cancel_requested(self, index: int) -> bool:
        return (self.path / STATE / f"{index}.cancel").exists()

    def mark_done(self) -> None:
        """Note that the context of a launched experiment has ended."""
        (self.path / DONE).touch()

    @property
    def done(self) -> bool:
        return (self.path / DONE).exists()

    @contextmanager
    def conducting(self, patience_s: float = 0.0) -> Iterator[bool]:
        """Keep other conductors away; gives False where there is one. Dies with its holder.

        Whoever only looks holds the lock for a moment; ``patience_s`` outlasts that.
        """
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + patience_s
            while not (alone := try_lock(descriptor)) and time.monotonic() < deadline:
                time.sleep(0.01)
            yield alone
        finally:
            os.close(descriptor)


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


def _app_to_json(app: AppDef) -> dict[str, Any]:
    roles = [{name: getattr(role, name) for name in _ROLE_FIELDS} for role in app.roles]
    return {"name": app.name, "metadata": app.metadata, "roles": roles}


def _app_from_json(data: Mapping[str, Any]) -> AppDef:
    roles = [Role(**role) for role in data["roles"]]
    return AppDef(name=data["name"], metadata=dict(data["metadata"]), roles=roles)


def experiments_root(base_dir: str | None = None) -> Path:
    """Return the directory that holds all titles."""
    return Path(base_dir or get_nemorun_home()).expanduser().absolute() / "experiments"


def directory_of(title: str, id: str, base_dir: str | None = None) -> Path:
    """Return where an experiment of that title and id is kept."""
    return experiments_root(base_dir) / directory_for_title(title) / directory_for_title(id)


def base_of(path: Path) -> str:
    """Return the ``base_dir`` of an experiment that is kept at ``path``."""
    for parent in path.resolve().parents:
        if parent.name == "experiments":
            return str(parent.parent)
    return str(path.resolve().parents[2])


def find_directory(id: str, base_dir: str | None = None) -> Path:
    """Return the directory of an experiment, whatever its title.

    Raises:
        ExperimentNotFoundError: there is none.
    """
    root = experiments_root(base_dir)
    name = id.replace("/", "_")
    likely = root / name.rpartition("_")[0] / name
    if name and likely.is_dir():
        return likely
    # Ids need not begin with their title, and 0.12 nested directories where a title had slashes.
    nested = root / id.rpartition("_")[0] / id
    for path in (nested, *root.glob(f"*/{_glob_escape(name)}")):
        if name and path.is_dir() and path.resolve().is_relative_to(root.resolve()):
            return path
    raise ExperimentNotFoundError(
        f"There is no experiment {id!r} under {str(root)!r}. "
        "List them with Experiment.catalog(), and check NEMORUN_HOME."
    )


def _glob_escape(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)


def catalog(title: str, base_dir: str | None = None) -> list[str]:
    """Return the ids of a title, or all titles, the oldest first."""
    parent = experiments_root(base_dir) / (directory_for_title(title) if title else "")
    if title and not parent.is_dir():
        parent = experiments_root(base_dir) / title  # as 0.12 nested it
    try:
        entries = [entry for entry in os.scandir(parent) if entry.is_dir()]
    except FileNotFoundError:
        return []
    return [entry.name for entry in sorted(entries, key=_age)]


def _age(entry: os.DirEntry[str]) -> tuple[int, str]:
    # Copying a directory changes its times; the time in the id stays.
    stamp = entry.name.rpartition("_")[2]
    when = int(stamp) if stamp.isdecimal() and len(stamp) > 12 else entry.stat().st_ctime_ns
    return when, entry.name
