"""Configs as YAML: what is written, what is read, and that both agree."""

from __future__ import annotations

import argparse
import io
import pathlib
import string
import subprocess
import sys
import textwrap
from typing import Any

import fiddle as fdl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serialization_targets import (
    Access,
    Child,
    Color,
    Level,
    Mode,
    Model,
    Outer,
    Plain,
    Point,
    TwoWords,
    annotated,
    collect,
    needs,
    train,
)
from tests.unit.serialization_text import exact
from yaml.representer import RepresenterError

import nemo_run as run
from nemo_run.core.serialization.yaml import YamlSerializer

HERE = "tests.unit.serialization_targets"
serializer = YamlSerializer()


def dedented(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def round_trip(value: Any) -> Any:
    return serializer.deserialize(serializer.serialize(value))


def test_a_config_is_a_mapping_with_a_target() -> None:
    assert serializer.serialize(run.Config(Point, y=2, x=1)) == dedented(f"""
        _target_: {HERE}.Point
        x: 1
        y: 2
    """)


def test_a_partial_says_so() -> None:
    assert serializer.serialize(run.Partial(train, lr=0.5)) == dedented(f"""
        _partial_: true
        _target_: {HERE}.train
        lr: 0.5
    """)


def test_only_set_arguments_are_written() -> None:
    assert serializer.serialize(run.Config(Point)) == f"_target_: {HERE}.Point\n"


def test_nested_buildables_are_nested_mappings() -> None:
    task = run.Partial(train, model=run.Config(Model, origin=run.Partial(Point, x=1)))
    assert serializer.serialize(task) == dedented(f"""
        _partial_: true
        _target_: {HERE}.train
        model:
          _target_: {HERE}.Model
          origin:
            _partial_: true
            _target_: {HERE}.Point
            x: 1
    """)


def test_containers_are_written_in_block_style_with_sorted_keys() -> None:
    config = run.Config(train, z={"b": [1, 2], "a": None}, c=[run.Config(Point, x=1)])
    assert serializer.serialize(config) == dedented(f"""
        _target_: {HERE}.train
        c:
        - _target_: {HERE}.Point
          x: 1
        z:
          a: null
          b:
          - 1
          - 2
    """)


def test_a_list_of_configs_may_be_the_root() -> None:
    assert serializer.serialize([run.Config(Point, x=1)]) == dedented(f"""
        - _target_: {HERE}.Point
          x: 1
    """)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Point, "Point"),
        (train, "train"),
        (Outer.Inner, "Outer.Inner"),
        (Child.make, "Child.make"),
    ],
    ids=["class", "function", "nested class", "inherited class method"],
)
def test_functions_and_classes_are_targets_that_are_not_called(value: Any, name: str) -> None:
    assert serializer.serialize(run.Config(TwoWords, value=value)) == dedented(f"""
        _target_: {HERE}.TwoWords
        value:
          _call_: false
          _target_: {HERE}.{name}
    """)


def test_sets_are_yaml_sets() -> None:
    assert serializer.serialize(run.Config(TwoWords, value={1, 2})) == dedented(f"""
        _target_: {HERE}.TwoWords
        value: !!set
          1: null
          2: null
    """)


def test_shared_configs_are_written_out_each_time() -> None:
    point = run.Config(Point, x=1)
    text = serializer.serialize(run.Config(Model, layers=point, origin=point))
    assert text.count("x: 1") == 2
    assert "&" not in text
    assert "*" not in text


def test_positional_arguments_have_integer_keys() -> None:
    text = serializer.serialize(run.Config(collect, "a", "b", k="c"))
    assert yaml.safe_load(text) == {0: "a", 1: "b", "_target_": f"{HERE}.collect", "k": "c"}


def test_dict_configs_are_written_with_builtin_dict_as_target() -> None:
    assert serializer.serialize(run.Config(dict, a=1)) == "_target_: builtins.dict\na: 1\n"


def test_an_argument_named_like_the_callable_is_refused() -> None:
    with pytest.raises(ValueError, match="__fn_or_cls__"):
        serializer.serialize(run.Config(collect, __fn_or_cls__=1))


@pytest.mark.parametrize(
    "value",
    [Plain(), iter([1]), object(), io.StringIO(), fdl.ArgFactory(Point)],
    ids=["instance", "iterator", "object", "file", "buildable of another kind"],
)
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(RepresenterError):
        serializer.serialize(run.Config(TwoWords, value=value))


