"""Functions registered as commands."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.parsing_targets import Net

import nemo_run as run
from nemo_run.cli import api


@run.cli.entrypoint
def bare(x: int = 1) -> int:
    return x


@run.cli.entrypoint(namespace="group.inner", name="fit-it", skip_confirmation=True)
def documented(net: Net, x: int = 1) -> None:
    """Fit it.

    More about it.

    Args:
        net: what to fit.
    """


def starting_point() -> run.Partial[Any]:
    return run.Partial(started, x=5)


@run.cli.entrypoint(namespace="group", default_factory=starting_point, help="Start.")
def started(x: int = 1) -> None: ...


def test_the_function_itself_comes_back() -> None:
    assert bare(3) == 3
    assert bare.__name__ == "bare"
    assert isinstance(bare, api.EntrypointProtocol)


def test_an_entrypoint_knows_its_command() -> None:
    entrypoint = documented.cli_entrypoint  # type: ignore[attr-defined]
    assert isinstance(entrypoint, api.Entrypoint)
    assert entrypoint.fn is documented
    assert entrypoint.name == "fit-it"
    assert entrypoint.namespace == "group.inner"
    assert entrypoint.path == "group.inner.documented"
    assert entrypoint.help_str == "fit-it\n\nFit it.\n\nMore about it."
    assert entrypoint.type == "task"
    assert entrypoint.skip_confirmation is True
    assert entrypoint.enable_executor is True


def test_name_and_group_default_to_the_function_and_the_calling_module() -> None:
    entrypoint = bare.cli_entrypoint  # type: ignore[attr-defined]
    assert entrypoint.name == "bare"
    assert entrypoint.namespace == __name__
    assert entrypoint.help_str == "bare"


def test_a_help_text_replaces_the_docstring() -> None:
    assert started.cli_entrypoint.help_str == "started\n\nStart."  # type: ignore[attr-defined]


def test_calling_an_entrypoint_calls_the_function() -> None:
    assert bare.cli_entrypoint(x=4) == 4  # type: ignore[attr-defined]


def test_entrypoints_are_listed_by_the_parts_of_their_path() -> None:
    tree = run.cli.list_entrypoints()
    assert tree["group"]["inner"]["documented"] is documented.cli_entrypoint  # type: ignore[attr-defined]
    assert tree["group"]["started"] is started.cli_entrypoint  # type: ignore[attr-defined]


def test_a_namespace_narrows_the_list() -> None:
    assert set(run.cli.list_entrypoints("group")) == {"group"}
    assert set(run.cli.list_entrypoints("group.inner")["group"]) == {"inner"}
    assert run.cli.list_entrypoints("nowhere") == {}


def test_a_default_factory_is_registered_for_the_function() -> None:
    assert started.cli_entrypoint.default_factory is starting_point  # type: ignore[attr-defined]
    assert run.cli.resolve_factory(started, "default")() == run.Partial(started, x=5)
    assert run.cli.resolve_factory(started, "starting_point")() == run.Partial(started, x=5)


def test_a_task_cannot_have_a_parameter_named_executor() -> None:
    def task(executor: str) -> None: ...

    with pytest.raises(ValueError, match="cannot have a parameter named 'executor'"):
        run.cli.entrypoint(task)
    assert run.cli.entrypoint(task, type="experiment") is task


def test_another_class_may_stand_for_the_command() -> None:
    class Mine(api.Entrypoint):
        pass

    @run.cli.entrypoint(namespace="other", entrypoint_cls=Mine)
    def command() -> None: ...

    assert type(command.cli_entrypoint) is Mine  # type: ignore[attr-defined]


def test_an_entrypoint_parses_words_for_its_function() -> None:
    entrypoint = documented.cli_entrypoint  # type: ignore[attr-defined]
    assert entrypoint.parse_partial(["x=3"], net=run.Config(Net)) == run.Partial(
        documented, x=3, net=run.Config(Net)
    )


def test_a_configured_entrypoint_starts_from_its_arguments() -> None:
    @run.cli.entrypoint(namespace="configured")
    def command(x: int = 1, y: int = 2) -> None: ...

    entrypoint = command.cli_entrypoint  # type: ignore[attr-defined]
    entrypoint.configure(x=5)
    assert entrypoint.parse_partial(["y=3"]) == run.Partial(command, x=5, y=3)


def test_the_namespaces_have_names() -> None:
    assert api.ROOT_ENTRYPOINT_NAMESPACE == "nemo_run.cli.entrypoints"
    assert api.ROOT_FACTORY_NAMESPACE == "nemo_run.cli.factories"
    assert api.DEFAULT_NAME == "default"
