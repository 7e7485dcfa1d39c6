"""Which experiment, and which of its jobs, a word means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nemo_run._experiments.store import listing
from nemo_run._experiments.store.listing import Entry
from nemo_run._experiments.store.places import is_experiment, runs_of
from nemo_run._names import directory_for_title
from nemo_run.cli.experiments.arguments import LATEST
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError, ExperimentNotFoundError

if TYPE_CHECKING:
    from nemo_run.run.experiment import Experiment

_MAX_NAMED = 5


class Place(NamedTuple):
    """Where an experiment is: when it was made, its title and its directory."""

    created_at: float
    title: str
    path: str

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    def entry(self) -> Entry:
        """Return what is known of it.

        Raises:
            ExperimentNotFoundError: another process removed it meanwhile.
        """
        found = listing.read_entry(self.created_at, self.title, self.path)
        if found is None:
            raise ExperimentNotFoundError(f"There is no experiment in {self.path!r} (any more).")
        return found


def places() -> list[Place]:
    """Return all experiments, the newest first."""
    return [Place(*found) for found in listing.find_all(listing.experiments_root())]


def find(word: str) -> Place:
    """Return the experiment that a word means: see `EXPERIMENT_HELP`.

    Raises:
        ExperimentNotFoundError: there is none.
        ConfigError: there are several.
    """
    known = places()
    if not known:
        raise ExperimentNotFoundError(
            f"There are no experiments under {listing.experiments_root()!r}. Check NEMORUN_HOME."
        )
    ids, titles = {word, word.replace("/", "_")}, title_names(word)
    exact = (place for place in known if word == LATEST or place.id in ids or place.title in titles)
    if found := next(filter(_is_there, exact), None) or _of_older_release(word, known):
        return found
    beginning = [p for p in known if word and p.id.startswith(word) and _is_there(p)]
    if len(beginning) > 1:
        named = ", ".join(place.id for place in beginning[:_MAX_NAMED])
        more = ", …" if len(beginning) > _MAX_NAMED else ""
        raise ConfigError(f"{word!r} could be {len(beginning)} experiments: {named}{more}")
    return beginning[0] if beginning else _by_handle(word, known)


def title_names(word: str) -> set[str]:
    """Return what a title is listed as: itself, or what its directory is called."""
    return {word, directory_for_title(word)} if word.strip("/.") and "/" in word else {word}


def _of_older_release(word: str, known: Sequence[Place]) -> Place | None:
    """Return the latest experiment whose title has slashes, and shares a directory with another."""
    runs = runs_of(word) if word.strip("/.") and "/" in word and "://" not in word else []
    return next((place for place in known if runs and Path(place.path) == runs[-1]), None)


def _is_there(place: Place) -> bool:
    """Tell whether there is more than a directory: a launcher may have been killed making it."""
    return is_experiment(place.path)


def _by_handle(word: str, known: Sequence[Place]) -> Place:
    experiment_id = _experiment_of(word)
    for place in known:
        if place.id == experiment_id:
            return place
    suggestion = did_you_mean(word, [name for place in known for name in (place.id, place.title)])
    hint = suggestion if suggestion.startswith("Did") else "See `nemorun experiment list`."
    raise ExperimentNotFoundError(f"There is no experiment {word!r}. {hint}")


def _experiment_of(job: str) -> str | None:
    """Return the experiment of a job, given its handle or the id it has at its backend."""
    from nemo_run._jobs.store import JobStore

    store = JobStore()
    scheduler, is_handle, rest = job.partition("://")
    app_id = rest.partition("/")[2] if is_handle else job
    for name in [scheduler] if is_handle else store.schedulers():
        record = store.find(app_id, name)
        if record is not None:
            return record.experiment_id
    return None


def find_jobs(words: Sequence[str], ids: Sequence[str]) -> list[int]:
    """Return the positions of the jobs that words mean, each once, in order.

    Raises:
        ConfigError: a word means none of them, or several.
    """
    return sorted({_find_job(word, ids) for word in words})


def _find_job(word: str, ids: Sequence[str]) -> int:
    if word in ids:
        return ids.index(word)
    if word.isdecimal() and int(word) < len(ids):
        return int(word)
    beginning = [index for index, id in enumerate(ids) if word and id.startswith(word)]
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        raise ConfigError(
            f"{word!r} could be {len(beginning)} jobs: {', '.join(ids[i] for i in beginning)}"
        )
    raise ConfigError(f"There is no job {word!r}. {did_you_mean(word, ids)}")


def open_experiment(path: str) -> Experiment:
    """Return the experiment in a directory; what it has to say goes to stderr."""
    from nemo_run.core.frontend.console.text_console import TextConsole
    from nemo_run.run.experiment import Experiment

    experiment = Experiment._load(Path(path))
    experiment.console = TextConsole(stderr=True, emoji=False)
    return experiment
