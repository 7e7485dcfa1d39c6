"""Whatever a config holds, its copies hold too."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import pickle
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import fiddle as fdl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.config_targets import (
    Box,
    Colour,
    Frozen,
    IntMode,
    Layer,
    Level,
    Mode,
    Model,
    Outer,
    gather,
    identity,
    spread,
    train,
)

from nemo_run.config import Config, Partial
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError

EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

# Cs is the category of surrogates, which no encoding of text can hold.
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
# Before 0.3.1, which is not to be had for Python 3.10, Fiddle kept this name for itself.
OWN_NAMES = ["fn_or_cls"] if sys.version_info >= (3, 11) else []
names = st.sampled_from(["a", "b", "value", "naïve", "cls", *OWN_NAMES])
flags = st.sampled_from(
    [
        Mode(0),
        Mode.READ,
        Mode.READ | Mode.RUN,
        Mode.READ | Mode.WRITE | Mode.RUN,
        IntMode.A,
        IntMode(3),
    ]
)
references = st.sampled_from(
    [Model, Outer.Inner, identity, train, Path, int, str, dict, list, bool, object, ValueError]
)
hashables = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | text
    | st.binary(max_size=6)
    | st.sampled_from([Colour.RED, Colour.GREEN, Level.LOW, Level.HIGH])
    | st.builds(PurePosixPath, text.filter(lambda value: "\0" not in value))
)
atoms = (
    hashables
    | st.floats()
    | st.builds(Path, text.filter(lambda value: "\0" not in value))
    | flags
    | references
    | st.builds(
        slice, st.none() | st.integers(), st.none() | st.integers(), st.none() | st.integers()
    )
    | st.sets(hashables, max_size=3)
    | st.frozensets(hashables, max_size=3)
)
keys = st.none() | st.booleans() | st.integers() | text | st.tuples(text, st.integers())


def buildables(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from([Config, Partial])
    keywords = st.dictionaries(names, values, max_size=3)
    return st.one_of(
        st.builds(lambda kind, kw: kind(gather, **kw), kinds, keywords),
        st.builds(lambda kind, a, b: kind(Box, value=a, other=b), kinds, values, values),
        st.builds(lambda kind, a: kind(Frozen, size=a), kinds, values),
        st.builds(lambda kind, a, b, c: kind(spread, a, b, c), kinds, values, values, values),
        st.builds(lambda kw: Config(dict, **kw), keywords),
    )


def instances(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(Box, value=values, other=values) | st.builds(Frozen, size=values)


def containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(values, max_size=3)
        | st.lists(values, max_size=3).map(tuple)
        | st.dictionaries(keys, values, max_size=3)
    )


def twice(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Hold one and the same config in two places."""
    return buildables(values).map(lambda cfg: [cfg, {"again": cfg}])


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return buildables(
        st.recursive(
            leaves,
            lambda values: containers(values) | buildables(values) | twice(values),
            max_leaves=8,
        )
    )


plain_trees = trees(atoms)
# Instances hold no configs: building does not look inside an object that is already there.
all_trees = trees(
    atoms
    | instances(
        st.recursive(atoms, lambda values: containers(values) | instances(values), max_leaves=4)
    )
)


def same(one: Any, two: Any, seen: dict[int, Any] | None = None) -> bool:
    """Tell whether two values are alike in type, content and in what is shared inside them."""
    seen = {} if seen is None else seen
    if type(one) is not type(two):
        return False
    if isinstance(one, fdl.Buildable):
        if id(one) in seen:
            return seen[id(one)] is two
        seen[id(one)] = two
        left, right = one.__arguments__, two.__arguments__
        # In any order: a copy has its arguments in the order of the signature.
        return (
            one.__fn_or_cls__ == two.__fn_or_cls__
            and left.keys() == right.keys()
            and all(same(left[name], right[name], seen) for name in left)
        )
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(two)) or (
            one == two and math.copysign(1, one) == math.copysign(1, two)
        )
    if isinstance(one, functools.partial):
        return one.func is two.func and same(
            (one.args, one.keywords), (two.args, two.keywords), seen
        )
    if isinstance(one, dict):
        return same(list(one.items()), list(two.items()), seen)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(
            same(left, right, seen) for left, right in zip(one, two, strict=True)
        )
    if isinstance(one, set | frozenset):
        return bool(one == two) and {*map(_typed, one)} == {*map(_typed, two)}
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return same(_fields(one), _fields(two), seen)
    return bool(one == two)


def _typed(value: Any) -> tuple[type, Any]:
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return type(value), str(value) if isinstance(value, float) else value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def stored(cfg: Any) -> Any:
    serializer = ZlibJSONSerializer()
    return serializer.deserialize(serializer.serialize(cfg))


COPIES: dict[str, Callable[[Any], Any]] = {
    "clone": lambda cfg: cfg.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda cfg: pickle.loads(pickle.dumps(cfg)),
    "copy": copy.copy,
}


