"""What is shown to people: dry runs, help, and the console and log lines they go through."""

# The older spellings of annotations are part of what is tested.
# ruff: noqa: UP006, UP007, UP035, UP045

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Union

import pytest
import rich.box
import typer.rich_utils
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table
from tests.unit.config_targets import (
    Layer,
    Model,
    Optimizer,
    Outer,
    Point,
    fail,
    gather,
    spread,
    train,
)

from nemo_run.api import dryrun_fn
from nemo_run.config import Config, Partial, Script
from nemo_run.core.frontend.console.api import CONSOLE, configure_logging, deconfigure_logging
from nemo_run.core.frontend.console.styles import BOX_STYLE, TABLE_STYLES
from nemo_run.help import class_to_str, help


def cells(text: str) -> list[list[str]]:
    """Split what was printed into lines of table cells, whatever the table is drawn with."""
    lines = (re.split(r"[│┃]|\s{2,}", line) for line in text.splitlines())
    return [[cell.strip() for cell in line if cell.strip()] for line in lines]


def dry_run(task: Any, *args: Any, **kwargs: Any) -> str:
    with CONSOLE.capture() as captured:
        dryrun_fn(task, *args, **kwargs)
    return captured.get()


class TestDryRun:
    @pytest.mark.parametrize("value", [train, Model(), "train", {"a": 1}, None])
    def test_only_configured_tasks_are_shown(self, value: Any) -> None:
        with pytest.raises(TypeError):
            dryrun_fn(value)

    @pytest.mark.parametrize("kind", [Config, Partial])
    @pytest.mark.parametrize("target", [train, Model])
    def test_the_heading_names_the_target(self, kind: Any, target: Any) -> None:
        assert f"{target.__module__}:{target.__name__}" in dry_run(kind(target))

    def test_the_table_has_two_columns(self) -> None:
        assert ["Argument Name", "Resolved Value"] in cells(dry_run(Partial(train, model=1)))

    def test_there_is_a_row_for_every_argument_with_its_value_or_default(self) -> None:
        shown = cells(dry_run(Partial(train, model="m", steps=3)))
        assert ["model", "'m'"] in shown
        assert ["optimizer", "None"] in shown
        assert ["steps", "3"] in shown

    def test_extra_keywords_have_rows(self) -> None:
        assert ["anything", "1"] in cells(dry_run(Partial(gather, anything=1)))

    def test_arguments_without_a_name_do_not_stop_it(self) -> None:
        assert ["second", "5"] in cells(dry_run(Partial(spread, 1, 5, 6)))

    @pytest.mark.parametrize("kind", [Config, Partial])
    def test_nested_configs_are_shown_as_calls(self, kind: Any) -> None:
        text = dry_run(Partial(train, model=kind(Model, width=3), optimizer=[kind(Layer)]))
        assert ["model", "Model(width=3)"] in cells(text)
        assert ["optimizer", "[Layer()]"] in cells(text)
        assert not re.search(r"<(Config|Partial)\[|\]>", text)

    @pytest.mark.parametrize(
        ("task", "name"),
        [(Partial(Point), "x"), (Partial(train, steps=1), "model"), (Config(Optimizer), "betas")],
        ids=["required field", "required parameter", "default factory"],
    )
    def test_an_unset_argument_has_a_placeholder(self, task: Any, name: str) -> None:
        row = next(line for line in cells(dry_run(task)) if line[:1] == [name])
        assert len(row) == 2

    @pytest.mark.parametrize("value", ["[red]x", "[/a]", "[link=x]y", ":smile:"])
    def test_text_that_looks_like_markup_is_shown_as_it_is(self, value: str) -> None:
        assert ["model", repr(value)] in cells(dry_run(Partial(train, model=value)))

    def test_without_an_executor_there_is_one_table(self) -> None:
        assert "Executor" not in dry_run(Partial(train, model=1))

    def test_an_executor_is_shown_in_a_second_table(self) -> None:
        from nemo_run.core.execution.local import LocalExecutor

        text = dry_run(Partial(train, model=1), executor=LocalExecutor(ntasks_per_node=3))
        assert "LocalExecutor(" in text
        assert "ntasks_per_node=3" in text

    def test_nothing_is_built_unless_asked_for(self) -> None:
        dry_run(Config(fail))

    def test_the_task_is_built_when_asked_for(self) -> None:
        built: list[str] = []

        def model() -> str:
            built.append("model")
            return "model"

        dry_run(Partial(train, model=Config(model)), build=True)
        assert built == ["model"]

    def test_the_table_comes_before_an_error_in_building(self) -> None:
        with CONSOLE.capture() as captured, pytest.raises(LookupError, match="no luck"):
            dryrun_fn(Config(fail), build=True)
        assert ["message", "'no luck'"] in cells(captured.get())

    @pytest.mark.parametrize(
        ("script", "command"),
        [
            (Script("job.sh", args=["--lr", "1"]), "bash job.sh --lr 1"),
            (Script("pkg.mod", entrypoint="python", m=True), "python -m pkg.mod"),
            (Script(inline="echo hello"), "echo hello"),
        ],
        ids=["path", "module", "inline"],
    )
    def test_a_script_is_shown_as_its_command(self, script: Script, command: str) -> None:
        shown = dry_run(script).replace(",", " ").replace("'", "")
        assert command in " ".join(shown.split())

    def test_the_task_module_has_the_same_function(self) -> None:
        from nemo_run.run import task

        assert task.dryrun_fn is dryrun_fn


