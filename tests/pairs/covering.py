"""Choose few rows in which every combination of a few values occurs.

Greedy, and the same in every process and on every machine, so that a row keeps its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

Choice = dict[str, str]
Combination = tuple[tuple[str, str], ...]


def combinations(factors: Mapping[str, Sequence[str]], strength: int) -> Iterator[Combination]:
    """Yield every combination of values of ``strength`` different factors."""
    for names in itertools.combinations(factors, strength):
        for values in itertools.product(*(factors[name] for name in names)):
            yield tuple(zip(names, values, strict=True))


def covering(
    factors: Mapping[str, Sequence[str]], strength: int = 2, *, never: Sequence[Combination] = ()
) -> list[Choice]:
    """Return rows, a value for each factor, in which every combination occurs.

    Args:
        factors: their values.
        strength: how many values a combination has.
        never: combinations that occur in no row. Every choice must leave one for the next factor.
    """
    missing = {
        combination: None
        for combination in combinations(factors, strength)
        if not _has(dict(combination), never)
    }
    rows = []
    while missing:
        row = _row(factors, missing, never)
        for names in itertools.combinations(factors, strength):
            missing.pop(tuple((name, row[name]) for name in names), None)
        rows.append(row)
    return rows


def _has(row: Choice, combinations: Sequence[Combination]) -> bool:
    return any(dict(combination).items() <= row.items() for combination in combinations)


def _row(
    factors: Mapping[str, Sequence[str]],
    missing: Mapping[Combination, None],
    never: Sequence[Combination],
) -> Choice:
    """Begin with the first combination that is missing; add the value that brings most others."""
    row: Choice = dict(next(iter(missing)))
    for name in sorted(factors, key=lambda name: -len(factors[name])):
        if name not in row:
            gains = {
                value: _gain({**row, name: value}, name, missing)
                for value in factors[name]
                if not _has({**row, name: value}, never)
            }
            row[name] = max(gains, key=lambda value: gains[value])
    return {name: row[name] for name in factors}


def _gain(row: Choice, name: str, missing: Mapping[Combination, None]) -> float:
    """Return what the last value brings: combinations, and parts of some that others complete."""
    gain = 0.0
    for combination in missing:
        if (name, row[name]) in combination:
            absent = sum(other not in row for other, _ in combination)
            if all(row.get(other, needed) == needed for other, needed in combination):
                gain += 1000.0**-absent
    return gain
