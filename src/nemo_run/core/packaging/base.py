"""The packager that leaves code where it is, and the contract of those that do not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_run._config import defaults
from nemo_run.config import ConfigurableMixin


@dataclass(kw_only=True)
class Packager(ConfigurableMixin):
    """Takes nothing along: the task finds its code where it runs.

    Subclasses return the path of a gzip tar from `package`, which the executor extracts into
    ``<job_dir>/code``.

    Attributes:
        debug: ask torch for its most talkative error reports in distributed runs.
        symlink_from_remote_dir: on Slurm, link code that is there already instead of sending it.
    """

    debug: bool = False
    symlink_from_remote_dir: str | None = None

    def __post_init__(self) -> None:
        defaults.fill_in(self)

    def package(self, path: Path, job_dir: str, name: str) -> str | None:
        """Return the path of an archive of ``path``, or None where nothing has to travel."""
        return None

    def setup(self) -> None:
        """Prepare the place where the task runs, right before it does."""
