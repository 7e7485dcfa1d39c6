"""Imports that give placeholders."""

# mypy: disable-error-code="import-not-found, attr-defined"

from __future__ import annotations

import builtins
import contextlib
import sys
from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.cli.lazy import LazyModule, import_module

HERE = "tests.cli.parsing_targets"


def test_imports_in_the_block_give_placeholders() -> None:
    with run.lazy_imports():
        import nowhere.at.all
        import nowhere.else_ as renamed
        from nowhere.inside import thing
    assert isinstance(nowhere, LazyModule)
    assert nowhere.at.all.name == "nowhere.at.all"
    assert renamed.name == "nowhere.else_"
    assert thing.name == "nowhere.inside.thing"
    assert "nowhere" not in sys.modules


def test_attributes_are_lazy_and_calling_one_calls_the_real_thing() -> None:
    with run.lazy_imports():
        import fractions as lazy_fractions
        from math import sqrt
    assert isinstance(lazy_fractions, LazyModule)
    assert lazy_fractions.Fraction(1, 2) * 2 == 1
    assert lazy_fractions.Fraction.from_float(0.5).denominator == 2
    assert sqrt(4) == 2


def test_calling_what_is_not_there_says_so() -> None:
    with run.lazy_imports():
        from math import no_such_function

        from nowhere import thing
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        thing()
    with pytest.raises(AttributeError, match="no_such_function"):
        no_such_function()


def test_importing_is_as_before_after_the_block() -> None:
    before = builtins.__import__
    with contextlib.suppress(RuntimeError), run.lazy_imports():
        raise RuntimeError
    assert builtins.__import__ is before
    with pytest.raises(ModuleNotFoundError):
        import nowhere.at.all  # noqa: F401


def test_blocks_may_overlap() -> None:
    before = builtins.__import__
    outer, inner = run.lazy_imports(), run.lazy_imports()
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    import json

    assert isinstance(json, LazyModule)
    inner.__exit__(None, None, None)
    assert builtins.__import__ is before


def test_relative_imports_cannot_be_lazy() -> None:
    with pytest.raises(ImportError, match="Relative imports"), run.lazy_imports():
        from . import parsing_targets  # noqa: F401


def test_star_imports_cannot_be_lazy() -> None:
    code = "import nemo_run as run\nwith run.lazy_imports():\n    from math import *\n"
    with pytest.raises(ImportError, match=r"import \*"):
        exec(code, {"__name__": "made_up"})


def test_what_works_is_imported_for_real_where_that_is_asked_for() -> None:
    with run.lazy_imports(fallback_to_lazy=True):
        import fractions

        import nowhere
    assert not isinstance(fractions, LazyModule)
    assert isinstance(nowhere, LazyModule)


def test_modules_imported_meanwhile_get_real_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_others.py").write_text(
        "import json\ntry:\n    import nowhere\nexcept ImportError:\n    nowhere = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with run.lazy_imports(fallback_to_lazy=True):
        import needs_others
    assert needs_others.nowhere is None
    assert needs_others.json.dumps([1]) == "[1]"


def test_a_placeholder_can_be_shown() -> None:
    assert repr(LazyModule("a.b")) == "<lazy module 'a.b'>"
    assert repr(LazyModule("a").b.c) == "<lazy module 'a.b.c'>"
    assert not hasattr(LazyModule("a"), "__wrapped__")


def test_anything_can_be_imported_by_its_dotted_name() -> None:
    assert import_module(HERE).Net is import_module(f"{HERE}.Net")
    assert import_module(f"{HERE}.Color.RED").value == "red"
    assert import_module("os.path.join")("a", "b") == "a/b"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("nowhere", ModuleNotFoundError),
        ("nowhere.thing", ModuleNotFoundError),
        (f"{HERE}.absent", AttributeError),
        (f"{HERE}.Net.nothing", AttributeError),
        ("", ModuleNotFoundError),
        ("a..b", ModuleNotFoundError),
        ("not a name", ModuleNotFoundError),
    ],
)
def test_a_name_of_nothing_is_an_error(path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        import_module(path)


def test_a_module_that_lacks_something_says_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking.py").write_text("import nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="'nowhere'"):
        import_module("lacking.thing")
