"""Words for None, and numbers in quotes: the same on command lines, in files and in lazy tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run.cli.api import RunContext
from nemo_run.cli.cli_parser import ParseError, parse_cli_args
from nemo_run.cli.commands.exports import export


def task(
    word: str = "x",
    maybe: str | None = "x",
    count: int | None = 1,
    new: int | None = 1,
    either: int | str = 0,
    rather: str | float = "",
    number: int = 0,
    part: float = 0.0,
    several: list[int | None] = [],  # noqa: B006
    table: dict[str, str | None] = {},  # noqa: B006
    anything: Any = 1,
) -> None: ...


def by_words(name: str, text: str, tmp_path: Path) -> Any:
    return getattr(parse_cli_args(task, [f"{name}={text}"]), name)


def by_a_file(name: str, text: str, tmp_path: Path) -> Any:
    path = tmp_path / "task.json"
    path.write_text(json.dumps({name: text}))
    return getattr(RunContext(name="x", yaml=str(path)).parse_fn(task, []), name)


def by_assignment(name: str, text: str, tmp_path: Path) -> Any:
    lazy = run.LazyEntrypoint(task)
    setattr(lazy, name, text)
    return getattr(lazy.resolve(), name)


def by_a_lazy_file(name: str, text: str, tmp_path: Path) -> Any:
    return getattr(run.LazyEntrypoint(task, yaml=json.dumps({name: text})).resolve(), name)


WAYS = [by_words, by_a_file, by_assignment, by_a_lazy_file]


@pytest.mark.parametrize("say", WAYS)
@pytest.mark.parametrize("word", ["None", "none", "null", "NULL"])
class TestNone:
    @pytest.mark.parametrize("name", ["maybe", "count", "new", "anything"])
    def test_a_word_for_it_is_none_where_that_is_allowed(
        self, say: Any, word: str, name: str, tmp_path: Path
    ) -> None:
        assert say(name, word, tmp_path) is None

    @pytest.mark.parametrize("name", ["word", "either"])
    def test_it_is_text_where_it_is_not(
        self, say: Any, word: str, name: str, tmp_path: Path
    ) -> None:
        assert say(name, word, tmp_path) == word


def test_words_for_none_inside_of_lists_and_dicts_of_files(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text("several: [1, None, null]\ntable: {a: None, b: none, c: word}\n")
    made = RunContext(name="x", yaml=str(path)).parse_fn(task, [])
    assert made.several == [1, None, None]
    assert made.table == {"a": None, "b": None, "c": "word"}


@pytest.mark.parametrize("format", ["yaml", "toml", "json"])
def test_a_text_that_is_such_a_word_comes_back_from_a_file(tmp_path: Path, format: Any) -> None:
    made = run.Partial(task, maybe="none", word="null", table={"a": "None"}, count=None)
    path = str(tmp_path / f"task.{format}")
    export(made, path, format)
    again = RunContext(name="x", yaml=path).parse_fn(task, [])
    assert (again.maybe, again.word, again.table) == ("none", "null", {"a": "None"})
    assert again.count is None
    assert type(made.maybe) is str  # what was exported is as it was


class TestQuotedNumbers:
    @pytest.mark.parametrize("text", ["'2'", '"2"'])
    @pytest.mark.parametrize("name", ["either", "rather", "word", "maybe", "anything"])
    def test_they_are_text_where_text_is_taken(self, name: str, text: str, tmp_path: Path) -> None:
        assert by_words(name, text, tmp_path) == "2"

    @pytest.mark.parametrize(
        ("name", "text"), [("number", "'2'"), ("part", "'2.5'"), ("count", "'2'")]
    )
    def test_they_are_refused_where_it_is_not(self, name: str, text: str, tmp_path: Path) -> None:
        with pytest.raises(ParseError, match="what is in quotes is text"):
            by_words(name, text, tmp_path)

    @pytest.mark.parametrize("say", [by_a_file, by_assignment, by_a_lazy_file])
    def test_strings_of_files_and_programs_are_text_in_a_union(
        self, say: Any, tmp_path: Path
    ) -> None:
        assert say("either", "2", tmp_path) == "2"
        assert say("rather", "2.5", tmp_path) == "2.5"
        # Where only a number will do it is one, as files hold what variables are set to.
        assert say("number", "2", tmp_path) == 2
