"""Overrides applied to functions and configs."""

from __future__ import annotations

import dataclasses
from typing import Any

import fiddle as fdl
import pytest
from tests.cli.parsing_targets import (
    DEFAULT_NET,
    Model,
    Net,
    Optim,
    Wide,
    fit,
    kinds,
    partials,
    positional_only,
    untyped,
    with_any_extras,
)

import nemo_run as run
from nemo_run.cli.cli_parser import (
    ArgumentParsingError,
    ArgumentValueError,
    CLIException,
    ParseError,
    parse_attribute,
)

parse = run.cli.parse_partial
HERE = "tests.cli.parsing_targets"


def built(task: Any) -> Any:
    return fdl.build(task)


def test_a_function_becomes_a_partial_or_a_config() -> None:
    assert run.cli.parse_cli_args(fit, ["steps=5"]) == run.Partial(fit, steps=5)
    assert run.cli.parse_cli_args(fit, ["steps=5"], run.Config) == run.Config(fit, steps=5)
    assert run.cli.parse_partial(fit, "steps=5") == run.Partial(fit, steps=5)
    assert run.cli.parse_config(fit, "steps=5") == run.Config(fit, steps=5)


def test_only_what_is_given_is_set() -> None:
    assert parse(fit, "steps=5").__arguments__ == {"steps": 5}


def test_a_config_is_changed_in_place_and_returned() -> None:
    task = run.Partial(fit, net=run.Config(Net), steps=1)
    net = task.net
    assert run.cli.parse_cli_args(task, ["steps=5", "net.width=3"]) is task
    assert (task.steps, task.net.width) == (5, 3)
    assert task.net is net


def test_a_config_to_start_from_may_be_given_in_place_of_the_kind() -> None:
    start = run.Partial(fit, name="started")
    assert run.cli.parse_cli_args(fit, ["steps=5"], start) is start
    assert start == run.Partial(fit, name="started", steps=5)


def test_lists_and_tuples_of_configs_are_reached_by_position() -> None:
    configs = [run.Config(Net), run.Config(Net)]
    assert run.cli.parse_cli_args(configs, ["[0].width=1", "[1].width=2"]) is configs
    assert [config.width for config in configs] == [1, 2]
    pair = (run.Config(Net), run.Config(Net))
    assert run.cli.parse_cli_args(pair, ["[1].width=3"])[1].width == 3


def test_an_element_of_a_list_can_be_replaced_by_a_factory() -> None:
    configs = [run.Config(Net), run.Config(Net)]
    run.cli.parse_cli_args(configs, ["[1]=small"])
    assert configs == [run.Config(Net), run.Config(Net, width=4)]


@pytest.mark.parametrize("word", ["[2].width=1", "width=1", "[0].widht=1", "[0][0].x=1"])
def test_a_path_that_leads_nowhere_in_a_list_is_an_error(word: str) -> None:
    with pytest.raises(ArgumentValueError):
        run.cli.parse_cli_args([run.Config(Net), run.Config(Net)], [word])


def test_words_without_an_equals_sign_give_parameters_by_position() -> None:
    assert parse(untyped, "1", "two", "c=3") == run.Partial(untyped, 1, "two", c=3)
    assert parse(fit, "small", "7").net == run.Config(Net, width=4)


def test_a_positional_word_after_an_override_is_refused() -> None:
    with pytest.raises(ArgumentParsingError, match="after keyword argument") as caught:
        parse(untyped, "a=1", "2")
    assert caught.value.arg == "2"


def test_too_many_positional_words_are_refused() -> None:
    with pytest.raises(ArgumentParsingError, match="Too many positional arguments: '5'"):
        parse(untyped, "1", "2", "3", "4", "5")


def test_what_a_config_says_about_itself_at_the_root_is_skipped() -> None:
    words = ["_target_=some.thing", "_partial_=True", "steps=5"]
    assert parse(fit, *words) == run.Partial(fit, steps=5)


def test_overrides_of_whole_parameters_come_before_those_inside_them() -> None:
    assert parse(fit, "net.depth=9", "net=small").net == run.Config(Net, width=4, depth=9)


def test_a_dotted_override_of_a_required_parameter_starts_an_empty_config() -> None:
    assert parse(fit, "net.width=5").net == run.Config(Net, width=5)