def test_text_is_written_to_a_stream_if_one_is_given() -> None:
    stream = io.StringIO()
    serializer.serialize(run.Config(Point, x=1), stream=stream)
    assert stream.getvalue() == serializer.serialize(run.Config(Point, x=1))


def test_a_stream_may_be_given_by_position() -> None:
    stream = io.StringIO()
    serializer.serialize(run.Config(Point, x=1), stream)
    assert stream.getvalue() == serializer.serialize(run.Config(Point, x=1))


def test_what_is_written_can_be_loaded_by_any_safe_loader() -> None:
    task = run.Partial(train, model=run.Config(Point, x=1), tags=["a"], note=None, cls=Point)
    assert yaml.safe_load(serializer.serialize(task)) == {
        "_partial_": True,
        "_target_": f"{HERE}.train",
        "model": {"_target_": f"{HERE}.Point", "x": 1},
        "tags": ["a"],
        "note": None,
        "cls": {"_target_": f"{HERE}.Point", "_call_": False},
    }


def test_a_lazy_entrypoint_is_resolved_first() -> None:
    lazy = run.LazyEntrypoint("fractions.Fraction", overwrites=["numerator=3"])
    assert serializer.serialize(lazy) == dedented("""
        _partial_: true
        _target_: fractions.Fraction
        numerator: 3
    """)


TORCH = """
class dtype:
    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"

float32 = dtype("float32")
"""


