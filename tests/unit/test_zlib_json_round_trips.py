"""What comes back from the zlib-JSON format is what went in."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import fiddle as fdl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import serialization_targets as targets
from tests.unit.serialization_targets import (
    Access,
    Base,
    Child,
    Color,
    Fitted,
    Level,
    Mode,
    Model,
    Outer,
    Pair,
    Point,
    collect,
    needs,
    train,
)
from tests.unit.serialization_text import (
    exact,
)

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

serializer = ZlibJSONSerializer()


def round_trip(value: Any) -> Any:
    return serializer.deserialize(serializer.serialize(value))


ROUND_TRIPS: dict[str, Any] = {
    "int": 3,
    "int beyond 64 bits": 2**80,
    "bool": True,
    "float": 0.1,
    "negative zero": -0.0,
    "infinity": float("inf"),
    "nan": float("nan"),
    "none": None,
    "str": "text",
    "empty str": "",
    "str with quotes": "\"'\\\n\t\0",
    "str beyond ascii": "naïve 日本 🚀",
    "lone surrogate": "\ud800",
    "list": [1, 1.0, True, "1", None],
    "empty list": [],
    "tuple": (1, (2, ())),
    "dict": {"b": 1, "a": [2]},
    "empty dict": {},
    "dict with other keys": {1: "a", None: "b", (2, 3): "c", 2.5: "d", b"x": "e", Color.RED: "f"},
    "set": {1, "a", (2, 3)},
    "frozenset": frozenset({1, frozenset({2})}),
    "defaultdict": collections.defaultdict(list, {"k": [1]}),
    "named tuple": Pair(1, [2]),
    "slice": slice(1, None, "x"),
    "complex": 1 - 2j,
    "range": range(1, 10, 3),
    "path": pathlib.Path("/data/naïve x"),
    "relative path": pathlib.Path("../x"),
    "this directory": pathlib.Path(),
    "pure path": pathlib.PurePosixPath("/x"),
    "enum": Color.GREEN,
    "int enum": Level.HIGH,
    "str enum": Mode.FAST,
    "nested enum": Outer.Shade.DARK,
    "flag": Access.READ,
    "flags together": Access.READ | Access.RUN,
    "no flag": Access(0),
    "class": Point,
    "nested class": Outer.Inner,
    "function": train,
    "static method": Outer.fixed,
    "class method": Base.make,
    "inherited class method": Child.make,
    "int class": int,
    "object class": object,
    "list class": list,
    "class of the standard library": pathlib.Path,
    "exception class": ValueError,
}


@pytest.mark.parametrize("value", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_values_come_back_exactly(value: Any) -> None:
    assert exact(round_trip(value)) == exact(value)


@pytest.mark.parametrize("value", ROUND_TRIPS.values(), ids=ROUND_TRIPS)
def test_values_come_back_exactly_from_within_a_config(value: Any) -> None:
    back = round_trip(run.Config(Model, layers=[value], origin=value))
    assert exact(back.layers) == exact([value])
    assert exact(back.origin) == exact(value)


@pytest.mark.parametrize("name", ["class", "function", "enum", "nested class", "int class"])
def test_references_come_back_as_the_same_object(name: str) -> None:
    assert round_trip(ROUND_TRIPS[name]) is ROUND_TRIPS[name]


def test_an_inherited_class_method_stays_bound_to_the_child() -> None:
    assert round_trip(Child.make)(size=2) == ("Child", 2)


@pytest.mark.parametrize("code", range(256))
def test_every_byte_comes_back(code: int) -> None:
    assert round_trip(bytes([code])) == bytes([code])


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)), rb"\u0041", rb"\U0001F680", rb"\\u0041", rb"\u", rb"\x41", b"", b"\\"],
    ids=repr,
)
def test_bytes_come_back_whatever_they_spell(data: bytes) -> None:
    assert round_trip(data) == data


PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(st.characters())
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(), max_size=4)
        | st.sets(st.booleans() | st.binary(), max_size=3)
    ),
    max_leaves=20,
)


@given(PLAIN_VALUES)
def test_any_plain_value_comes_back(value: Any) -> None:
    assert exact(round_trip(value)) == exact(value)


@given(st.binary())
def test_any_bytes_come_back(data: bytes) -> None:
    assert round_trip(data) == data


BUILDABLES: dict[str, Any] = {
    "empty config": run.Config(Point),
    "config": run.Config(Point, x=1, y=2),
    "partial": run.Partial(train, lr=0.5),
    "argument left out": run.Partial(needs, steps=3),
    "extra keywords": run.Config(train, beta=0.9),
    "positional": run.Config(collect, 1, 2, k=3),
    "nested": run.Partial(train, model=run.Config(Model, layers=[run.Config(Point, x=1)])),
    "partial in config": run.Config(Model, origin=run.Partial(Point, x=1)),
    "class method": run.Config(Child.make, size=1),
    "nested class": run.Config(Outer.Inner, size=3),
    "dict": run.Config(dict, a=1, b=[2]),
    "dict within": run.Partial(train, model=run.Config(dict, a=1)),
    "fiddle config": fdl.Config(Point, x=1),
    "fiddle partial": fdl.Partial(train, model=fdl.ArgFactory(Point, x=1)),
    "path config": run.Config(pathlib.Path, "/x"),
    "script": run.Config(run.Script, inline="echo hi"),
    "list of buildables": [run.Config(Point, x=1), run.Partial(train)],
    "dict of buildables": {"a": run.Config(Point, x=1)},
}


@pytest.mark.parametrize("value", BUILDABLES.values(), ids=BUILDABLES)
def test_buildables_come_back(value: Any) -> None:
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "name", ["config", "partial", "extra keywords", "positional", "nested", "class method", "dict"]
)
def test_what_comes_back_builds_the_same(name: str) -> None:
    def built(buildable: Any) -> Any:
        result = fdl.build(buildable)
        return result() if isinstance(buildable, fdl.Partial) else result

    assert built(round_trip(BUILDABLES[name])) == built(BUILDABLES[name])


def test_arguments_equal_to_their_default_stay_set() -> None:
    back = round_trip(run.Config(Point, x=0))
    assert dict(back.__arguments__) == {"x": 0}


def test_arguments_keep_their_order() -> None:
    back = round_trip(run.Config(train, z=1, a=2, lr=3, model=4))
    original = run.Config(train, z=1, a=2, lr=3, model=4)
    assert list(back.__arguments__) == list(original.__arguments__)


def test_tags_come_back() -> None:
    config = run.Config(train, lr=0.5)
    fdl.add_tag(config, "lr", targets.LearningRate)
    assert fdl.get_tags(round_trip(config), "lr") == {targets.LearningRate}


def test_a_config_that_came_back_can_be_changed() -> None:
    back = round_trip(run.Config(Point, x=1))
    back.y = 5
    assert fdl.build(back) == Point(1, 5)


def test_shared_configs_stay_shared() -> None:
    point = run.Config(Point, x=1)
    back = round_trip(run.Config(Model, layers=[point, {"k": point}], origin=(point, [2])))
    assert back.layers[0] is back.layers[1]["k"] is back.origin[0]


def test_shared_containers_stay_shared() -> None:
    sizes = [1, 2]
    back = round_trip(run.Config(Model, layers=sizes, origin={"sizes": sizes}))
    assert back.layers is back.origin["sizes"]


def test_equal_configs_stay_apart() -> None:
    back = round_trip([run.Config(Point, x=1), run.Config(Point, x=1)])
    back[0].x = 9
    assert back[1].x == 1


def test_storing_does_not_change_the_config() -> None:
    config = run.Config(Model, layers=[Point(1, 2)])
    serializer.serialize(config)
    assert config.layers == [Point(1, 2)]
    assert type(config.layers[0]) is Point


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1), run.Config(Point, x=1, y=0)),
        ([Point(1)], [run.Config(Point, x=1, y=0)]),
        ({"k": Point(1)}, {"k": run.Config(Point, x=1, y=0)}),
        (
            Model(origin=Point(1)),
            run.Config(Model, layers=None, origin=run.Config(Point, x=1, y=0), name="model"),
        ),
        (
            run.Config(Model, layers=[Point(1)]),
            run.Config(Model, layers=[run.Config(Point, x=1, y=0)]),
        ),
        (Fitted(3), run.Config(Fitted, width=3)),
    ],
    ids=[
        "root",
        "in a list",
        "in a dict",
        "nested",
        "in a config",
        "computed field",
    ],
)
def test_dataclass_instances_become_configs(value: Any, expected: Any) -> None:
    assert round_trip(value) == expected


def test_a_config_made_of_a_dataclass_instance_has_all_fields_set() -> None:
    back = round_trip([Point(1)])[0]
    assert type(back) is run.Config
    assert dict(back.__arguments__) == {"x": 1, "y": 0}


def test_a_shared_dataclass_instance_becomes_one_config() -> None:
    point = Point(1)
    back = round_trip([point, point])
    assert back[0] is back[1]


def test_a_script_is_stored_as_its_config() -> None:
    back = round_trip(run.Script(inline="echo hi", env={"A": "1"}))
    assert fdl.build(back) == run.Script(inline="echo hi", env={"A": "1"})


def test_lazy_entrypoints_come_back() -> None:
    lazy = run.LazyEntrypoint("fractions.Fraction", overwrites=["numerator=3"])
    back = round_trip(lazy)
    assert type(back) is run.LazyEntrypoint
    assert back.resolve() == lazy.resolve()
