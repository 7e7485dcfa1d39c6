"""What cannot be stored or may not be read, and what the errors say."""

from __future__ import annotations

import decimal
import functools
import io
import pathlib
import sys
import threading
import typing
from collections.abc import Callable
from typing import Any

import pytest
from fiddle.experimental.serialization import (
    DefaultPyrefPolicy,
    PyrefPolicy,
    PyrefPolicyError,
    UnserializableValueError,
)
from tests.unit import serialization_targets as targets
from tests.unit.serialization_targets import Base, Color, Model, Plain, Point, train
from tests.unit.serialization_text import pyref, with_root

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError, UnserializableError

serializer = ZlibJSONSerializer()

UNSERIALIZABLE: dict[str, Callable[[], Any]] = {
    "lambda": lambda: lambda: 0,
    "lambda with a name": lambda: targets.anonymous,
    "local function": targets.local_function,
    "functools.partial": lambda: functools.partial(train, lr=1),
    "open file": io.StringIO,
    "generator": lambda: (n for n in range(3)),
    "iterator": lambda: iter([1]),
    "instance": Plain,
    "bound method of an instance": lambda: Base().method,
    "decimal": lambda: decimal.Decimal("1.5"),
    "lock": threading.Lock,
    "typing generic": lambda: typing.List[int],  # noqa: UP006 - the old spelling is its own type
    "builtin generic": lambda: list[int],
    "union": lambda: int | str,
    "type variable": lambda: typing.TypeVar("T"),
    "module": lambda: sys,
    "built-in function": lambda: len,
    "function that is not what its name leads to": lambda: targets.impostor,
    "str subclass": lambda: type("Name", (str,), {})("x"),
    "local class": lambda: type("Local", (), {}),
}


@pytest.fixture(params=UNSERIALIZABLE.values(), ids=list(UNSERIALIZABLE))
def unserializable(request: pytest.FixtureRequest) -> Any:
    return request.param()


def refusal(value: Any) -> UnserializableError:
    with pytest.raises(UnserializableError) as caught:
        serializer.serialize(value)
    return caught.value


def test_what_cannot_travel_is_refused(unserializable: Any) -> None:
    error = refusal(unserializable)
    assert error.value is unserializable
    assert error.path == "<root>"


def test_the_refusal_names_the_place(unserializable: Any) -> None:
    config = run.Config(Model, layers=[1, {"k": unserializable}])
    error = refusal(config)
    assert error.value is unserializable
    assert error.path == "<root>.layers[1]['k']"
    assert "<root>.layers[1]['k']" in str(error)


def test_the_refusal_can_be_caught_as_before(unserializable: Any) -> None:
    with pytest.raises(UnserializableValueError):
        serializer.serialize(unserializable)


def test_the_refusal_is_one_of_our_errors() -> None:
    error = refusal(lambda: 0)
    assert isinstance(error, ConfigError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (run.Config(Model, origin=run.Config(Model, layers=[Plain()])), "<root>.origin.layers[0]"),
        (run.Partial(train, model=(1, Plain())), "<root>.model[1]"),
        ([run.Config(Point, x=Plain())], "<root>[0].x"),
        ({"a b": Plain()}, "<root>['a b']"),
        (run.Config(Model, origin=Model(layers=Plain())), "<root>.origin.layers"),
        ([Model(layers=Plain())], "<root>[0].layers"),
        (run.Config(targets.collect, 1, Plain()), "<root>[1]"),
    ],
    ids=["config", "tuple", "list", "dict", "dataclass argument", "dataclass", "positional"],
)
def test_the_place_is_written_as_the_user_would_reach_it(config: Any, path: str) -> None:
    assert refusal(config).path == path


def test_a_value_in_two_places_is_named_by_the_first() -> None:
    thing = Plain()
    assert refusal(run.Config(Model, layers=thing, origin=thing)).path == "<root>.layers"


def test_a_callable_that_cannot_travel_is_refused_too() -> None:
    error = refusal(run.Config(Model, origin=run.Partial(lambda x: x, x=1)))
    assert error.path.startswith("<root>.origin")


def test_a_dict_key_that_cannot_travel_is_refused() -> None:
    key = Plain()
    error = refusal(run.Config(Model, layers={key: 1}))
    assert error.value is key
    assert error.path.startswith("<root>.layers")


def test_a_set_element_that_cannot_travel_is_refused() -> None:
    element = Plain()
    error = refusal([{element}])
    assert error.value is element
    assert error.path == "<root>[0][<set element>]"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (lambda: 0, "module"),
        (targets.local_function(), "module"),
        (functools.partial(train, lr=1), "run.Partial"),
        (Plain(), "run.Config"),
    ],
    ids=["lambda", "local function", "functools.partial", "instance"],
)
def test_the_refusal_says_what_to_do(value: Any, advice: str) -> None:
    assert advice in str(refusal([value]))


