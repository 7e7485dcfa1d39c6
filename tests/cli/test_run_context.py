"""The context of a run, as programs use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run.cli import api
from nemo_run.cli.api import CommandDefaults, RunContext


@run.cli.factory
def here(n: int = 1) -> run.Config[run.LocalExecutor]:
    return run.Config(run.LocalExecutor, ntasks_per_node=n)


@dataclass(kw_only=True)
class Mark(run.Plugin):
    word: str = "x"

    def setup(self, task: Any, executor: run.Executor) -> None:
        executor.env_vars["MARK"] = self.word


@run.cli.factory
@run.autoconvert
def mark() -> Mark:
    return Mark()


@run.cli.factory(target=RunContext, target_arg="executor")
def special() -> run.Config[run.LocalExecutor]:
    return run.Config(run.LocalExecutor, retries=9)


@dataclass(kw_only=True)
class OtherExecutor(run.LocalExecutor):
    colour: str = "blue"


@run.cli.factory
def other() -> run.Config[OtherExecutor]:
    return run.Config(OtherExecutor)


def job(x: int = 1, y: str = "") -> None: ...


def test_a_context_is_a_value_before_anything_was_parsed() -> None:
    context = RunContext(name="job")
    assert (context.executor, context.plugins) == (None, [])
    assert "name='job'" in repr(context)
    assert context.to_config().name == "job"
    assert RunContext.get_help().startswith("The options of one run of a command")


def test_words_about_the_run_are_taken_and_others_returned() -> None:
    context = RunContext(name="job")
    words = [
        "x=3",
        "run.executor=here(n=2)",
        "run.executor.retries+=1",
        "run.detach=yes",
        "y=run.z",
    ]
    assert context.parse_args(words) == ["x=3", "y=run.z"]
    assert context.executor == run.LocalExecutor(ntasks_per_node=2, retries=1)
    assert context.detach is True


def test_executors_and_plugins_can_be_asked_for_by_name() -> None:
    context = RunContext(name="job")
    local = run.Config(run.LocalExecutor, ntasks_per_node=1, nodes=2)
    assert context.parse_executor("here", "nodes=2") == local
    assert context.parse_executor("special") == run.Config(run.LocalExecutor, retries=9)
    assert context.parse_executor("none") is None
    other = context.parse_executor("other", "colour=red")
    assert fdl.build(other) == OtherExecutor(colour="red")
    assert context.parse_plugin("mark", "word=y") == run.Config(Mark, word="y")
    assert context.parse_plugin("[mark, mark()]") == [run.Config(Mark), run.Config(Mark)]
    assert context.parse_plugin("[mark]") == [run.Config(Mark)]
    with pytest.raises(ValueError, match="Did you mean 'here'"):
        context.parse_executor("heer")
    with pytest.raises(ValueError, match="No parameter named 'colour'"):
        context.parse_executor("here", "colour=red")
    with pytest.raises(ValueError, match="Known: mark"):
        context.parse_plugin("nothing")


def test_a_factory_may_return_an_executor_itself() -> None:
    @run.cli.factory(namespace="nemo_run.core.execution.base.Executor")
    def ready() -> run.Executor:
        return run.LocalExecutor(nodes=3)

    config = RunContext(name="job").parse_executor("ready", "retries=2")
    assert fdl.build(config) == run.LocalExecutor(nodes=3, retries=2)


def test_where_to_run_needs_no_prefix_when_no_function_could_be_meant() -> None:
    context = RunContext(name="job")
    assert context.parse_args(["executor=here(n=2)", "plugins=mark", "x=1"]) == ["x=1"]
    assert context.executor == run.LocalExecutor(ntasks_per_node=2)
    assert context.plugins == [Mark()]
    assert context.parse_args(["executors=1", "run_id=1.run"]) == ["executors=1", "run_id=1.run"]
    for word in ("executor=heer", "plugins=nothing", "run.nothing=1"):
        with pytest.raises(ValueError, match=r"heer|nothing"):
            context.parse_args([word])


def test_a_function_keeps_its_own_parameter_of_that_name() -> None:
    seen = []

    def study(ctx: RunContext, executor: str = "", plugins: str = "") -> None:
        seen.append((executor, plugins, ctx.executor))

    context = RunContext(name="job", skip_confirmation=True)
    context.cli_execute(study, ["executor=mine", "plugins=yours"], "experiment")
    assert seen == [("mine", "yours", None)]


def test_what_is_given_is_started_from() -> None:
    context = RunContext(name="job")
    context.executor = run.LocalExecutor(env_vars={"A": "1"})
    context.plugins = [Mark()]
    context.parse_args(["run.executor.env_vars.B=2", "run.plugins+=mark", "run.plugins[1].word=z"])
    assert context.executor.env_vars == {"A": "1", "B": "2"}
    assert context.plugins == [Mark(), Mark(word="z")]


def test_a_task_is_parsed_with_arguments_set_before() -> None:
    task = RunContext(name="job").parse_fn(job, ["y=b"], x=5)
    assert (task.x, task.y) == (5, "b")


def test_an_experiment_is_launched_as_the_context_says() -> None:
    context = RunContext(name="job", dryrun=True)
    with run.Experiment("launched", executor=run.LocalExecutor(), clean_mode=True) as experiment:
        experiment.add(run.Script(inline="true"), name="one")
        context.launch(experiment)
    assert run.Experiment.catalog("launched") == []


def test_another_class_can_have_further_options() -> None:
    @dataclass(kw_only=True)
    class Context(RunContext):
        project: str = "none"

    context = Context(name="job")
    context.parse_args(["run.project=mine"])
    assert context.project == "mine"


def test_a_typer_application_can_have_a_command_of_its_own() -> None:
    import typer
    from typer.testing import CliRunner

    app = typer.Typer()
    RunContext.cli_command(
        app,
        "work",
        job,
        default_factory=lambda: run.Partial(job, y="made"),
        cmd_defaults={"skip_confirmation": True},
    )
    run.cli.entrypoint(job, namespace="elsewhere").cli_entrypoint.cli(app)  # type: ignore[attr-defined]
    done = CliRunner().invoke(app, ["work", "x=4"])
    assert (done.exit_code, "│ x             │ 4" in done.output) == (0, True)
    assert "│ y             │ 'made'" in done.output
    assert CliRunner().invoke(app, ["job", "z=4"]).exit_code == 2


@pytest.mark.parametrize("plugins", [Mark(), [Mark()], "mark"])
def test_default_plugins_are_configs(plugins: Any) -> None:
    with pytest.raises(ValueError, match=r"default_plugins is a run\.Config"):
        run.cli.main(job, default_plugins=plugins)


def test_the_constants_are_what_they_were() -> None:
    assert api.EXECUTOR_CLASSES[:2] == [run.Executor, run.LocalExecutor]
    assert [run.Plugin, list[run.Plugin]] == api.PLUGIN_CLASSES
    assert api.NEMORUN_SKIP_CONFIRMATION is None
    assert issubclass(api.InvalidOptionError, api.RunContextError)
    assert set(CommandDefaults.__annotations__) >= {"direct", "dryrun", "to_json", "rich_theme"}