def build_net(
    net: Model,
    part: Union[Layer, Optimizer],
    head: Optional[Outer.Inner] = None,
    steps: int = 10,
    rate=0.25,
) -> None:
    """Build a net."""


def lonely(size: int = 3) -> None:
    """Have no factories."""


def nothing() -> None:
    """Have no arguments."""


def small_model() -> Config[Model]:
    """Make a model that is [small]."""
    return Config(Model, width=1)


def small_layer() -> Config[Layer]:
    """Make a small layer."""
    return Config(Layer)


def slow_optimizer() -> Config[Optimizer]:
    """Make a slow optimizer."""
    return Config(Optimizer, lr=0.001)


def small_recipe() -> Partial[Any]:
    """Make everything small."""
    return Partial(build_net, net=small_model())


def help_test_executor() -> Any:
    """Run it on this machine."""
    from nemo_run.core.execution.local import LocalExecutor

    return Config(LocalExecutor)


@pytest.fixture(scope="module")
def factories() -> None:
    """Register the functions above; the registry is one for the whole process."""
    from nemo_run.cli import factory
    from nemo_run.core.execution.base import Executor

    factory(small_model, target=Model)
    factory(small_layer, target=Layer)
    factory(slow_optimizer, target=Optimizer)
    factory(small_recipe, target=build_net)
    factory(help_test_executor, target=Executor)


