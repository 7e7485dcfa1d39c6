"""A stored task is built without Fiddle, and just as Fiddle would."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import fiddle as fdl
import pytest
from hypothesis import given
from tests.unit.config_targets import Box
from tests.unit.test_config_hypothesis import EXAMPLES, all_trees, same

from nemo_run.config import Config, Partial
from nemo_run.core.serialization.build import NeedsFiddleError, build_text
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer


def text_of(cfg: Any) -> str:
    return ZlibJSONSerializer().serialize(cfg)


def collect(first: Any, /, second: Any, *rest: Any, key: Any = None, **more: Any) -> Any:
    return first, second, rest, key, more


@given(cfg=all_trees)
@EXAMPLES
def test_the_result_is_that_of_fiddle(cfg: Any) -> None:
    assert same(build_text(text_of(cfg)), fdl.build(cfg))


@pytest.mark.parametrize(
    "cfg",
    [
        Config(collect, 1, 2),
        Config(collect, 1, second=2, key=3, other=4),
        Config(collect, 1, 2, 3, 4, key=5, other=6),
    ],
)
def test_positional_arguments_keep_their_places(cfg: Any) -> None:
    assert build_text(text_of(cfg)) == fdl.build(cfg)


def test_a_shared_config_is_built_once() -> None:
    shared = Config(Box, value=1)
    built = build_text(text_of(Config(Box, value=shared, other=[shared])))
    assert built.value is built.other[0]


def test_the_outermost_config_can_be_had_as_a_partial() -> None:
    task = build_text(text_of(Config(Box, value=Config(Box))), as_partial=True)
    assert isinstance(task, functools.partial)
    assert isinstance(task.keywords["value"], Box)
    assert build_text(text_of(Partial(Box, value=1)), as_partial=True)().value == 1


def test_what_only_fiddle_can_build_is_left_to_it_before_anything_is_called(
    tmp_path: Path,
) -> None:
    cfg = Config(Box, value=Config(Path.touch, tmp_path / "called"), other=fdl.ArgFactory(Box))
    with pytest.raises(NeedsFiddleError):
        build_text(text_of(cfg))
    assert not (tmp_path / "called").exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before 3.11")
def test_a_failing_constructor_is_named_with_its_place() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        build_text(text_of(Config(Box, value=[Config(Path.read_text, Path("/no/such/file"))])))
    assert getattr(caught.value, "__notes__", None) == [
        "(while building Path.read_text at <root>.value[0])"
    ]


def test_running_a_task_loads_neither_fiddle_nor_torchx(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.write_text(text_of(Partial(subprocess.list2cmdline, ["a b"])))
    code = (
        "import sys; from nemo_run.core.runners.fdl_runner import main; main(sys.argv[1:]);"
        "print(sorted({'fiddle', 'torchx', 'rich', 'typer', 'yaml'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, "-n", "job", str(task)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout == "[]\n"
