"""The arrays hold what they promise."""

from __future__ import annotations

import itertools

import pytest
from tests.pairs.covering import combinations, covering
from tests.pairs.rows import EMULATED, FACTORS, rows

FACTORS_OF_NUMBERS = {name: tuple(f"{name}{n}" for n in range(3)) for name in "abcd"}


@pytest.mark.parametrize("strength", [1, 2, 3, 4])
def test_every_combination_is_in_a_row(strength: int) -> None:
    found = covering(FACTORS_OF_NUMBERS, strength)
    for combination in combinations(FACTORS_OF_NUMBERS, strength):
        assert any(dict(combination).items() <= row.items() for row in found)
    assert found == covering(FACTORS_OF_NUMBERS, strength)


def test_few_rows_do() -> None:
    assert len(covering(FACTORS_OF_NUMBERS)) <= 12  # of 81; nine is the least there can be
    assert len(covering(FACTORS)) == 25


def test_what_must_never_be_is_in_no_row_and_all_else_is() -> None:
    never = (("a", "a0"), ("b", "b1"))
    found = covering(FACTORS_OF_NUMBERS, never=[never])
    for combination in combinations(FACTORS_OF_NUMBERS, 2):
        covered = any(dict(combination).items() <= row.items() for row in found)
        assert covered == (combination != never)


def test_every_value_is_run_on_every_backend_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEMO_RUN_PAIRS", raising=False)
    found = list(rows())
    for site, (name, values) in itertools.product(EMULATED, FACTORS.items()):
        for value in values:
            assert any(row.site == site and row[name] == value for row in found)