def helped(entity: Any, **kwargs: Any) -> str:
    console = Console(file=io.StringIO(), width=160)
    help(entity, console=console, **kwargs)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def panel(text: str, title: str) -> str:
    """Return the part of ``text`` from the panel's title to the next panel."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if title in line)
    rest = lines[start + 1 :]
    end = next((number for number, line in enumerate(rest) if "╭" in line), len(rest))
    return "\n".join(rest[:end])


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


class TestHelp:
    def test_arguments_have_name_type_and_default(self) -> None:
        shown = cells(panel(helped(build_net), "Arguments"))
        assert ["steps", "int", "10"] in shown
        assert ["net", f"{Model.__module__}.Model"] in shown

    def test_an_argument_without_annotation_shows_its_default(self) -> None:
        rows = cells(panel(helped(build_net), "Arguments"))
        row = next(row for row in rows if row[:1] == ["rate"])
        assert row[-1] == "0.25"
        assert "_empty" not in " ".join(row)

    def test_a_function_without_factories_has_no_panel_of_them(self) -> None:
        assert not re.search(r"(?i)pre-loaded", helped(lonely))

    def test_a_function_without_arguments_has_no_panel_of_them(self) -> None:
        assert "Arguments" not in helped(nothing)

    @pytest.mark.parametrize("entity", [3, "text", None, [1]])
    def test_what_cannot_be_called_gets_a_notice(self, entity: Any) -> None:
        text = helped(entity)
        assert str(entity) in text
        assert "Arguments" not in text

    def test_without_a_console_it_is_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        help(lonely)
        assert "size" in capsys.readouterr().out

    def test_a_console_gets_all_of_it(self, capsys: pytest.CaptureFixture[str]) -> None:
        helped(build_net)
        assert capsys.readouterr().out == ""

    def test_a_namespace_is_accepted(self) -> None:
        assert "Arguments" in helped(lonely, namespace="anything")


@pytest.mark.usefixtures("factories")
class TestHelpWithFactories:
    def test_a_factory_of_an_argument_shows_name_function_and_line(self) -> None:
        text = panel(helped(build_net), f"Factory for net: {Model.__module__}.Model")
        assert "small_model" in text
        assert f"{__name__}.small_model" in text
        assert f"line {line_of(small_model)}" in text

    def test_docstrings_are_shown_word_for_word(self) -> None:
        assert "Make a model that is [small]." in helped(build_net)

    def test_docstrings_can_be_left_out(self) -> None:
        text = helped(build_net, with_docs=False)
        assert "Make a model" not in text
        assert "small_model" in text

    def test_factories_of_every_member_of_a_union_are_shown(self) -> None:
        text = helped(build_net)
        assert "small_layer" in text
        assert "slow_optimizer" in text

    def test_an_argument_without_factories_has_no_panel(self) -> None:
        text = helped(build_net)
        assert "Factory for head" not in text
        assert "Factory for steps" not in text

    def test_factories_of_the_function_come_first(self) -> None:
        text = helped(build_net)
        title = re.search(r"(?i)pre-loaded entrypoint factor", text)
        assert title is not None
        assert title.start() < text.index("Arguments")
        assert "small_recipe" in text
        assert "Make everything small." in text

    def test_executors_are_listed(self) -> None:
        text = panel(helped(lonely), "Registered executors")
        assert "help_test_executor" in text
        assert "Run it on this machine." in text

    def test_classes_have_help_too(self) -> None:
        text = helped(Model)
        assert ["width", "int", "8"] in cells(panel(text, "Arguments"))
        assert "small_model" in text


class TestClassToStr:
    @pytest.mark.parametrize(
        ("hint", "text"),
        [
            (int, "int"),
            (str, "str"),
            (Model, f"{Model.__module__}.Model"),
            (Path, "pathlib.Path"),
            (Optional[int], "Optional[int]"),
            (Optional[Model], f"Optional[{Model.__module__}.Model]"),
            (Union[int, str], "int | str"),
            (int | str, "int | str"),
            (list[int], "list[int]"),
            (List[int], "list[int]"),
            (dict[str, int], "dict[str, int]"),
            (Dict[str, Optional[int]], "dict[str, Optional[int]]"),
            (list[int | str], "list[int | str]"),
        ],
        ids=str,
    )
    def test_a_type_is_shown_as_people_write_it(self, hint: Any, text: str) -> None:
        assert class_to_str(hint) == text

    @pytest.mark.parametrize("hint", [tuple[int, ...], Callable[[int], str], Any, None, "Model"])
    def test_every_annotation_can_be_shown(self, hint: Any) -> None:
        assert class_to_str(hint)


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Our logger as nobody has configured it, put back as it was afterwards."""
    ours = logging.getLogger("nemo_run")
    handlers, level, propagate = ours.handlers[:], ours.level, ours.propagate
    # Pytest adds handlers to a logger that an earlier test has left configured.
    ours.handlers[:], ours.propagate = [], True
    yield ours
    ours.handlers[:], ours.propagate = handlers, propagate
    ours.setLevel(level)


