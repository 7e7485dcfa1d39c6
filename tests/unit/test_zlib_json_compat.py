"""Stored text is understood by fiddle and by earlier releases, and theirs by us."""

from __future__ import annotations

import argparse
import collections
import datetime
import fractions
import http
import importlib.metadata
import json
import pathlib
import re
from typing import Any

import fiddle as fdl
import pytest
from fiddle._src.experimental.serialization import dump_json, load_json
from hypothesis import given
from hypothesis import strategies as st
from tests.unit import serialization_targets as targets
from tests.unit.serialization_targets import (
    Access,
    Base,
    Child,
    Color,
    Level,
    Model,
    Outer,
    Pair,
    Point,
    collect,
    needs,
    train,
)
from tests.unit.serialization_text import (
    GOLDEN_TEXTS,
    document,
    exact,
    expanded,
    unwrapped,
    wrapped,
)

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

serializer = ZlibJSONSerializer()
Namespace = argparse.Namespace

SHARED = run.Config(Point, x=1)

# All of these fiddle can store by itself.
BUILDABLES: dict[str, Any] = {
    "config": run.Config(Point, x=1),
    "partial": run.Partial(train, lr=0.5, extra=1),
    "argument left out": run.Partial(needs, steps=1),
    "positional": run.Config(collect, 1, 2, k=3),
    "nested": run.Partial(train, model=run.Config(Model, layers=[run.Config(Point, x=1)])),
    "shared": run.Config(Model, layers=[SHARED, SHARED], origin=SHARED),
    "fiddle": fdl.Config(Model, origin=fdl.Partial(Point, x=1), layers=fdl.ArgFactory(Point)),
    "containers": run.Config(
        Model,
        layers=[(1, ()), {"k": {1, 2}}, frozenset({"a"}), Pair(1, 2), [], {}],
        origin=collections.defaultdict(list, {(1, 2): [None, True, 1.5]}),
    ),
    "references": run.Config(
        Model, layers=[Color.RED, Level.LOW, Access.READ, Outer.Shade.DARK], origin=Outer.Inner
    ),
    "list of buildables": [run.Config(Point, x=1), run.Partial(train)],
    "path config": run.Config(pathlib.Path, "/x"),
    "script": run.Config(run.Script, inline="echo hi", env={"A": "1"}),
    "executor": run.Config(run.LocalExecutor, ntasks_per_node=2, launcher="torchrun"),
}

if importlib.metadata.version("fiddle") != "0.3.0":  # which knows neither
    BUILDABLES["class method"] = run.Config(Base.make, size=1)
    BUILDABLES["inherited class method"] = run.Config(Child.make, size=1)
    BUILDABLES["slice"] = run.Config(Model, layers=slice(1, 2))


@pytest.mark.parametrize("value", BUILDABLES.values(), ids=BUILDABLES)
def test_fiddle_reads_what_we_write(value: Any) -> None:
    back = load_json(unwrapped(serializer.serialize(value)))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", BUILDABLES.values(), ids=BUILDABLES)
def test_we_read_what_fiddle_writes(value: Any) -> None:
    back = serializer.deserialize(wrapped(dump_json(value)))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("value", BUILDABLES.values(), ids=BUILDABLES)
def test_our_document_is_the_one_fiddle_writes(value: Any) -> None:
    # Fiddle names the private module that newer Pythons define paths in; older ones lack it.
    theirs = dump_json(value).replace("pathlib._local", "pathlib")
    assert expanded(document(serializer.serialize(value))) == expanded(json.loads(theirs))


def test_sharing_survives_fiddle() -> None:
    back = load_json(unwrapped(serializer.serialize(BUILDABLES["shared"])))
    assert back.layers[0] is back.layers[1] is back.origin


def test_tags_survive_fiddle() -> None:
    config = run.Config(train, lr=0.5)
    fdl.add_tag(config, "lr", targets.LearningRate)
    there = load_json(unwrapped(serializer.serialize(config)))
    back = serializer.deserialize(wrapped(dump_json(config)))
    for read in (there, back):
        assert fdl.get_tags(read, "lr") == {targets.LearningRate}


@pytest.mark.parametrize("path", ["/data/x", ".", "naïve dir/x"])
def test_fiddle_reads_our_paths_as_paths(path: str) -> None:
    back = load_json(unwrapped(serializer.serialize(run.Config(Model, origin=pathlib.Path(path)))))
    assert back.origin == pathlib.Path(path)
    assert type(back.origin) is type(pathlib.Path())


@pytest.mark.parametrize("data", [bytes(range(256)), rb"\u0041", rb"\\u0041", b"", b"\\"], ids=repr)
def test_fiddle_reads_our_bytes(data: bytes) -> None:
    assert load_json(unwrapped(serializer.serialize(data))) == data


