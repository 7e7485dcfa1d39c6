"""Tasks that are put together where they run."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from fiddle._src.experimental import serialization
from omegaconf import OmegaConf
from tests.cli.parsing_targets import Net, Optim, fit, kinds, recipe, untyped

import nemo_run as run
from nemo_run.cli.cli_parser import ArgumentValueError, CLIException
from nemo_run.cli.lazy import LazyEntrypoint, LazyTarget
from nemo_run.exceptions import ConfigError

HERE = "tests.cli.parsing_targets"
SCRIPT = """
from __future__ import annotations

import os
import nemo_run as run
from nemo_run.cli import api

def go(a: int = 1, b: str = ""):
    return a

run.cli.entrypoint(go)
if __name__ == "__main__" and os.environ.get("LAZY_CLI") == "true":
    api.MAIN_ENTRYPOINT = go.cli_entrypoint
"""


@run.cli.entrypoint(namespace="lazy_tests.inner")
def command(net: Net, steps: int = 1) -> None: ...


@run.cli.factory(target=command)
def command_recipe() -> run.Partial[Any]:
    return run.Partial(command, net=run.Config(Net, width=9), steps=9)


def test_a_dotted_name_is_imported_when_it_is_resolved() -> None:
    task = LazyEntrypoint(f"{HERE}.fit", overwrites=["net=small", "net.width+=1", "steps=3"])
    assert task.resolve() == run.Partial(fit, net=run.Config(Net, width=5), steps=3)
    lazy = LazyEntrypoint("nowhere.at.all", overwrites=["a=1"])
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        lazy.resolve()


def test_a_function_is_taken_as_it_is() -> None:
    assert LazyEntrypoint(fit, overwrites=["steps=3"]).resolve() == run.Partial(fit, steps=3)


def test_an_attribute_of_a_lazy_module_is_a_target() -> None:
    with run.lazy_imports():
        from tests.cli.parsing_targets import fit as lazy_fit
    task = LazyEntrypoint(lazy_fit)
    assert task._target_ == LazyTarget(f"{HERE}.fit")
    assert task.resolve() == run.Partial(fit)


@pytest.mark.parametrize("factory", [recipe, "recipe", f"{HERE}.recipe", "recipe(steps=3)"])
def test_a_factory_makes_the_task_to_start_from(factory: Any) -> None:
    task = LazyEntrypoint(fit, factory=factory, overwrites=["net.depth=7"]).resolve()
    assert task == run.Partial(fit, net=run.Config(Net, width=5, depth=7, name="net"), steps=3)


def test_a_factory_that_makes_no_task_is_an_error() -> None:
    with pytest.raises(ConfigError, match="which is no task"):
        LazyEntrypoint(fit, factory=f"{HERE}.note").resolve()
    with pytest.raises(ArgumentValueError, match=r"No matching factory found for: recpie. Did you"):
        LazyEntrypoint(fit, factory="recpie").resolve()


def test_assigning_attributes_records_overrides() -> None:
    task = LazyEntrypoint(fit, factory="recipe")
    task.steps = 4
    task.net.width = 8
    task.steps += 3
    task.steps *= 2
    task.lr -= 0.1
    task.lr /= 2
    task.tags = ["x"]
    task.tags[0] = "y"
    task.sizes |= {"b": 2}
    task.flag &= True
    task.optim = run.Config(Optim, lr=1.0)
    task.optim.lr = 2
    task.other = None
    assert task._args_[:3] == [("steps", "=", 4), ("net.width", "=", 8), ("steps", "+=", 3)]
    assert task.resolve() == run.Partial(
        fit,
        net=run.Config(Net, width=8, depth=2, name="net"),
        steps=14,
        lr=0.0,
        tags=["y"],
        sizes={"a": 1, "b": 2},
        flag=False,
        optim=run.Config(Optim, lr=2.0),
        other=None,
    )


def test_resolving_twice_gives_two_equal_tasks() -> None:
    task = LazyEntrypoint(fit, overwrites=["steps+=1"])
    task.net = run.Config(Net)
    task.net.width = 5
    first, second = task.resolve(), task.resolve()
    assert first == second
    assert first.net is not second.net


@pytest.mark.parametrize("text", ["5", "None", "none", "[1]", "'quoted'", "True", "@a.yaml", "x y"])
def test_strings_that_are_assigned_stay_strings(text: str) -> None:
    task = LazyEntrypoint(untyped)
    task.a = text
    assert task.resolve().a == text
    task = LazyEntrypoint(kinds)
    task.s = text
    task.any_ = text
    anything = None if text.lower() == "none" else text
    assert (task.resolve().s, task.resolve().any_) == (text, anything)


def test_strings_that_are_assigned_are_read_where_something_else_is_asked_for() -> None:
    task = LazyEntrypoint(kinds)
    task.i = "5"
    task.f = "0.5"
    task.b = "True"
    task.li = "[1]"
    assert task.resolve() == run.Partial(kinds, i=5, f=0.5, b=True, li=[1])


def test_a_place_without_value_cannot_be_assigned() -> None:
    task = LazyEntrypoint(fit)
    assert repr(task.net.width) == "<lazy net.width>"
    with pytest.raises(ConfigError, match=r"<lazy net\.width> has no value yet"):
        task.steps = task.net.width


def test_a_mistake_shows_when_the_task_is_resolved() -> None:
    task = LazyEntrypoint(fit)
    task.stpes = 3
    with pytest.raises(CLIException, match="Did you mean 'steps'"):
        task.resolve()


YAML = f"""
net:
  _target_: {HERE}.Net
  width: 3