@pytest.mark.parametrize(
    "name", ["typing generic", "builtin generic", "union", "type variable", "generator", "module"]
)
def test_the_refusal_does_not_suggest_a_config_where_none_can_help(name: str) -> None:
    assert "run.Config(" not in str(refusal(UNSERIALIZABLE[name]()))


def test_the_refusal_shows_the_value_and_its_type() -> None:
    message = str(refusal([decimal.Decimal("1.5")]))
    assert "Decimal('1.5')" in message


def test_a_long_value_does_not_drown_the_message() -> None:
    class Talkative:
        def __repr__(self) -> str:
            return "x" * 100_000

    assert len(str(refusal([Talkative()]))) < 2_000


class Only(PyrefPolicy):
    """Allow what is listed as ``module:name``; remember what was asked for."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.asked: list[str] = []

    def allows_import(self, module: str, symbol: str) -> bool:
        self.asked.append(f"{module}:{symbol}")
        return f"{module}:{symbol}" in self.allowed

    def allows_value(self, value: Any) -> bool:
        return True


class NoFunctions(DefaultPyrefPolicy):
    def allows_value(self, value: Any) -> bool:
        return isinstance(value, type)


FRAME = (
    "nemo_run.config:Config",
    "fiddle._src.config:BuildableTraverserMetadata",
    "builtins:tuple",
    "builtins:dict",
)
POINT = f"{Point.__module__}:Point"


def test_a_policy_lets_through_what_it_allows() -> None:
    config = run.Config(Point, x=1)
    text = serializer.serialize(config, pyref_policy=Only(POINT, *FRAME))
    assert serializer.deserialize(text, pyref_policy=Only(POINT, *FRAME)) == config


def test_a_policy_stops_writing_what_it_refuses() -> None:
    with pytest.raises(PyrefPolicyError, match="Point"):
        serializer.serialize(run.Config(Point, x=1), pyref_policy=Only(*FRAME))


def test_a_policy_stops_reading_what_it_refuses() -> None:
    text = serializer.serialize(run.Config(Point, x=1))
    with pytest.raises(PyrefPolicyError, match="Point"):
        serializer.deserialize(text, pyref_policy=Only(*FRAME))


def test_policies_may_be_given_by_position() -> None:
    text = serializer.serialize(Point, Only(POINT))
    with pytest.raises(PyrefPolicyError):
        serializer.deserialize(text, Only())


def test_a_policy_is_asked_about_enum_members() -> None:
    with pytest.raises(PyrefPolicyError):
        serializer.serialize(Color.RED, pyref_policy=Only())


def test_a_policy_is_asked_about_values_too() -> None:
    text = serializer.serialize([train, Point])
    with pytest.raises(PyrefPolicyError, match="train"):
        serializer.deserialize(text, pyref_policy=NoFunctions())


def test_a_policy_that_was_asked_before_is_asked_again() -> None:
    text = serializer.serialize(run.Config(Point))
    serializer.deserialize(text)
    with pytest.raises(PyrefPolicyError):
        serializer.deserialize(text, pyref_policy=Only(*FRAME))


def test_what_a_policy_refuses_is_not_imported(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap_for_policies.py"
    trap.write_text("open('sprung', 'w').close()\nclass Thing: ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = with_root(pyref("trap_for_policies", "Thing"))
    with pytest.raises(PyrefPolicyError):
        serializer.deserialize(text, pyref_policy=Only())
    assert not (tmp_path / "sprung").exists()
    assert "trap_for_policies" not in sys.modules


@pytest.mark.parametrize(
    ("module", "name"),
    [("builtins", "eval"), ("builtins", "exec"), ("builtins", "open"), ("posix", "system")],
)
def test_built_in_functions_are_not_read_by_default(module: str, name: str) -> None:
    with pytest.raises(PyrefPolicyError, match=name):
        serializer.deserialize(with_root(pyref(module, name)))


def test_a_missing_module_is_an_import_error_that_names_it() -> None:
    with pytest.raises(ImportError, match="no_such_package"):
        serializer.deserialize(with_root(pyref("no_such_package.mod", "Thing")))


def test_a_missing_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="NoSuchThing"):
        serializer.deserialize(with_root(pyref(Point.__module__, "NoSuchThing")))


@pytest.mark.parametrize(
    "text", ["", "   ", "not stored text", "AAAA", "eJwDAAAAAAE=", "/tmp/some/file", "é"]
)
def test_text_of_another_kind_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        serializer.deserialize(text)


def test_truncated_text_is_a_value_error() -> None:
    text = serializer.serialize(run.Config(Point, x=1))
    with pytest.raises(ValueError):
        serializer.deserialize(text[: len(text) // 8 * 4])
