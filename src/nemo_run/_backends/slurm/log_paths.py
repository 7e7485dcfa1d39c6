"""Where Slurm writes: a directory that is called as it is, and a name with patterns in it.

Slurm fills in ``%j`` and the like wherever they are in a path, and the script's shell variables.
The directory of a job has the names of its title and job in it, which mean nothing but themselves.

Programs ask ``executor.job_details`` for the paths of logs. What planning has filled in there
belongs to one job: a copy of the executor, or one that is stored, has only what the user gave.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nemo_run import _shell
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmJobDetails

_FILLED = "_filled_in"
_FIELDS = ("job_name", "folder")
_RESTARTS = "${SLURM_RESTART_COUNT:-0}"
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
_OF_TASKS = re.compile(r"%\d*[tnNs]")
_WILD = re.compile(r"\$\{[^}]*\}|\$\w+|%\d*[A-Za-z]")


@dataclass(frozen=True)
class LogPath:
    """The path of a log; ``folder``, with its slash, is literal, and may be empty."""

    folder: str
    name: str

    @classmethod
    def below(cls, folder: str, path: str) -> LogPath:
        """Return ``path``, of which ``folder`` is literal if it is in there."""
        start = f"{folder}/"
        if folder and path.startswith(start):
            return cls(start, path[len(start) :])
        return cls("", path)

    def __str__(self) -> str:
        return self.folder + self.name

    def checked(self) -> LogPath:
        """Return this path, if Slurm can write there.

        Raises:
            ConfigError: it cannot be said in Slurm's patterns.
        """
        # A backslash turns patterns off. What names a task is filled in twice by some releases,
        # so that a percent sign which stands for itself can be written in neither way.
        of_tasks = _OF_TASKS.search(str(self)) is not None
        for sign, in_the_way in (("\\", "\\" in str(self)), ("%", of_tasks and "%" in self.folder)):
            if in_the_way:
                raise ConfigError(
                    f"Slurm cannot write a log to {self}: {sign} in a directory means something "
                    "else to it. Use a title and names of jobs without it."
                )
        return self

    def for_ranks(self) -> LogPath:
        """Return the path with a place for the rank, unless it has one."""
        if "%t" in self.name:
            return self
        stem, dot, suffix = self.name.rpartition(".")
        return replace(self, name=f"{stem}_%t{dot}{suffix}" if dot else f"{self.name}_%t")

    def directive(self, *, array: bool) -> str:
        """Return the path for ``sbatch``, which writes for all ranks of a job or an element."""
        name = self.name.replace("%t", "0")
        return self._escaped + (name.replace("%j", "%A_%a") if array else name)

    def assignments(self, variable: str, *, array: bool) -> list[str]:
        """Return the lines of a script that set ``variable`` to the path, and `argument` of it."""
        lines = [self._assignment(variable, self.folder, array)]
        if "%" in self.folder:
            lines.append(self._assignment(_pattern_of(variable), self._escaped, array))
        return lines

    def argument(self, variable: str) -> str:
        """Return the name of the variable that ``srun`` is given."""
        return _pattern_of(variable) if "%" in self.folder else variable

    def glob(self, job_id: str, *, array: bool, rank: int | None = None) -> str:
        """Return a pattern for a shell that finds the files which were written.

        Only what is not known beforehand is a wildcard: restarts, elements, nodes.
        """
        text = self.name.replace("%j", f"{job_id}_*" if array else job_id)
        if rank is not None:
            text = text.replace("%t", str(rank))
        parts = [part for wild in _WILD.split(text) for part in wild.split("*")]
        stars = "*".join(_shell.render([part]) if part else "" for part in parts)
        folder = _shell.render([self.folder]) if self.folder else ""
        return folder + re.sub(r"\*+", "*", stars)

    @property
    def _escaped(self) -> str:
        return self.folder.replace("%", "%%")

    def _assignment(self, variable: str, folder: str, array: bool) -> str:
        # srun's own pattern would give the number of the component of a heterogeneous job.
        number = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}" if array else "${SLURM_JOB_ID}"
        name = self.name.replace(_RESTARTS, "${nemo_run_restart}").replace("%j", number)
        expand = _VARIABLE.findall(name)
        if not folder:
            return _shell.assignment(variable, name, expand)
        return _shell.assignment(variable, folder) + _shell.render([name], expand)


def _pattern_of(variable: str) -> str:
    return f"{variable}_pattern"


def fill_in(details: SlurmJobDetails, planned: SlurmJobDetails) -> None:
    """Show the name and folder of the job that was planned, where the user gave none."""
    given = as_given(details)
    filled = {name: getattr(planned, name) for name in _FIELDS if not getattr(given, name)}
    for name, value in filled.items():
        setattr(details, name, value)
    if filled:
        setattr(details, _FILLED, filled)


def as_given(details: SlurmJobDetails) -> SlurmJobDetails:
    """Return a copy with what the user gave, before planning or since."""
    given = copy.copy(details)
    filled: dict[str, str] = getattr(given, _FILLED, {})
    for name, value in filled.items():
        if getattr(given, name) == value:
            setattr(given, name, None)
    if filled:
        delattr(given, _FILLED)
    return given


def given_values(details: SlurmJobDetails) -> dict[str, Any]:
    """Return what tells these details from others: the fields, as the user gave them."""
    given = as_given(details)
    return {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
