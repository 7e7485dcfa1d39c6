"""Factories: registering, finding and calling them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, Optional

import fiddle as fdl
import pytest
from tests.cli import parsing_targets
from tests.cli.parsing_targets import (
    CALLS,
    SHARED,
    Model,
    Net,
    Wide,
    fit,
    for_the_argument,
    huge_net,
    kinds,
    recipe,
    shared,
    small,
)

import nemo_run as run
from nemo_run.cli import api
from nemo_run.cli.cli_parser import ArgumentValueError, ParseError, UnknownTypeError, parse_factory
from nemo_run.exceptions import ConfigError

parse = run.cli.parse_partial
HERE = "tests.cli.parsing_targets"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The main script, given a few names of its own."""
    CALLS.clear()
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "note", parsing_targets.note, raising=False)
    monkeypatch.setattr(main, "ScriptNet", Wide, raising=False)
    monkeypatch.setattr(main, "BASE", run.Config(Net, width=11), raising=False)
    yield main
    CALLS.clear()


def test_a_factory_is_found_by_the_type_it_returns_a_config_of() -> None:
    assert run.cli.resolve_factory(Net, "small") is small
    assert run.cli.resolve_factory(f"{HERE}.Net", "small") is small
    assert small() == run.Config(Net, width=4)


def test_an_autoconverted_factory_is_found_by_the_type_it_returns() -> None:
    assert run.cli.resolve_factory(Net, "huge") is huge_net
    assert huge_net() == run.Config(Net, width=1000)


def test_a_default_factory_has_two_names() -> None:
    assert run.cli.resolve_factory(Net, "default") is huge_net


def test_a_factory_for_a_target_is_found_by_it() -> None:
    assert run.cli.resolve_factory(fit, "recipe") is recipe
    assert run.cli.resolve_factory(f"{HERE}.fit.net", "for_the_argument") is for_the_argument


def test_members_of_a_union_are_searched() -> None:
    assert run.cli.resolve_factory(Optional[Net], "small") is small  # noqa: UP045
    assert run.cli.resolve_factory(int | Net, "small") is small


def test_a_factory_that_is_not_there_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"No factory 'smal' is registered for Net. Did you mean"):
        run.cli.resolve_factory(Net, "smal")
    with pytest.raises(ValueError, match="nowhere"):
        run.cli.resolve_factory("nowhere", "small")


def test_a_factory_is_not_found_by_a_parent_class() -> None:
    with pytest.raises(ValueError, match="Wide"):
        run.cli.resolve_factory(Wide, "small")


def test_the_wrapper_remembers_the_function() -> None:
    def made() -> run.Config[Model]:
        """Make it."""
        return run.Config(Model)

    factory = run.cli.factory(made, name="from_a_test")
    assert factory.wrapped is made  # type: ignore[attr-defined]
    assert factory.__factory__ is True  # type: ignore[attr-defined]
    assert isinstance(factory, api.FactoryProtocol)
    assert factory.__doc__ == "Make it."
    assert factory() == run.Config(Model)


def test_factories_are_listed_once_each_in_order() -> None:
    names = [factory.__name__ for factory in run.cli.list_factories(Net)]
    assert names[:2] == ["small", "huge_net"]
    assert len(names) == len(set(names))
    assert run.cli.list_factories(f"{HERE}.fit.net") == [for_the_argument]
    assert run.cli.list_factories(fit) == run.cli.list_factories(f"{HERE}.fit")
    assert run.cli.list_factories("nowhere") == []


def test_a_namespace_can_be_given() -> None:
    @run.cli.factory(namespace="my.space")
    def anything() -> int:
        return 3

    assert run.cli.resolve_factory("my.space", "anything")() == 3


def test_string_annotations_are_resolved_where_the_factory_is_written() -> None:
    # parsing_targets has string annotations; this module does not know the name either.
    assert small.__annotations__["return"] == "run.Config[Net]"


def test_a_factory_without_target_needs_a_return_annotation() -> None:
    with pytest.raises(TypeError, match="Missing return type annotation"):

        @run.cli.factory
        def made():
            return 3


def test_a_factory_without_target_must_return_a_config() -> None:
    with pytest.raises(ValueError, match="returns int, which is no config"):

        @run.cli.factory
        def made() -> int:
            return 3


def test_an_argument_needs_its_target() -> None:
    with pytest.raises(ValueError, match="target_arg='net' needs the target"):
        run.cli.factory(small, target_arg="net")


