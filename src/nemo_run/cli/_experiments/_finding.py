"""Which experiment, and which of its jobs, a word means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nemo_run.cli._suggestions import did_you_mean
from nemo_run.exceptions import ConfigError, ExperimentNotFoundError
from nemo_run.run import _catalogue
from nemo_run.run._catalogue import Entry

LATEST = "latest"
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
            ExperimentNotFoundError: somebody removed it meanwhile.
        """
        found = _catalogue.read_entry(self.created_at, self.title, self.path)
        if found is None:
            raise ExperimentNotFoundError(f"There is no experiment in {self.path!r} (any more).")
        return found


def places() -> list[Place]:
    """Return all experiments, the newest first."""
    return [Place(*found) for found in _catalogue.find_all(_catalogue.experiments_root())]


def find(word: str) -> Place:
    """Return the experiment that a word means: see `EXPERIMENT_HELP`.

    Raises:
        ExperimentNotFoundError: there is none.
        ConfigError: there are several.
    """
    known = places()
    if not known:
        raise ExperimentNotFoundError(
            f"There are no experiments under {_catalogue.experiments_root()!r}. Check NEMORUN_HOME."
        )
    if word == LATEST:
        return known[0]
    exact = [place for place in known if word in (place.id, place.title)]
    if exact:
        return exact[0]
    beginning = [place for place in known if word and place.id.startswith(word)]
    if len(beginning) > 1:
        named = ", ".join(place.id for place in beginning[:_MAX_NAMED])
        more = ", …" if len(beginning) > _MAX_NAMED else ""
        raise ConfigError(f"{word!r} could be {len(beginning)} experiments: {named}{more}")
    return beginning[0] if beginning else _by_handle(word, known)


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
    from nemo_run._records import JobStore

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
