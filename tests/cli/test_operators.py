"""Operators in overrides."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import fiddle as fdl
import pytest
from tests.cli.parsing_targets import Model, Net, fit, kinds, untyped

import nemo_run as run
from nemo_run.cli.cli_parser import (
    Operation,
    OperationError,
    ParseError,
    PythonicParser,
    UndefinedVariableError,
)

parse = run.cli.parse_partial


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["steps+=5"], 15),
        (["steps-=5"], 5),
        (["steps*=5"], 50),
        (["steps/=4"], 2.5),
        (["steps|=5"], 15),
        (["steps&=2"], 2),
        (["steps=3", "steps+=1"], 4),
        (["steps+=1", "steps+=1"], 12),
        (["steps=5", "steps+=1", "steps*=2"], 12),
    ],
)
def test_operators_change_the_value_or_default_each_time(words: list[str], value: Any) -> None:
    assert parse(fit, *words).steps == value


def test_texts_and_lists_are_appended_to_and_repeated() -> None:
    assert parse(fit, "name+=-2").name == "run-2"
    assert parse(fit, "tags+=['b']", "tags+=['c']").tags == ["a", "b", "c"]
    assert parse(fit, "tags*=3").tags == ["a", "a", "a"]
    assert parse(fit, "name*=2").name == "runrun"


def test_dicts_are_merged_and_sets_combined() -> None:
    assert parse(fit, "sizes|={'b': 2}").sizes == {"a": 1, "b": 2}
    assert parse(kinds, "si={1, 2}", "si|={3}").si == {1, 2, 3}
    assert parse(kinds, "si={1, 2}", "si&={2}").si == {2}
    assert parse(kinds, "si={1, 2}", "si-={2}").si == {1}


def test_operators_reach_into_configs_and_lists() -> None:
    assert parse(fit, "net=small", "net.width*=2").net.width == 8
    assert parse(fit, "net=small", "net.depth+=1").net.depth == 3
    assert parse(kinds, "li=[1, 2]", "li[1]+=5").li == [1, 7]
    assert parse(fit, "sizes[a]+=5").sizes == {"a": 6}


def test_a_dataclass_field_is_changed_from_what_its_default_factory_gives() -> None:
    assert run.cli.parse_config(Model, "tags+=['b']").tags == ["a", "b"]


def test_operators_on_unannotated_parameters_go_by_the_literal() -> None:
    assert parse(untyped, "b+=2", "c+=y").b == 3
    assert parse(untyped, "b+=2", "c+=y").c == "xy"


def test_defaults_of_a_function_are_never_changed() -> None:
    before = copy.deepcopy({n: p.default for n, p in inspect.signature(fit).parameters.items()})
    parse(fit, "tags+=['b']", "sizes|={'b': 2}", "tags[0]=z", "sizes.c=3", "default_net.width=1")
    assert {n: p.default for n, p in inspect.signature(fit).parameters.items()} == before


def test_a_list_that_somebody_else_holds_is_never_changed() -> None:
    mine = ["a"]
    task = run.Partial(fit, tags=mine)
    run.cli.parse_cli_args(task, ["tags+=['b']", "tags[0]=z"])
    assert task.tags == ["z", "b"]
    assert mine == ["a"]


@pytest.mark.parametrize("word", ["net+=1", "net.width+=1x"])
def test_an_operator_needs_something_to_operate_on(word: str) -> None:
    with pytest.raises((UndefinedVariableError, ParseError)):
        parse(fit, word)


def test_an_operator_on_nothing_names_the_parameter() -> None:
    with pytest.raises(UndefinedVariableError, match=r"Cannot use '\+=' on 'net'"):
        parse(fit, "net+=1")


@pytest.mark.parametrize(
    "words",
    [
        ["name-=x"],
        ["steps/=0"],
        ["optim+=None"],
        ["tags*=99999999999"],
        ["name*=99999999999"],
        ["flag+=true", "tags-=['a']"],
        ["anything+=1"],
    ],
)
def test_an_operation_that_fails_says_which(words: list[str]) -> None:
    with pytest.raises(OperationError, match=r"Operation '.=' failed") as caught:
        parse(fit, *words)
    assert caught.value.arg == words[-1]


def test_operations_can_be_applied_to_values_directly() -> None:
    parser = PythonicParser()
    old = [1]
    assert parser.apply_operation(Operation.ADD, old, [2]) == [1, 2]
    assert old == [1]
    assert parser.apply_operation(Operation.ASSIGN, 1, 2) == 2
    assert parser.apply_operation(Operation.UNION, {"a": 1}, {"b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(OperationError) as caught:
        parser.apply_operation(Operation.DIVIDE, "a", 2)
    assert caught.value.context == {"old": "a", "new": 2}


def test_the_changed_task_can_be_built() -> None:
    task: Any = parse(fit, "net=small", "net.width+=1", "tags+=['b']")
    assert fdl.build(task).keywords == {"net": Net(width=5), "tags": ["a", "b"]}