def test_a_dotted_override_keeps_the_other_fields_of_a_default_config() -> None:
    task = parse(fit, "default_net.width=5")
    assert task.default_net == run.Config(Net, width=5, depth=3)
    assert run.Config(Net, width=64, depth=3) == DEFAULT_NET


def test_two_parses_do_not_share_what_they_start_from() -> None:
    first, second = parse(fit, "default_net.width=5"), parse(fit, "default_net.depth=5")
    assert first.default_net == run.Config(Net, width=5, depth=3)
    assert second.default_net == run.Config(Net, width=64, depth=5)


def test_two_parameters_of_one_class_are_two_configs() -> None:
    task = parse(fit, "net=Config", "other=Config", "net.width=1", "other.width=2")
    assert (task.net.width, task.other.width) == (1, 2)
    task = parse(fit, f"net=Config[{HERE}.Net]", f"other=Config[{HERE}.Net]", "other.width=2")
    assert task.net == run.Config(Net)


@pytest.mark.parametrize("name", ["optim", "other"])
def test_a_dotted_override_of_an_optional_parameter_uses_the_class(name: str) -> None:
    cls, field = (Optim, "lr") if name == "optim" else (Net, "width")
    task = parse(fit, f"{name}.{field}=3")
    assert getattr(task, name).__fn_or_cls__ is cls
    assert getattr(getattr(task, name), field) == 3


def test_a_union_of_classes_is_decided_by_the_field() -> None:
    def choose(part: Net | Optim | None = None) -> None: ...

    choose.__annotations__["part"] = Net | Optim | None
    assert parse(choose, "part.lr=1").part == run.Config(Optim, lr=1.0)
    assert parse(choose, "part.width=1").part == run.Config(Net, width=1)


def test_deep_paths_create_everything_on_the_way() -> None:
    model = run.cli.parse_config(Model, "optim.betas=(1, 2)", "net.width=3")
    assert model == run.Config(
        Model, optim=run.Config(Optim, betas=(1.0, 2.0)), net=run.Config(Net, width=3)
    )


def test_a_default_that_is_a_dataclass_instance_keeps_its_other_fields() -> None:
    @dataclasses.dataclass
    class Outer:
        inner: Any = dataclasses.field(default_factory=lambda: Net(width=7, depth=7))

    assert run.cli.parse_config(Outer, "inner.width=1").inner == run.Config(
        Net, width=1, depth=7, name="net"
    )


def test_elements_of_lists_are_reached_by_position() -> None:
    task = parse(fit, "nets=[small, huge]", "nets[0].width=5", "nets[1].depth=6")
    assert task.nets == [run.Config(Net, width=5), run.Config(Net, width=1000, depth=6)]
    assert parse(fit, "tags=['x', 'y']", "tags[1]=z").tags == ["x", "z"]
    assert parse(kinds, "t=(1, 'a')", "t[0]=5").t == (5, "a")


def test_elements_are_coerced_like_the_rest_of_their_list() -> None:
    with pytest.raises(ParseError, match="'x' as int"):
        parse(kinds, "li=[1]", "li[0]=x")


def test_a_position_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ArgumentValueError, match=r"No element \[1\] in tags.*\[0\] to \[0\]"):
        parse(fit, "tags[1]=x")
    with pytest.raises(ArgumentValueError, match="Its elements: none"):
        parse(fit, "nets[0].width=5")


def test_entries_of_a_dict_are_reached_by_name() -> None:
    assert parse(fit, "sizes.b=2", "sizes[c]=3").sizes == {"a": 1, "b": 2, "c": 3}


def test_entries_of_a_dict_that_is_not_there_make_one() -> None:
    task = run.cli.parse_cli_args(with_dict, ["d.a=1", "d.b=2"])
    assert built(task).keywords == {"d": {"a": 1, "b": 2}}
    with pytest.raises(ParseError, match="'x' as int"):
        run.cli.parse_cli_args(with_dict, ["d.a=x"])


def with_dict(d: dict[str, int]) -> None: ...


