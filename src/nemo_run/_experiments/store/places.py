"""Where experiments are kept, and how one is found by its id or title."""

from __future__ import annotations

import os
from pathlib import Path

from nemo_run._home import get_nemorun_home
from nemo_run._names import directory_for_id, directory_for_title
from nemo_run.exceptions import ExperimentNotFoundError


def experiments_root(base_dir: str | None = None) -> Path:
    """Return the directory that holds all titles."""
    return Path(base_dir or get_nemorun_home()).expanduser().absolute() / "experiments"


def directory_of(title: str, id: str, base_dir: str | None = None) -> Path:
    """Return where an experiment of that title and id is kept."""
    return experiments_root(base_dir) / directory_for_title(title) / directory_for_id(id)


def base_of(path: Path) -> str:
    """Return the ``base_dir`` of an experiment that is kept at ``path``."""
    for parent in path.resolve().parents:
        if parent.name == "experiments":
            return str(parent.parent)
    return str(path.resolve().parents[2])


def is_experiment(path: str | Path) -> bool:
    """Tell whether an experiment is in a directory, and not what a killed launcher left of one."""
    return os.path.exists(f"{path}/_CONFIG")  # noqa: PTH110 - thousands of times


def leads_to_experiment(link: Path) -> bool:
    """Tell whether a link of the home is one that `Experiment` makes for another ``base_dir``.

    Its target is an experiment of the same name, in a directory of experiments, of this user.
    """
    target = link.resolve()
    return (
        target.parts[-3:] == ("experiments", link.parent.name, link.name)
        and is_experiment(target)
        and target.stat().st_uid == os.geteuid()
    )


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
    """Return the ids of a title, or all titles, the oldest first.

    A directory that is empty, or was never filled, is no experiment.
    """
    if title:
        return [path.name for path in runs_of(title, base_dir)]
    return [entry.name for entry in sorted(_directories(experiments_root(base_dir)), key=_age)]


def runs_of(title: str, base_dir: str | None = None) -> list[Path]:
    """Return the directories of the experiments of a title, the oldest first."""
    root = experiments_root(base_dir)
    found = _directories(root / directory_for_title(title))
    if "/" in title:
        found += _directories(root / title)  # as 0.12 nested it
        # As releases before this one kept it, together with another title.
        together = _directories(root / title.replace("/", "_"))
        found += [entry for entry in together if _title_in(entry.path) == title]
    entries = [entry for entry in found if is_experiment(entry.path)]
    return [Path(entry.path) for entry in sorted(entries, key=_age)]


def _directories(parent: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(parent) if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _title_in(path: str) -> str:
    """Return the title that the experiment in a directory was given; empty if it cannot be read."""
    from nemo_run._experiments.store.listing import stored_title

    return stored_title(path)


def _age(entry: os.DirEntry[str]) -> tuple[int, str]:
    # Copying a directory changes its times; the time in the id stays.
    stamp = entry.name.rpartition("_")[2]
    when = int(stamp) if stamp.isdecimal() and len(stamp) > 12 else entry.stat().st_ctime_ns
    return when, entry.name