def test_we_read_bytes_that_fiddle_wrote_as_escapes() -> None:
    data = rb"\u0100"  # fiddle stores the one character that this spells
    assert "\\\\u" not in dump_json(data)
    assert serializer.deserialize(wrapped(dump_json(data))) == data


def test_fiddle_reads_a_config_with_many_paths() -> None:
    back = load_json(unwrapped(serializer.serialize([SHARED] * 100)))
    assert back == [SHARED] * 100


def test_dataclass_instances_arrive_as_configs_in_fiddle() -> None:
    back = load_json(unwrapped(serializer.serialize(run.Config(Model, layers=[Point(1)]))))
    assert back.layers == [run.Config(Point, x=1, y=0)]


PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=15,
)


@given(PLAIN_VALUES)
def test_fiddle_reads_any_plain_value(value: Any) -> None:
    assert exact(load_json(unwrapped(serializer.serialize(value)))) == exact(value)


@given(PLAIN_VALUES)
def test_we_read_any_plain_value_of_fiddle(value: Any) -> None:
    assert exact(serializer.deserialize(wrapped(dump_json(value)))) == exact(value)


def golden(name: str) -> Any:
    return serializer.deserialize(GOLDEN_TEXTS[name])


EARLIER: dict[str, Any] = {
    "config": run.Config(fractions.Fraction, numerator=1, denominator=3),
    "partial": run.Partial(
        Namespace, lr=0.5, net=run.Config(Namespace, width=64), tags=["a", ("b",)]
    ),
    "positional": run.Config(pathlib.PurePosixPath, "/data", "x"),
    "builtin target": run.Config(datetime.timedelta, days=1, hours=2),
    "containers": {
        "list": [1, 2.5, True, None, "é"],
        ("tuple", 1): (),
        "dict": {},
        "set": {1, 2},
        "frozenset": frozenset({"x"}),
        "slice": slice(1, None, 2),
        "default": collections.defaultdict(list, {"k": [1]}),
    },
    "bytes": run.Config(Namespace, data=b"\x00\xff\\x plain"),
    "not finite": [float("inf"), -float("inf")],
    "references": run.Config(
        Namespace,
        cls=fractions.Fraction,
        method=fractions.Fraction.from_float,
        fn=Namespace,
        status=http.HTTPStatus.OK,
        flag=re.IGNORECASE,
    ),
    "fiddle": fdl.Config(
        Namespace, a=fdl.Partial(Namespace, b=1), c=fdl.ArgFactory(Namespace, d=2)
    ),
    "script file": run.Config(
        run.Script, "train.py", args=["--lr", "0.1"], entrypoint="python", m=False
    ),
    "local executor config": run.Config(
        run.LocalExecutor, launcher="torchrun", packager=run.Config(run.Packager)
    ),
}


@pytest.mark.parametrize("name", EARLIER)
def test_text_of_earlier_releases_is_read(name: str) -> None:
    assert golden(name) == EARLIER[name]


@pytest.mark.parametrize("name", EARLIER)
def test_our_document_is_the_one_earlier_releases_wrote(name: str) -> None:
    ours, theirs = serializer.serialize(EARLIER[name]), GOLDEN_TEXTS[name]
    assert expanded(document(ours)) == expanded(document(theirs))


def test_sharing_in_earlier_text_is_kept() -> None:
    first, second, third = golden("shared")
    assert first is second
    assert first is not third
    assert first == third == run.Config(Namespace, a=1)


def test_a_script_of_an_earlier_release_builds() -> None:
    assert fdl.build(golden("script")) == run.Script(inline="echo hi", env={"A": "1"})


def test_an_executor_of_an_earlier_release_builds() -> None:
    executor = fdl.build(golden("local executor"))
    assert isinstance(executor, run.LocalExecutor)
    assert executor.ntasks_per_node == 2
    assert executor.env_vars == {"A": "1"}
    assert isinstance(executor.launcher, run.Torchrun)
    assert executor.launcher.rdzv_port == 29500
    assert isinstance(executor.packager, run.Packager)


def test_an_executor_of_an_earlier_release_is_written_back_with_its_fields() -> None:
    doc = document(serializer.serialize(golden("local executor")))
    before = document(GOLDEN_TEXTS["local executor"])
    for name in ("tuple_1", "tuple_2", "tuple_4"):
        assert doc["objects"][name] == before["objects"][name]


@pytest.mark.parametrize("name", ["lazy entrypoint", "lazy with arguments"])
def test_lazy_entrypoints_of_earlier_releases_are_read(name: str) -> None:
    lazy = golden(name)
    assert type(lazy) is run.LazyEntrypoint
    assert lazy.resolve().__fn_or_cls__ is fractions.Fraction
