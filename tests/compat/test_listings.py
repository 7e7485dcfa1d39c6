"""The package has everything the stored API listings document."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.contract import Entry, entries, mismatches

LISTINGS = sorted((Path(__file__).parent / "listings").glob("*.txt"))


def documented() -> list[Entry]:
    return [entry for path in LISTINGS for entry in entries(path.read_text(encoding="utf-8"))]


# About what an SDK itself imports, where one is installed.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, id=entry.name) for entry in documented()],
)
def test_what_is_documented_is_there(entry: Entry) -> None:
    assert mismatches(entry) == []


@pytest.mark.parametrize("path", LISTINGS, ids=lambda path: path.stem)
def test_a_listing_is_about_the_module_it_is_named_after(path: Path) -> None:
    found = list(entries(path.read_text(encoding="utf-8")))
    assert found
    assert all(entry.name.startswith(f"{path.stem}.") for entry in found)
