"""What the text after ``=`` becomes, for parameters of every kind, all in one command."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from tests.cli import commands

import nemo_run as run

# A word, and what the function gets.
WORDS = {
    "integer=1_000": "1000",
    "number=1e-3": "0.001",
    "text='None'": "'None'",
    "flag=YES": "True",
    "other_flag=off": "False",
    "several=[1, 2]": "[1, 2]",
    "old_style=['a', \"b\"]": "['a', 'b']",
    "table={'a': 1}": "{'a': 1}",
    "old_table={'a': 1}": "{'a': 1.0}",
    "entries.a=1": "{'a': 1}",
    "plain_list=[1, 'x']": "[1, 'x']",
    "plain_dict={'a': [1]}": "{'a': [1]}",
    "maybe=None": "None",
    "either=5": "5",
    "new_either=null": "None",
    "choice=slow": "'slow'",
    "number_choice=3": "3",
    "path='some dir/file'": "PosixPath('some dir/file')",
    "anything={'a': (1, 2)}": "{'a': (1, 2)}",
    "any_word=true": "'true'",
    "quoted=7": "7",
    "pair=(3, 'x')": "(3, 'x')",
    "row=(1, 2, 3)": "(1, 2, 3)",
    "group={1, 2}": "{1, 2}",
    "colour=BLUE": "<Colour.BLUE: 2>",
    "point.y=4": "Point(x=0, y=4)",
    "later=x/y": "PosixPath('x/y')",
    "raw=b'a'": "b'a'",
    "function=os.fspath": "<built-in function fspath>",
    "kind=__main__.Point": "<class '__main__.Point'>",
    "unannotated=0.5": "0.5",
    "unannotated_list=[1, 2]": "[1, 2]",
    "unannotated_none=None": "None",
    "keyword_only = 6": "6",
    "more=8": "8",
}


@pytest.fixture(scope="module")
def got(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("kinds")
    home = {"NEMORUN_HOME": str(directory / "home"), "INCLUDE_WORKSPACE_FILE": "false"}
    result = commands.script("kinds.py", *WORDS, cwd=directory, env=home)
    assert result.code == 0, result.err
    return dict(line.split(": ", 1) for line in result.lines if ": " in line)


@pytest.mark.parametrize("word", WORDS)
def test_a_text_becomes_what_the_annotation_says(got: dict[str, str], word: str) -> None:
    name = word.partition("=")[0].partition(".")[0].strip()
    assert got[name] == WORDS[word]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("raw=text", "bytes literal"),
        ("function=os.nothing", "os.nothing"),
        ("kind=os.getcwd", "'os.getcwd' is not type[Point]"),
        ("kind=collections.Counter", "'collections.Counter' is not type[Point]"),
        ("path=@path.yaml", "NUL"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(tmp_path: Path, word: str, says: str) -> None:
    (tmp_path / "path.yaml").write_text('"a\\0b"\n')  # no argument can hold it
    home = {"NEMORUN_HOME": str(tmp_path / "home"), "INCLUDE_WORKSPACE_FILE": "false"}
    result = commands.script("kinds.py", word, cwd=tmp_path, env=home)
    assert result.code == 2
    assert says in result.err
    assert "Traceback" not in result.err


def _numbers(rate: float = 0.1, size: int = 1, perhaps: float | None = None) -> None: ...


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("rate=math.pi", math.pi),
        ("rate=sys.maxsize", float(sys.maxsize)),
        ("size=sys.maxsize", sys.maxsize),
        ("perhaps=math.tau", math.tau),
    ],
)
def test_a_number_of_a_module_is_a_number(word: str, value: float) -> None:
    config = run.cli.parse_cli_args(_numbers, [word])
    assert getattr(config, word.partition("=")[0]) == value


@pytest.mark.parametrize("word", ["size=math.pi", "rate=os.name", "rate=math.sqrt", "rate=no.such"])
def test_what_is_no_number_of_a_module_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="Failed to parse"):
        run.cli.parse_cli_args(_numbers, [word])


def test_a_file_that_may_be_a_text_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(source: int | str = "", rate: float | Path | None = None) -> None: ...

    (tmp_path / "passed_on.py").write_text("raise SystemExit('was executed')")
    monkeypatch.syspath_prepend(tmp_path)
    config = run.cli.parse_cli_args(fit, ["source=passed_on.py", "rate=passed_on.py"])
    assert (config.source, config.rate) == ("passed_on.py", Path("passed_on.py"))
