"""Reading stored text without importing anything it names."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import fiddle as fdl
import pytest
from tests.unit.serialization_targets import (
    Color,
    Model,
    Outer,
    Point,
    collect,
    train,
)
from tests.unit.serialization_text import GOLDEN_TEXTS, document, exact, wrapped

import nemo_run as run
from nemo_run.core.serialization.peek import Peek, peek
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

HERE = "tests.unit.serialization_targets"
serializer = ZlibJSONSerializer()


def seen(value: Any) -> Any:
    return peek(serializer.serialize(value))


def test_a_config_shows_its_kind_target_and_arguments() -> None:
    assert seen(run.Config(Point, x=3)) == Peek(
        kind="Config", target=f"{HERE}:Point", arguments={"x": 3}
    )


def test_a_partial_shows_its_kind() -> None:
    assert seen(run.Partial(train, lr=0.5)) == Peek(
        kind="Partial", target=f"{HERE}:train", arguments={"lr": 0.5}
    )


@pytest.mark.parametrize(
    ("buildable", "kind"),
    [
        (fdl.Config(Point, x=1), "Config"),
        (fdl.Partial(Point, x=1), "Partial"),
        (fdl.ArgFactory(Point, x=1), "ArgFactory"),
    ],
    ids=["Config", "Partial", "ArgFactory"],
)
def test_fiddles_own_buildables_are_shown_alike(buildable: Any, kind: str) -> None:
    shown = seen(buildable)
    assert shown.kind.rpartition(":")[2] == kind
    assert (shown.target, shown.arguments) == (f"{HERE}:Point", {"x": 1})


def test_nested_buildables_are_shown_too() -> None:
    inner = Peek(kind="Config", target=f"{HERE}:Point", arguments={"x": 1})
    outer = seen(run.Partial(train, model=run.Config(Point, x=1)))
    assert outer.arguments == {"model": inner}


def test_positional_arguments_are_shown_by_number() -> None:
    assert seen(run.Config(collect, "a", k="b")).arguments == {0: "a", "k": "b"}


def test_arguments_keep_their_order() -> None:
    config = run.Config(train, z=1, a=2, model=3)
    assert list(seen(config).arguments) == list(config.__arguments__)


@pytest.mark.parametrize(
    "value",
    [
        1,
        2.5,
        None,
        "text",
        [1, [2]],
        (1, (2, ())),
        {"b": 1, "a": {}},
        {(1, 2): "x", None: "y"},
        {1, 2},
        [],
    ],
    ids=repr,
)
def test_plain_data_is_shown_as_it_is(value: Any) -> None:
    assert exact(seen(value)) == exact(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Point, "Point"),
        (train, "train"),
        (Outer.Inner, "Outer.Inner"),
        (Color.RED, "Color.RED"),
    ],
    ids=["class", "function", "nested class", "enum member"],
)
def test_references_are_shown_by_name(value: Any, name: str) -> None:
    assert seen([value]) == [f"{HERE}:{name}"]


def test_shared_values_are_shown_in_every_place() -> None:
    point = run.Config(Point, x=1)
    shown = seen(run.Config(Model, layers=[point], origin=point))
    assert shown.arguments["layers"][0] == shown.arguments["origin"]


def test_what_is_shown_cannot_be_reassigned() -> None:
    shown = seen(run.Config(Point, x=3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        shown.kind = "Partial"


def test_white_space_around_the_text_is_ignored() -> None:
    assert peek(f" {serializer.serialize([1])}\n") == [1]


def test_text_of_earlier_releases_is_shown() -> None:
    shown = peek(GOLDEN_TEXTS["local executor"])
    assert (shown.kind, shown.target) == ("Config", "nemo_run.core.execution.local:LocalExecutor")
    assert shown.arguments["ntasks_per_node"] == 2
    assert shown.arguments["packager"].target == "nemo_run.core.packaging.base:Packager"


def test_a_lazy_entrypoint_is_shown_with_the_name_of_its_type() -> None:
    assert peek(GOLDEN_TEXTS["lazy entrypoint"]).kind.rpartition(":")[2] == "LazyEntrypoint"


def renamed_module(text: str, module: str) -> str:
    return wrapped(json.dumps(document(text)).replace(HERE, module))


def test_a_target_that_does_not_exist_is_shown() -> None:
    text = renamed_module(serializer.serialize(run.Config(Point, x=[Color.RED])), "no_such.module")
    assert peek(text) == Peek(
        kind="Config", target="no_such.module:Point", arguments={"x": ["no_such.module:Color.RED"]}
    )


def test_a_kind_of_config_that_does_not_exist_is_no_obstacle() -> None:
    text = serializer.serialize([run.Config(Point, x=1), 7])
    text = wrapped(json.dumps(document(text)).replace("nemo_run.config", "not.installed"))
    shown = peek(text)
    assert shown[0].target == f"{HERE}:Point"
    assert shown[1] == 7


def test_the_modules_named_are_not_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap_for_peek.py"
    trap.write_text("open('sprung', 'w').close()\nclass Point: ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = renamed_module(serializer.serialize(run.Config(Point, x=3)), "trap_for_peek")
    assert peek(text).target == "trap_for_peek:Point"
    assert not (tmp_path / "sprung").exists()
    assert "trap_for_peek" not in sys.modules


def test_peeking_imports_nothing_at_all() -> None:
    code = (
        "import sys\n"
        "from nemo_run.core.serialization.peek import peek\n"
        "before = set(sys.modules)\n"
        f"peek({GOLDEN_TEXTS['local executor']!r})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("text", ["", "not stored text", "AAAA"])
def test_text_of_another_kind_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        peek(text)