def test_a_torch_dtype_is_a_target_that_is_not_called(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    code = """
        import argparse, torch
        import nemo_run as run
        from nemo_run.core.serialization.yaml import YamlSerializer
        config = run.Config(argparse.Namespace, precision=torch.float32)
        text = YamlSerializer().serialize(config)
        assert YamlSerializer().deserialize(text).precision is torch.float32
        print(text, end="")
    """
    done = subprocess.run(
        [sys.executable, "-c", dedented(code)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stdout == dedented("""
        _target_: argparse.Namespace
        precision:
          _call_: false
          _target_: torch.float32
    """)


@pytest.mark.parametrize(
    "value", [lambda: 0, train, Point, run.Config(Point)], ids=["lambda", "def", "class", "config"]
)
def test_the_users_own_yaml_is_left_alone(value: Any) -> None:
    serializer.serialize(run.Config(TwoWords, value=Point))
    with pytest.raises(RepresenterError):
        yaml.safe_dump({"value": value})


def test_the_users_own_tuples_are_still_lists() -> None:
    serializer.serialize(run.Config(TwoWords, value=(1, 2)))
    assert yaml.safe_dump((1, 2)) == "- 1\n- 2\n"


BUILDABLES: dict[str, Any] = {
    "config": run.Config(Point, x=1),
    "partial": run.Partial(train, lr=0.5),
    "argument left out": run.Partial(needs, steps=1),
    "nested": run.Partial(train, model=run.Config(Model, origin=run.Partial(Point, x=1))),
    "list of configs": run.Config(Model, layers=[run.Config(Point, x=1), run.Config(Point, x=2)]),
    "dict of configs": run.Config(Model, layers={"a": run.Config(Point, x=1), "b": {"c": 1}}),
    "tuple of configs": run.Config(Model, layers=(run.Config(Point, x=1), 2)),
    "positional": run.Config(collect, "a", run.Config(Point, x=1), k=2),
    "class method": run.Config(Child.make, size=1),
    "nested class": run.Config(Outer.Inner, size=2),
    "dict config": run.Config(dict, a=1, b=run.Config(Point, x=1)),
    "script": run.Config(run.Script, inline="echo 'hi'\nexit 1\n", env={"A": "1"}),
    "executor": run.Config(run.LocalExecutor, ntasks_per_node=2, launcher="torchrun"),
    "path config": run.Config(pathlib.Path, "/x"),
}


@pytest.mark.parametrize("value", BUILDABLES.values(), ids=BUILDABLES)
def test_buildables_come_back(value: Any) -> None:
    back = round_trip(value)
    assert back == value
    assert type(back) is type(value)


def test_arguments_equal_to_their_default_stay_set() -> None:
    assert dict(round_trip(run.Config(Point, x=0)).__arguments__) == {"x": 0}


VALUES: dict[str, Any] = {
    "null": None,
    "int": 5,
    "bool": True,
    "float": 1e-05,
    "infinity": float("-inf"),
    "nan": float("nan"),
    "digits": "5",
    "float as text": "1e5",
    "null as text": "null",
    "yes as text": "yes",
    "tilde": "~",
    "date as text": "2024-01-31",
    "list as text": "[1, 2]",
    "expression": "Point(x=1)",
    "import path": f"{HERE}.Point",
    "interpolation": "${oc.env:HOME}",
    "missing marker": "???",
    "empty text": "",
    "lines": "a\n  b\n\n",
    "trailing blanks": "a  ",
    "colon": "a: b # c",
    "beyond ascii": "naïve 日本 🚀",
    "next line character": "a\x85b",
    "line separator": "a\u2028b",
    "byte order mark": "\ufeffa",
    "control characters": "\x00\x1b\x7f",
    "bytes": b"\x00\xff",
    "list": [1, [2, []]],
    "tuple": (1, (2, ()), [3]),
    "empty tuple": (),
    "list of tuples": [(1, 2), (3, 4)],
    "dict": {"a": {"b": {}}},
    "dict with other keys": {1: "a", None: "b", 2.5: "d"},
    "dict with a tuple as key": {(1, 2): "x"},
    "set": {1, "a"},
    "empty set": set(),
    "class": Point,
    "function": train,
    "nested class": Outer.Inner,
    "inherited class method": Child.make,
    "builtin class": int,
    "references in a list": [Point, train],
    "enum": Color.GREEN,
    "int enum": Level.HIGH,
    "str enum": Mode.FAST,
    "nested enum": Outer.Shade.DARK,
    "flags together": Access.READ | Access.RUN,
    "enum in a tuple": (Color.RED, [Color.GREEN]),
    "path": pathlib.Path("/data/x"),
    "path in a dict": {"p": pathlib.Path("rel")},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_of_unannotated_parameters_come_back_exactly(value: Any) -> None:
    assert exact(round_trip(run.Config(TwoWords, value=value)).value) == exact(value)


@pytest.mark.parametrize(
    ("name", "value"), [("steps", "5"), ("name", 5), ("rate", 1), ("model", None), ("name", None)]
)
def test_values_are_not_bent_to_the_annotation(name: str, value: Any) -> None:
    back = round_trip(run.Config(annotated, **{name: value}))
    assert exact(getattr(back, name)) == exact(value)


def test_fields_with_the_same_target_are_kept_apart() -> None:
    back = round_trip(
        run.Config(Model, layers=run.Config(Point, x=1), origin=run.Config(Point, x=2))
    )
    assert back.layers == run.Config(Point, x=1)
    assert back.origin == run.Config(Point, x=2)
    back.layers.y = 9
    assert back.origin.y == 0


def test_equal_configs_are_kept_apart_across_calls() -> None:
    text = serializer.serialize(run.Config(Model, origin=run.Config(Point, x=1)))
    first, second = serializer.deserialize(text), serializer.deserialize(text)
    first.origin.x = 9
    assert second.origin.x == 1


def test_reading_builds_nothing() -> None:
    back = round_trip(run.Config(Model, origin=run.Config(needs, steps=1)))
    assert isinstance(back.origin, run.Config)


PLAIN_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec="utf-8"))
    | st.text(string.printable),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(string.ascii_letters, min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN_VALUES)
def test_any_plain_value_comes_back(value: Any) -> None:
    back = round_trip(run.Config(TwoWords, value=value)).value
    assert exact(_sorted(back)) == exact(_sorted(value))


def _sorted(value: Any) -> Any:
    """Keys are written sorted, so their order is not kept."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value)(_sorted(item) for item in value)
    return value


def test_a_target_is_needed() -> None:
    with pytest.raises(ValueError, match="_target_"):
        serializer.deserialize("x: 1\n")


@pytest.mark.parametrize(("flag", "kind"), [("true", run.Partial), ("false", run.Config)])
def test_the_partial_key_selects_the_kind(flag: str, kind: Any) -> None:
    back = serializer.deserialize(f"_target_: {HERE}.train\n_partial_: {flag}\nlr: 0.5\n")
    assert back == kind(train, lr=0.5)
    assert type(back) is kind


def test_an_unknown_argument_is_refused_by_name() -> None:
    with pytest.raises((TypeError, ValueError, AttributeError), match="wdith"):
        serializer.deserialize(f"_target_: {HERE}.Point\nwdith: 3\n")


@pytest.mark.parametrize("target", ["no_such_package.Thing", f"{HERE}.NoSuchThing"])
def test_a_target_that_cannot_be_imported_is_refused_by_name(target: str) -> None:
    with pytest.raises((ImportError, ValueError), match=target.rpartition(".")[2]):
        serializer.deserialize(f"_target_: {target}\n")


def test_yaml_that_would_run_code_is_refused(tmp_path: pathlib.Path) -> None:
    trap = tmp_path / "sprung"
    text = f"_target_: {HERE}.Point\nx: !!python/object/apply:pathlib.Path.touch [{trap}]\n"
    with pytest.raises((yaml.YAMLError, ValueError)):
        serializer.deserialize(text)
    assert not trap.exists()


WRITTEN_BY_0_11_1 = dedented(r"""
    _partial_: true
    _target_: argparse.Namespace
    b: !!binary |
      YWJj
    cls:
      _call_: false
      _target_: argparse.ArgumentParser
    d:
      1: a
      k:
      - {}
    digits: '5'
    fn:
      _call_: false
      _target_: argparse.Namespace.__init__
    inf: .inf
    layers:
    - _target_: argparse.Namespace
      x: 1
    - _target_: argparse.Namespace
      x: 2
    lr: 0.5
    net:
      _target_: argparse.Namespace
      'on': null
      width: 64
    nothing: null
    part:
      _partial_: true
      _target_: argparse.Namespace
      z: 1
    s: !!set
      1: null
      2: null
    small: 1.0e-05
    tags:
    - a
    - - b
    text: "\xE9: x\nline"
""")


def test_yaml_of_earlier_releases_is_read() -> None:
    namespace = argparse.Namespace
    assert serializer.deserialize(WRITTEN_BY_0_11_1) == run.Partial(
        namespace,
        b=b"abc",
        cls=argparse.ArgumentParser,
        d={1: "a", "k": [{}]},
        digits="5",
        fn=namespace.__init__,
        inf=float("inf"),
        layers=[run.Config(namespace, x=1), run.Config(namespace, x=2)],
        lr=0.5,
        net=run.Config(namespace, on=None, width=64),
        nothing=None,
        part=run.Partial(namespace, z=1),
        s={1, 2},
        small=1e-05,
        tags=["a", ["b"]],
        text="é: x\nline",
    )


def test_yaml_of_earlier_releases_is_written_the_same_way() -> None:
    written = serializer.serialize(serializer.deserialize(WRITTEN_BY_0_11_1))
    assert yaml.safe_load(written) == yaml.safe_load(WRITTEN_BY_0_11_1)


def test_positional_arguments_of_earlier_releases_are_read() -> None:
    text = "0: /data\n1: x\n_target_: pathlib.PurePosixPath\n"
    back = serializer.deserialize(text)
    assert back == run.Config(pathlib.PurePosixPath, "/data", "x")
    assert fdl.build(back) == pathlib.PurePosixPath("/data/x")


def test_anchors_of_earlier_releases_are_read() -> None:
    text = "_target_: argparse.Namespace\na: &id001\n- 1\n- 2\nb: *id001\n"
    assert serializer.deserialize(text) == run.Config(argparse.Namespace, a=[1, 2], b=[1, 2])


def test_an_executor_of_an_earlier_release_is_read() -> None:
    text = dedented("""
        _target_: nemo_run.core.execution.local.LocalExecutor
        env_vars: {}
        experiment_id: null
        job_dir: ''
        launcher:
          _target_: nemo_run.core.execution.launcher.Torchrun
          nsys_profile: false
          rdzv_backend: c10d
          rdzv_port: 29500
        nodes: 1
        ntasks_per_node: 2
        packager:
          _target_: nemo_run.core.packaging.base.Packager
          debug: false
          symlink_from_remote_dir: null
        retries: 0
    """)
    executor = fdl.build(serializer.deserialize(text))
    assert isinstance(executor, run.LocalExecutor)
    assert executor.ntasks_per_node == 2
    assert isinstance(executor.launcher, run.Torchrun)


def test_a_mapping_without_a_target_stays_a_dict() -> None:
    back = serializer.deserialize(f"_target_: {HERE}.TwoWords\nvalue:\n  b: 1\n  a: 2\n")
    assert exact(back.value) == exact({"b": 1, "a": 2})
