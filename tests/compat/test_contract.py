"""The checker of API listings finds what it is meant to find."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.compat.contract import Entry, entries, main, mismatches

LISTING = """
# {py:mod}`shapes`

````{list-table}
* - {py:obj}`Square <shapes.Square>`
````

`````{py:class} Square(side: float, unit: str = 'cm')
:canonical: shapes.Square

Bases: {py:obj}`pathlib.Path`, {py:obj}`typing.Generic`\\[{py:obj}`dict`\\[{py:obj}`str`\\]\\]

````{py:attribute} side
:canonical: shapes.Square.side
:type: float
:value: >
   None

````

````{py:method} area(scale: Optional[float] = None, *, digits: int = 2) -> float
:canonical: shapes.Square.area
:classmethod:

````

`````

````{py:data} UNITS
:canonical: shapes.UNITS
:value: >
   ['cm', 'mm']

````
"""


def test_entries_are_read_in_order() -> None:
    assert [(entry.kind, entry.name) for entry in entries(LISTING)] == [
        ("class", "shapes.Square"),
        ("attribute", "shapes.Square.side"),
        ("method", "shapes.Square.area"),
        ("data", "shapes.UNITS"),
    ]


def test_headings_options_and_bases_are_read() -> None:
    square, side, area, units = entries(LISTING)
    assert square.heading == "Square(side: float, unit: str = 'cm')"
    assert square.bases == ("pathlib.Path", "typing.Generic")
    assert (side.options["type"], side.options["value"]) == ("float", "None")
    assert "classmethod" in area.options
    assert units.options["value"] == "['cm', 'mm']"


Check = Callable[[str, Entry], list[str]]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Compare an entry with a module ``subject_package.shapes`` of the given source."""
    package = tmp_path / "subject_package"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    def compare(source: str, entry: Entry) -> list[str]:
        (package / "shapes.py").write_text(textwrap.dedent(source), encoding="utf-8")
        for name in ("subject_package", "subject_package.shapes"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        return mismatches(entry, package="subject_package")

    return compare


def entry(kind: str, heading: str, name: str, *bases: str, **options: str) -> Entry:
    return Entry(kind, heading, f"shapes.{name}", options, bases)


FUNCTION = entry("function", "area(side: float, unit: str = 'cm', **rest: Any) -> float", "area")


@pytest.mark.parametrize(
    "signature",
    [
        "side: float, unit: str = 'cm', **rest: Any) -> float",
        "side: 'float', unit: Optional[str] = 'cm', **rest: Any) -> Union[float, None]",
        "side: float, unit: str = 'cm', digits: int = 2, **rest: Any) -> float",
        "side: float, unit: str = 'cm', *, strict: bool = False, **rest: Any) -> float",
    ],
    ids=["same", "spelled differently", "extra with default", "extra keyword"],
)
def test_compatible_signatures_hold(check: Check, signature: str) -> None:
    source = f"from typing import *\ndef area({signature}: ...\n"
    assert check(source, FUNCTION) == []


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        ("side: float, **rest: Any) -> float", "takes side, rest"),
        ("unit: str = 'cm', side: float = 0, **rest: Any) -> float", "takes unit, side, rest"),
        ("side: float, depth, unit: str = 'cm', **rest: Any) -> float", "needs depth"),
        ("side: float, unit: str = 'mm', **rest: Any) -> float", "unit defaults to 'mm'"),
        ("side: float = 1, unit: str = 'cm', **rest: Any) -> float", "side defaults to 1"),
        ("side: int, unit: str = 'cm', **rest: Any) -> float", "side is"),
        ("side, unit: str = 'cm', **rest: Any) -> float", "side is"),
        ("side: float, unit: str = 'cm', **rest: Any) -> int", "returns"),
        ("side: float, unit: str = 'cm', rest: Any = None) -> float", "takes rest"),
    ],
)
def test_other_signatures_do_not(check: Check, signature: str, said: str) -> None:
    found = check(f"from typing import *\ndef area({signature}: ...\n", FUNCTION)
    assert any(sentence.startswith(said) for sentence in found), found


def test_a_missing_module_is_said(check: Check) -> None:
    found = mismatches(FUNCTION, package="no_such_package")
    assert found == ["cannot be found: no module of no_such_package.shapes.area can be imported"]


def test_a_module_that_fails_for_another_reason_is_said(check: Check) -> None:
    (sentence,) = check("import not_installed_at_all\n", FUNCTION)
    assert "not_installed_at_all" in sentence


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (entry("function", "volume()", "volume"), "is missing"),
        (entry("class", "Circle", "Circle"), "is not a class"),
        (entry("data", "UNITS", "UNITS"), "is missing"),
        (entry("method", "area()", "Square.area", classmethod=""), "is not a class method"),
        (entry("property", "side", "Square.side"), "is not a property"),
        (entry("class", "Square", "Square", "pathlib.Path"), "does not derive from pathlib.Path"),
        (entry("attribute", "KIND", "Square.KIND", value="'box'"), "is 'square', documented as"),
        (entry("data", "HOME", "HOME", value="'join(...)'"), "is 3, not a path"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_missing_or_of_another_kind_is_said(check: Check, wanted: Entry, said: str) -> None:
    source = """
        HOME = 3
        class Square:
            KIND = "square"
            def side(self): ...
            def area(self): ...
    """
    (sentence,) = check(source, wanted)
    assert sentence.startswith(said)


@pytest.mark.parametrize(
    "wanted",
    [
        entry("property", "side", "Square.side"),
        entry("class", "Square(unit: str = 'cm')", "Square", "builtins.object"),
        entry("method", "unit()", "Square.unit", classmethod=""),
        entry("attribute", "KIND", "Square.KIND", value="'square'"),
        entry("data", "HOME", "HOME", value="'join(...)'"),
        entry("data", "log", "log", type="logging.Logger", value="'getLogger(...)'"),
    ],
    ids=lambda value: value.heading,
)
def test_what_is_as_documented_holds(check: Check, wanted: Entry) -> None:
    source = """
        import logging
        HOME = "/home"
        log = logging.getLogger("shapes")
        class Square:
            KIND = "square"
            def __init__(self, unit: str = "cm"): ...
            @property
            def side(self): ...
            @classmethod
            def unit(cls): ...
    """
    assert check(source, wanted) == []


@pytest.mark.parametrize(
    ("field", "options", "said"),
    [
        ("side: float", {"type": "float", "value": "None"}, None),
        ("side: 'float | None' = None", {"type": "Optional[float]", "value": "None"}, None),
        ("side: List[int] = field(default_factory=list)", {"value": "'field(...)'"}, None),
        ("side: int = 3", {"type": "int", "value": "3"}, None),
        ("side: int = 4", {"type": "int", "value": "3"}, "defaults to 4"),
        ("side: str", {"type": "float", "value": "None"}, "is of type"),
        ("side: Optional[int] = 1", {"type": "Optional[int]", "value": "None"}, "defaults to 1"),
        ("side: list = None", {"value": "'field(...)'"}, "has no default factory"),
    ],
)
def test_fields_of_dataclasses_are_compared(
    check: Check, field: str, options: dict[str, str], said: str | None
) -> None:
    source = (
        "from dataclasses import dataclass, field\nfrom typing import *\n"
        f"@dataclass\nclass Square:\n    {field}\n"
    )
    found = check(source, entry("attribute", "side", "Square.side", **options))
    if said is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(said)


def test_the_command_counts_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shapes.txt").write_text(LISTING, encoding="utf-8")
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("0 of 4 entries hold\n")