def test_types_that_a_hint_is_made_of() -> None:
    assert api.extract_constituent_types(Optional[list[Net]]) == {list[Net], list, Net}  # noqa: UP045
    assert api.extract_constituent_types(dict[str, Net | int]) == {
        dict[str, Net | int],
        dict,
        str,
        Net,
        int,
    }
    assert api.extract_constituent_types(run.Config[Net]) == {run.Config[Net], run.Config, Net}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("net=small", run.Config(Net, width=4)),
        ("net=small()", run.Config(Net, width=4)),
        ("net=small(width=3)", run.Config(Net, width=3)),
        ("net=small(3)", run.Config(Net, width=3)),
        ("net=huge", run.Config(Net, width=1000)),
        ("net=default", run.Config(Net, width=1000)),
        ("net=for_the_argument(label='a, (b)')", run.Config(Net, width=7, name="a, (b)")),
        ("net=for_the_argument(label=[1, 2], width=1)", run.Config(Net, width=1, name="[1, 2]")),
        (f"net={HERE}.small", run.Config(Net, width=4)),
        (f"net={HERE}.small(width=2)", run.Config(Net, width=2)),
        (f"net={HERE}.Wide", run.Config(Wide)),
        (f"net={HERE}.Wide(factor=2, width=1)", run.Config(Wide, factor=2.0, width=1)),
        (f"net={HERE}.DEFAULT_NET", run.Config(Net, width=64, depth=3)),
        ("net=Net", run.Config(Net)),
        ("net=Net(width=3)", run.Config(Net, width=3)),
        ("other=small", run.Config(Net, width=4)),
        ("other=None", None),
        ("nets=[small, small(width=1), Net]", [run.Config(Net, width=w) for w in (4, 1, 8)]),
        (f"nets=[{HERE}.small, Config]", [run.Config(Net, width=4), run.Config(Net)]),
        ("nets=[{'width': 3}]", [run.Config(Net, width=3)]),
        ("text_or_net=small", run.Config(Net, width=4)),
        ("text_or_net=words", "words"),
        (f"text_or_net={HERE}.note", f"{HERE}.note"),
        ("anything=math.pi", math.pi),
        (f"anything={HERE}.small", run.Config(Net, width=4)),
        (f"anything=[{HERE}.small]", [run.Config(Net, width=4)]),
        ("anything=[a, b]", "[a, b]"),
        ("lr=warm", 0.5),
        ("lr=warm()", 0.5),
        (f"steps={HERE}.double(value=4)", 8),
        (f"name={HERE}.note()", "called"),
    ],
)
def test_factory_expressions(word: str, value: Any) -> None:
    (made,) = parse(fit, word).__arguments__.values()
    assert made == value


def test_the_expressions_argument_may_be_another_factory() -> None:
    task = parse_factory(fit, "net", Net, "recipe(net=small(width=2), steps=7)")
    assert task == run.Partial(fit, net=run.Config(Net, width=2), steps=7)


def test_a_factory_that_asks_for_a_config_gets_one() -> None:
    task = parse_factory(fit, "", fit, "config_taker(net=small)")
    assert task.net == run.Config(Net, width=4)


def test_a_list_of_expressions_gives_a_list() -> None:
    assert parse_factory(fit, "nets", list[Net], "[small, huge]") == [small(), huge_net()]


@pytest.mark.parametrize("text", ["zzz", "nowhere.at.all", "small(width=1", "1 + 1"])
def test_an_expression_without_factory_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="factory") as caught:
        parse_factory(fit, "net", Net, text)
    assert isinstance(caught.value, ArgumentValueError)


@pytest.mark.parametrize(
    "word", ["name=note", f"name={HERE}.note", "name=os.getcwd", "tags=[note]", "steps=note"]
)
def test_plain_parameters_call_nothing_without_parentheses(script: Any, word: str) -> None:
    try:
        task = parse(fit, word)
    except ParseError:
        pass
    else:
        assert word == f"name={task.name}"
    assert CALLS == []


def test_names_of_the_script_are_found(script: Any) -> None:
    assert parse(fit, "net=ScriptNet(factor=3)").net == run.Config(Wide, factor=3.0)
    assert parse(fit, "net=BASE", "net.depth=5").net == run.Config(Net, width=11, depth=5)
    assert run.Config(Net, width=11) == script.BASE
    assert parse(fit, "name=note()").name == "called"


def test_where_anything_goes_a_word_is_a_word_unless_it_is_called(script: Any) -> None:
    assert parse(fit, "anything=note").anything == "note"
    assert CALLS == []
    assert parse(fit, "anything=note()").anything == "called"


def test_functions_are_values_for_parameters_that_take_functions(script: Any) -> None:
    assert parse(kinds, "fn=note").fn is parsing_targets.note
    assert CALLS == []


def test_a_factory_that_fails_is_reported() -> None:
    with pytest.raises(ArgumentValueError) as caught:
        parse(fit, "net=broken")
    assert caught.value.message == "Factory 'broken' failed: RuntimeError: out of nets"
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_factory_that_returns_nothing_is_reported() -> None:
    with pytest.raises(ArgumentValueError, match="Factory 'nothing' returned None instead of Net"):
        parse(fit, "net=nothing")
    assert parse(fit, "other=nothing").other is None


def test_a_factory_argument_that_does_not_exist_is_reported() -> None:
    with pytest.raises(ArgumentValueError, match="No parameter named 'widht' exists for small"):
        parse(fit, "net=small(widht=3)")


def test_what_a_factory_returns_is_never_shared() -> None:
    task = parse(fit, "net=shared", "other=shared", "net.width=1", "other.width=2")
    assert (task.net.width, task.other.width) == (1, 2)
    assert run.Config(Net, width=77) == SHARED
    assert shared() is SHARED


def test_an_unknown_name_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownTypeError, match=r"There is no factory 'zz'. Known: broken, default,"
    ):
        parse(fit, "net=zz")


def test_a_module_that_fails_to_import_is_reported(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_written.py").write_text("net = = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ArgumentValueError, match=r"Importing 'half_written.net' failed: SyntaxErr"):
        parse(fit, "net=half_written.net")


def test_the_result_can_be_built() -> None:
    task: Any = parse(fit, "net=small(width=4)", "net.depth=3")
    assert fdl.build(task).keywords == {"net": Net(width=4, depth=3)}


def test_registering_a_name_again_replaces_it() -> None:
    for width in (1, 2):

        @run.cli.factory(namespace="replaced", name="it")
        def made(width: int = width) -> run.Config[Net]:
            return run.Config(Net, width=width)

    assert run.cli.resolve_factory("replaced", "it")().width == 2
    assert len(run.cli.list_factories("replaced")) == 1


def test_errors_in_registration_are_config_errors_too() -> None:
    with pytest.raises(ConfigError):
        run.cli.factory(small, target_arg="net")