steps: 5
"steps+=": 1
"""


def test_overrides_come_from_yaml_first_then_from_words(here: Path) -> None:
    (here / "task.yaml").write_text(YAML)
    expected = run.Partial(fit, net=run.Config(Net, width=3), steps=7)
    sources: list[Any] = [YAML, "task.yaml", Path("task.yaml"), OmegaConf.create(YAML)]
    for source in sources:
        assert LazyEntrypoint(fit, yaml=source, overwrites=["steps+=1"]).resolve() == expected


def test_other_formats_are_read_as_well(here: Path) -> None:
    (here / "task.json").write_text(json.dumps({"net": {"width": 3}, "steps": 5}))
    assert LazyEntrypoint(fit, yaml="task.json").resolve() == run.Partial(
        fit, net=run.Config(Net, width=3), steps=5
    )


@pytest.mark.parametrize(
    "text", ["_factory_: recipe\nsteps: 4", "run: {factory: recipe, x: 1}\nsteps: 4"]
)
def test_yaml_may_name_the_factory(text: str) -> None:
    task = LazyEntrypoint(fit, yaml=text)
    assert task._factory_ == "recipe"
    assert task.resolve().steps == 4
    assert task.resolve().net.width == 5


@pytest.mark.parametrize("text", ["- 1", "just text", "missing.yaml", "a: ${nothing}"])
def test_yaml_that_describes_no_task_is_refused_at_once(here: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        LazyEntrypoint(fit, yaml=text)


def test_empty_yaml_changes_nothing() -> None:
    assert LazyEntrypoint(fit, yaml="").resolve() == run.Partial(fit)


def test_yaml_that_was_exported_can_be_used() -> None:
    task = run.Partial(fit, net=run.Config(Net, width=3), steps=5, name="5")
    text = run.cli.config.ConfigSerializer().serialize_yaml(task)
    assert LazyEntrypoint(fit, yaml=text).resolve() == task


def test_files_named_by_words_are_read_at_once(here: Path) -> None:
    (here / "all.yaml").write_text("net: {width: 3}\nname: '5'\nsteps: 6\n")
    words = ["net=@all.yaml:net", "name=@all.yaml:name", "steps=@all.yaml:steps"]
    task = LazyEntrypoint(fit, overwrites=words)
    (here / "all.yaml").unlink()
    assert task.resolve() == run.Partial(fit, net=run.Config(Net, width=3), name="5", steps=6)


@pytest.mark.parametrize(
    "line",
    [
        "nemo lazy_tests inner command",
        "nemorun lazy_tests inner command",
        "lazy_tests inner command",
    ],
)
def test_a_command_line_names_an_entrypoint(line: str) -> None:
    task = LazyEntrypoint(f"{line} steps=3 'net=small(width=2)'")
    assert task._target_.import_path == "lazy_tests inner command"
    assert task.resolve() == run.Partial(command, steps=3, net=run.Config(Net, width=2))


def test_a_command_line_may_have_a_factory_and_a_file(here: Path) -> None:
    (here / "task.yaml").write_text("steps: 4\n")
    line = "nemo lazy_tests inner command --factory command_recipe --yaml task.yaml net.depth=1"
    assert LazyEntrypoint(line).resolve() == run.Partial(
        command, net=run.Config(Net, width=9, depth=1), steps=4
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nemo lazy_tests inner comand", "There is no command 'lazy_tests inner comand'. Did you"),
        ("nemo lazy_tests inner", "is a group of commands: command"),
        ("nemo lazy_tests inner command deeper", "There is no command"),
    ],
)
def test_a_command_that_is_not_there_is_an_error(line: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        LazyEntrypoint(line).resolve()


@pytest.mark.parametrize(
    "line", ["nemo a b --dryrun", "nemo a b --factory", "nemo a b x=1 y", "", "nemo 'a"]
)
def test_a_command_line_that_makes_no_sense_is_refused_at_once(line: str) -> None:
    with pytest.raises(ConfigError):
        LazyEntrypoint(line)


def test_an_override_of_the_wrong_form_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="net"):
        LazyEntrypoint(fit, overwrites=["net"])


def test_a_script_is_stored_and_executed_when_resolved(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZY_CLI", raising=False)
    (here / "script.py").write_text(SCRIPT)
    for line in ("script.py a=3 b=x", "python script.py a=3 b=x"):
        task = LazyEntrypoint(line)
        assert task._target_ == LazyTarget("script.py", SCRIPT)
        resolved = task.resolve()
        assert resolved.__fn_or_cls__.__name__ == "go"
        assert (resolved.a, resolved.b) == (3, "x")
        assert fdl.build(resolved)() == 3


def test_executing_a_script_leaves_no_traces(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys

    from nemo_run.cli import api

    monkeypatch.setenv("LAZY_CLI", "before")
    main = sys.modules["__main__"]
    assert LazyTarget("script.py", SCRIPT).target.__name__ == "go"
    with pytest.raises(ZeroDivisionError):
        _ = LazyTarget("script.py", "1 / 0").target
    assert sys.modules["__main__"] is main
    assert os.environ["LAZY_CLI"] == "before"
    assert api.MAIN_ENTRYPOINT is None


def test_a_script_without_entrypoint_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"Script script\.py has no entrypoint"):
        LazyEntrypoint.__unflatten__((LazyTarget("script.py", "x = 1\n"), None, []), None).resolve()


def test_a_script_that_is_not_there_is_an_error(here: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.py"):
        LazyEntrypoint("missing.py a=1")


def test_a_target_can_be_called() -> None:
    assert LazyTarget(f"{HERE}.Net")(4) == Net(width=4)
    assert LazyTarget(f"{HERE}.Net").target is Net


def test_a_context_is_passed_to_functions_that_ask_for_one() -> None:
    def experiment(ctx: Any, a: int = 1) -> None: ...

    with pytest.raises(ValueError, match="ctx is required"):
        LazyEntrypoint(experiment).resolve()
    assert LazyEntrypoint(experiment).resolve(ctx="it") == run.Partial(experiment, ctx="it")


def test_a_lazy_task_says_that_it_is_lazy() -> None:
    task = LazyEntrypoint(fit)
    assert task.is_lazy is True
    assert isinstance(task, fdl.Buildable)
    assert not hasattr(task, "_private")
    assert not hasattr(task, "__wrapped__")


def test_building_resolves_and_builds() -> None:
    task = LazyEntrypoint(fit, overwrites=["net=small", "steps=2"])
    built = fdl.build(task)
    assert built.func is fit
    assert built.keywords == {"net": Net(width=4), "steps": 2}
    assert fdl.build([task])[0].keywords == built.keywords


def test_copies_are_independent_and_equal() -> None:
    task = LazyEntrypoint(fit, factory="recipe", overwrites=["steps=2"])
    for copied in (
        task.clone(),
        copy.copy(task),
        copy.deepcopy(task),
        pickle.loads(pickle.dumps(task)),
    ):
        assert type(copied) is LazyEntrypoint
        assert copied == task
        copied.steps = 3
        assert copied != task
        assert copied.resolve().steps == 3
    assert task.resolve().steps == 2


def test_it_is_stored_as_target_factory_and_arguments() -> None:
    task = LazyEntrypoint(f"{HERE}.fit", factory="recipe", overwrites=["steps=2"])
    traverser = serialization.find_node_traverser(LazyEntrypoint)
    assert traverser is not None
    values, metadata = traverser.flatten(task)
    assert values == (LazyTarget(f"{HERE}.fit"), "recipe", [("steps", "=", "2")])
    assert type(values[2]) is list
    assert metadata is None
    assert [step.code for step in traverser.path_elements(task)] == [
        "._target_",
        "._factory_",
        "._args_",
    ]
    assert traverser.unflatten(values, None) == task


def test_its_target_is_stored_as_path_and_script() -> None:
    traverser = serialization.find_node_traverser(LazyTarget)
    assert traverser is not None
    assert traverser.flatten(LazyTarget("a.b", "text")) == (("a.b", "text"), None)
    assert traverser.unflatten(("a.b", "text"), None) == LazyTarget("a.b", "text")


def test_arguments_as_earlier_releases_stored_them_are_understood() -> None:
    changes = [("_factory_", "=", "recipe"), ("steps+", "=", "1"), ("net.width*", "=", "2")]
    task = LazyEntrypoint.__unflatten__((LazyTarget(f"{HERE}.fit"), "recipe", changes), None)
    assert task.resolve().steps == 4
    assert task.resolve().net.width == 10