class TestLogging:
    @pytest.mark.parametrize("level", ["INFO", "info", "Warning", "debug"])
    def test_the_level_is_set_on_our_logger(self, logger: logging.Logger, level: str) -> None:
        configure_logging(level)
        assert logger.getEffectiveLevel() == logging.getLevelName(level.upper())

    def test_lines_go_through_a_rich_handler(self, logger: logging.Logger) -> None:
        configure_logging("INFO")
        (handler,) = logger.handlers
        assert isinstance(handler, RichHandler)

    def test_a_line_is_the_time_of_day_the_level_and_the_message(
        self, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
    ) -> None:
        configure_logging("INFO")
        logging.getLogger("nemo_run.run").info("submitted")
        printed = capsys.readouterr()
        assert re.match(r"\[\d\d:\d\d:\d\d\] INFO +submitted\b", printed.out + printed.err)

    def test_configuring_again_replaces_the_handler(self, logger: logging.Logger) -> None:
        configure_logging("INFO")
        configure_logging("ERROR")
        assert len(logger.handlers) == 1
        assert logger.getEffectiveLevel() == logging.ERROR

    def test_the_application_s_logging_is_left_alone(self, logger: logging.Logger) -> None:
        root = logging.getLogger()
        before = root.handlers[:], root.level
        configure_logging("DEBUG")
        assert (root.handlers, root.level) == before
        deconfigure_logging()
        assert (root.handlers, root.level) == before

    def test_deconfiguring_takes_the_handler_away(self, logger: logging.Logger) -> None:
        configure_logging("INFO")
        deconfigure_logging()
        assert not any(isinstance(handler, RichHandler) for handler in logger.handlers)

    def test_deconfiguring_twice_is_fine(self, logger: logging.Logger) -> None:
        configure_logging("INFO")
        deconfigure_logging()
        deconfigure_logging()

    def test_deconfiguring_leaves_handlers_of_others(self, logger: logging.Logger) -> None:
        configure_logging("INFO")
        other = logging.NullHandler()
        logger.addHandler(other)
        deconfigure_logging()
        assert logger.handlers == [other]

    def test_deconfiguring_first_leaves_handlers_of_others(self, logger: logging.Logger) -> None:
        other = logging.NullHandler()
        logger.handlers[:] = [other]
        deconfigure_logging()
        assert logger.handlers == [other]

    def test_a_line_is_shown_once(
        self, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
    ) -> None:
        configure_logging("INFO")
        logging.getLogger("nemo_run.run").info("submitted")
        printed = capsys.readouterr()
        assert (printed.out + printed.err).count("submitted") == 1


class TestConsole:
    def test_there_is_one_for_the_process(self) -> None:
        from nemo_run.core.frontend.console import api as again

        assert isinstance(CONSOLE, Console)
        assert again.CONSOLE is CONSOLE

    @pytest.mark.parametrize(
        ("name", "setting"),
        [
            ("show_lines", "STYLE_COMMANDS_TABLE_SHOW_LINES"),
            ("leading", "STYLE_COMMANDS_TABLE_LEADING"),
            ("border_style", "STYLE_COMMANDS_TABLE_BORDER_STYLE"),
            ("row_styles", "STYLE_COMMANDS_TABLE_ROW_STYLES"),
            ("pad_edge", "STYLE_COMMANDS_TABLE_PAD_EDGE"),
            ("padding", "STYLE_COMMANDS_TABLE_PADDING"),
        ],
    )
    def test_tables_look_like_those_of_the_command_line(self, name: str, setting: str) -> None:
        assert TABLE_STYLES[name] == getattr(typer.rich_utils, setting)

    def test_boxes_look_like_those_of_the_command_line(self) -> None:
        typer_box = getattr(rich.box, typer.rich_utils.STYLE_COMMANDS_TABLE_BOX, None)
        assert rendered(box=BOX_STYLE) == rendered(box=typer_box)

    def test_a_table_takes_the_styles(self) -> None:
        assert "a" in rendered(**TABLE_STYLES)


def rendered(**styles: Any) -> str:
    table = Table(**styles)
    table.add_row("a", "b")
    console = Console(file=io.StringIO())
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