@pytest.mark.parametrize("way", COPIES)
@given(cfg=all_trees)
@EXAMPLES
def test_a_copy_is_the_same(way: str, cfg: Any) -> None:
    again = COPIES[way](cfg)
    assert again is not cfg
    assert again == cfg
    assert cfg == again
    assert same(again, cfg)


@given(cfg=all_trees, new=atoms)
@EXAMPLES
def test_a_clone_is_independent(cfg: Any, new: Any) -> None:
    before = pickle.loads(pickle.dumps(cfg))
    _scribble(cfg.clone(), new, set())
    assert same(cfg, before)


def _scribble(value: Any, new: Any, seen: set[int]) -> None:
    """Change everything inside ``value`` that can be changed."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, fdl.Buildable):
        for name, below in list(value.__arguments__.items()):
            _scribble(below, new, seen)
            if isinstance(name, str):
                setattr(value, name, new)
    elif isinstance(value, dict):
        for below in value.values():
            _scribble(below, new, seen)
        value["new"] = new
    elif isinstance(value, list | tuple):
        for below in value:
            _scribble(below, new, seen)
        if isinstance(value, list):
            value.append(new)
    elif isinstance(value, set):
        value.add("new")
    elif isinstance(value, Box):
        _scribble(value.value, new, seen)
        _scribble(value.other, new, seen)
        value.value = new


@given(cfg=plain_trees)
@example(cfg=Config(Box, value=b"\\u0041\\U0001F600\xff"))
@example(cfg=Config(Box, value={None: 1, "a": 2, 3: 4, (5, "b"): 6}))
@example(cfg=Config(Box, value=[0.0, -0.0, math.inf, -math.inf, math.nan, 10**400]))
@example(cfg=Config(Box, value="\0\x7f\u2028\U0001f600", other={1: True, "1": 1}))
@example(cfg=Config(Box, value=(), other=[(), [], {}, set(), frozenset()]))
@example(cfg=Config(Box, value=slice(1, None, -1), other=slice(None)))
@example(cfg=Config(Box, value=Mode.READ | Mode.WRITE, other=[IntMode(3), IntMode(0), Mode(0)]))
@example(cfg=Config(Box, value=[int, Path, identity, Outer.Inner], other=Path("a/b")))
@EXAMPLES
def test_what_is_read_back_equals_what_was_stored(cfg: Any) -> None:
    again = stored(cfg)
    assert again == cfg
    assert cfg == again
    assert same(again, cfg)


@given(cfg=all_trees)
@example(cfg=Config(Box, value=[Box(value=Frozen())], other={"a": (Frozen(size=[Box()]),)}))
@EXAMPLES
def test_what_is_read_back_builds_the_same(cfg: Any) -> None:
    assert same(fdl.build(stored(cfg)), fdl.build(cfg))


@given(cfg=all_trees)
@EXAMPLES
def test_storing_leaves_the_config_as_it_was(cfg: Any) -> None:
    before = pickle.loads(pickle.dumps(cfg))
    ZlibJSONSerializer().serialize(cfg)
    assert same(cfg, before)


@given(cfg=plain_trees)
@EXAMPLES
def test_storing_again_gives_the_same_text(cfg: Any) -> None:
    serializer = ZlibJSONSerializer()
    first = serializer.serialize(cfg)
    assert serializer.serialize(cfg) == first


@pytest.mark.parametrize("way", ["clone", "deepcopy", "pickle", "stored"])
@given(shared=buildables(atoms), beside=atoms)
@EXAMPLES
def test_what_is_shared_stays_shared(way: str, shared: Any, beside: Any) -> None:
    cfg = Config(Box, value=[shared, beside], other=Config(Layer, size={"a": (shared,)}))
    again = stored(cfg) if way == "stored" else COPIES[way](cfg)
    assert again.value[0] is again.other.size["a"][0]
    built = fdl.build(again)
    assert built.value[0] is built.other.size["a"][0]


@given(one=buildables(atoms))
@EXAMPLES
def test_what_is_not_shared_stays_apart(one: Any) -> None:
    again = stored(Config(Box, value=one, other=one.clone()))
    assert again.value is not again.other
    assert again.value == again.other


@pytest.mark.parametrize(
    "value",
    [{Frozen()}, frozenset({Frozen()}), {Frozen(): 1}, {("a", Frozen()): 1}],
    ids=["set", "frozenset", "key", "part of a key"],
)
def test_an_instance_that_must_be_hashable_is_kept_or_refused_when_stored(value: Any) -> None:
    # Refusing it only when read would be too late: the job has been submitted by then.
    cfg = Config(Box, value=value)
    try:
        stored_text = ZlibJSONSerializer().serialize(cfg)
    except ConfigError:
        return
    assert fdl.build(ZlibJSONSerializer().deserialize(stored_text)) == Box(value)
