"""Which combinations are run on which backend."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tests.pairs.covering import Choice, Combination, covering

FACTORS = {
    # A file, a text, a function of the launching file, one of a package, one with a class's config.
    "task": ("file", "inline", "own", "package", "class"),
    "packager": ("plain", "pattern", "git", "hybrid", "mine"),
    "shape": ("alone", "dependency", "group", "het"),
    "variable": ("usual", "odd", "secret"),
    # A notebook is not among them: what its cells define has no file that could travel.
    "origin": ("script", "nemorun", "killed"),
    "how": ("attached", "detached"),
    "launcher": ("none", "torchrun"),
    "retries": ("0", "1"),
    "plugin": ("none", "one"),
}

SITES = ("local", "lepton", "dgx_cloud", "kubeflow", "docker", "slurm")

EMULATED = ("lepton", "dgx_cloud", "kubeflow")
"""Backends that share one array, in which they are a factor, too: a row takes seconds."""

MORE = {"slurm": {"tunnel": ("ssh", "local")}}
"""What only some backends can be told."""

REFUSED = {"lepton": {"shape": ("group", "het")}}
"""Values that a backend cannot do: each is tried once, one attached and one detached."""

TAKES_LONG = {"slurm": (("shape", "het"), ("retries", "1"))}
"""What takes half a minute, because of Slurm's own pauses: one row has it unless all are run."""

THREE_WAYS = ("local", "slurm")
"""Backends with a row for every three values where NEMO_RUN_PAIRS is ``all``."""


@dataclass(frozen=True)
class Row:
    """A program to write, where to run it, and whether it must be refused."""

    site: str
    values: tuple[tuple[str, str], ...]
    refused: bool = False

    def __getitem__(self, factor: str) -> str:
        return dict(self.values).get(factor, "")

    def __str__(self) -> str:
        return "-".join([self.site, *(value for _, value in self.values)])

    @property
    def names(self) -> list[str]:
        """What its tasks are called, in the order of their jobs."""
        if self["shape"] in ("group", "het"):
            return ["main-0", "main-1"]
        return ["first", "main"] if self["shape"] == "dependency" else ["main"]

    @property
    def jobs(self) -> list[str]:
        return ["first", "main"] if self["shape"] == "dependency" else ["main"]

    @property
    def code_travels(self) -> bool:
        return self["packager"] != "plain" and self.site != "local"


def rows() -> Iterator[Row]:
    """Yield those of all backends; with NEMO_RUN_PAIRS=all, an array for each of the emulated."""
    everything = os.environ.get("NEMO_RUN_PAIRS") == "all"
    apart = SITES if everything else tuple(name for name in SITES if name not in EMULATED)
    for site in apart:
        strength = 3 if everything and site in THREE_WAYS else 2
        rare = () if everything else TAKES_LONG.get(site, ())
        yield from map(_row, covering(_factors(site), strength, never=[rare] if rare else ()))
        if rare:
            yield _row({name: values[0] for name, values in _factors(site).items()} | dict(rare))
    if not everything:
        factors = {"site": EMULATED, **FACTORS}
        yield from map(_row, covering(factors, never=list(refused(EMULATED))))
    for number, combination in enumerate(refused(SITES)):
        usual = {name: values[0] for name, values in FACTORS.items()}
        usual["how"] = FACTORS["how"][number % 2]
        yield replace(_row({**usual, **dict(combination)}), refused=True)


def refused(sites: Sequence[str]) -> Iterator[Combination]:
    """Yield what backends cannot do, each with the backend."""
    for site in sites:
        for name, values in REFUSED.get(site, {}).items():
            for value in values:
                yield (("site", site), (name, value))


def _factors(site: str) -> dict[str, tuple[str, ...]]:
    """Return the values that one backend can do."""
    without = REFUSED.get(site, {})
    everything = {"site": (site,), **FACTORS, **MORE.get(site, {})}
    return {
        name: tuple(value for value in values if value not in without.get(name, ()))
        for name, values in everything.items()
    }


def _row(choice: Choice) -> Row:
    others = {name: value for name, value in choice.items() if name != "site"}
    return Row(choice["site"], tuple(others.items()))