def test_empty_configs_can_be_asked_for() -> None:
    assert parse(fit, "net=Config").net == run.Config(Net)
    assert parse(fit, "optim=Config").optim == run.Config(Optim)
    assert parse(fit, "net=Partial").net == run.Partial(Net)
    assert parse(fit, f"net=Config[{HERE}.Wide]").net == run.Config(Wide)
    assert parse(fit, f"net=Partial[{HERE}.Wide]", "net.factor=2").net == run.Partial(
        Wide, factor=2.0
    )
    assert parse(untyped, f"a=Config[{HERE}.Net]").a == run.Config(Net)


@pytest.mark.parametrize("target", ["nowhere.Net", f"{HERE}.Nothing", f"{HERE}.CALLS"])
def test_a_target_that_is_not_there_is_an_error(target: str) -> None:
    with pytest.raises(ArgumentValueError, match=target):
        parse(fit, f"net=Config[{target}]")


def test_annotations_say_which_kind_of_config_a_dotted_override_makes() -> None:
    task = run.cli.parse_cli_args(
        run.Partial(partials, bind_args=False),
        ["by_default.width=1", "config.width=2", "explicit.width=3", "net_config.width=4"],
    )
    assert task.by_default == run.Partial(Net, width=1)
    assert task.config == run.Config(Net, width=2)
    assert task.explicit == run.Partial(Net, width=3)
    assert task.net_config == run.Config(Net, width=4)


def test_extra_keywords_are_parsed_by_their_annotation_or_as_anything() -> None:
    assert parse(kinds, "more=5").more == 5
    assert parse(with_any_extras, "b=[1]", "c=word").__arguments__ == {"b": [1], "c": "word"}


def test_positional_only_parameters_can_be_set_by_name() -> None:
    task = parse(positional_only, "a=1", "b=y", "c=2")
    assert built(task).args == (1, "y")
    assert parse(positional_only, "3")[0] == 3
    assert parse(positional_only, "a=1", "a+=1")[0] == 2


def test_parameters_named_run_something_are_parameters() -> None:
    def task(run_id: int = 0) -> None: ...

    assert parse(task, "run_id=3").run_id == 3


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("stpes=3", "No parameter named 'stpes' exists for fit. Did you mean 'steps'?"),
        ("net.widht=3", "No parameter named 'widht' exists for Net. Did you mean 'width'?"),
        ("default_net.dpeth=3", "Did you mean 'depth'?"),
        ("zzz=3", "Known: anything, default_net, flag,"),
        ("net[0]=3", "'net[0]' cannot be set: net has no value"),
        ("steps.x=3", "steps is 10, which has no fields. Set steps as a whole"),
        ("anything.x=1", "names no class with fields"),
        ("net=smoll", "There is no factory 'smoll'. Did you mean 'small'?"),
        ("plain=zzz", "Write Config[package.Class], or the dotted name of a function."),
    ],
)
def test_mistakes_are_explained_in_one_line(word: str, says: str) -> None:
    with pytest.raises(CLIException) as caught:
        parse(fit, word)
    error = caught.value
    assert says in error.message
    assert "\n" not in str(error)
    assert error.arg == word


def test_the_first_mistake_stops_everything() -> None:
    with pytest.raises(ArgumentValueError, match="'a'"):
        parse(fit, "a=1", "b=2")


def test_whatever_goes_wrong_is_a_cli_exception() -> None:
    class Odd:
        def __init__(self, x: int = 1):
            raise AssertionError("configs are not built while words are parsed")

    with pytest.raises(CLIException):
        run.cli.parse_cli_args(3, ["x=1"])
    with pytest.raises(CLIException, match="output_type"):
        run.cli.parse_cli_args(fit, ["steps=1"], Net)
    assert run.cli.parse_config(Odd, "x=2").x == 2


def test_the_value_at_a_path_can_be_looked_up() -> None:
    task = run.Partial(fit, net=run.Config(Net, width=3), tags=["x"])
    assert parse_attribute("net.width", task) == 3
    assert parse_attribute("tags[0]", task) == "x"
    assert parse_attribute("steps", task) == 10
    assert parse_attribute("[1]", [1, 2]) == 2
    assert parse_attribute("[k]", {"k": 2}) == 2
    for path in ("nets[4]", "net.widht", "steps.x"):
        with pytest.raises(ArgumentValueError, match="Invalid attribute"):
            parse_attribute(path, task)
