"""Commands as text: what is quoted, what a shell fills in; `test_shell` has real shells."""

from __future__ import annotations

import pytest

from nemo_run._shell import as_word, assignment, export, render, render_in_two, variables_in
from nemo_run._values import Expandable, literal
from nemo_run.exceptions import ConfigError

KEYWORDS = [
    "case",
    "coproc",
    "do",
    "done",
    "elif",
    "else",
    "esac",
    "fi",
    "for",
    "function",
    "if",
    "in",
    "select",
    "then",
    "time",
    "until",
    "while",
]


@pytest.mark.parametrize("word", KEYWORDS)
def test_a_program_with_the_name_of_a_keyword_is_a_program(word: str) -> None:
    assert render([word, word]) == f"''{word} {word}"


@pytest.mark.parametrize("word", ["-x", "+x", "A=1", "=", "${A}=1"])
def test_a_program_is_neither_an_option_nor_an_assignment(word: str) -> None:
    assert render([word, "b"]).startswith("''")
    assert not render(["b", word]).startswith("''")


@pytest.mark.parametrize("word", ["nice", "ls", "other", "tar", "./x", "doing"])
def test_a_program_of_another_name_is_written_as_it_is(word: str) -> None:
    assert render([word, "b"]) == f"{word} b"


def test_an_empty_argument_is_still_one() -> None:
    assert render(["echo", "", literal(""), Expandable("")]) == "echo '' '' ''"


def test_variables_that_are_named_are_left_to_the_shell_wherever_they_stand() -> None:
    text = render(["echo", "a$A-${B}c$A", "$C$AA"], expand=("A", "B"))
    assert text == """echo a"${A}"-"${B}"c"${A}" '$C$AA'"""


def test_a_literal_is_one_whatever_is_named() -> None:
    assert render(["echo", literal("$A")], expand=("A",)) == "echo '$A'"
    assert variables_in(literal("$A"), ("A",)) == set()


def test_the_variables_in_an_argument_are_those_that_the_shell_fills_in() -> None:
    assert variables_in("$A ${B} $C", ("A", "B")) == {"A", "B"}
    assert variables_in("$A") == set()
    assert variables_in(Expandable("$A $(echo $B) \\$C")) == {"A"}


@pytest.mark.parametrize(
    ("command", "run"),
    [
        ("date -u", "date -u"),
        ("< file", "cat < file"),
        ("  <file", "cat   <file"),
        ("<(true)", "<(true)"),
        ("<<< text", "<<< text"),
        ("cat <file", "cat <file"),
    ],
)
def test_a_command_is_run_by_the_shell_and_one_that_only_reads_a_file_by_cat(
    command: str, run: str
) -> None:
    assert render(["echo", Expandable(f"$({command})")]) == f"""echo "$(eval '{run}')\""""


class TestTwoShells:
    def test_what_the_first_shell_knows_becomes_parameters_of_the_second(self) -> None:
        argv = ["run", Expandable("$HOST:$(date)"), "$RANK/$HOST"]
        text, parameters = render_in_two(argv, {"RANK"}, {"RANK", "HOST"})
        assert text == 'run "${1}":"${2}" "${RANK}"/"${3}"'
        assert parameters == ["${HOST}", "$(date)", "${HOST}"]
        assert all(isinstance(one, Expandable) for one in parameters)

    def test_what_is_plain_or_empty_stays_as_it_is(self) -> None:
        assert render_in_two(["if", "a b", "", "$A"], ()) == ("''if 'a b' '' '$A'", [])

    def test_a_later_variable_stays_also_where_the_user_marked_it(self) -> None:
        assert render_in_two(["a", Expandable("$RANK")], {"RANK"}) == ('a "${RANK}"', [])

    def test_what_no_shell_can_take_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="argument 1 contains a NUL"):
            render_in_two(["a", "b\0"], ())
        for names in ((("1A",), ()), ((), ("1A",))):
            with pytest.raises(ConfigError, match="cannot be the name"):
                render_in_two(["a"], *names)


def test_assignments_take_variables_too() -> None:
    assert assignment("A", "x$B", expand=("B",)) == 'A=x"${B}"'
    assert export("A", "x$B", expand=("B",)) == 'export A=x"${B}"'
    assert assignment("A", "") == "A=''"
    with pytest.raises(ConfigError, match="cannot be the name"):
        assignment("A", "x", expand=("B-C",))


@pytest.mark.parametrize("name", ["1A", "A-B", "A B", "", "Ä", "A\n"])
def test_names_that_no_shell_takes_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        render(["echo"], expand=(name,))


@pytest.mark.parametrize("name", ["a", "_", "A1_z", "Z9"])
def test_other_names_are_taken(name: str) -> None:
    assert render([f"x${name}"], expand=(name,)) == f'x"${{{name}}}"'


def test_a_name_that_looks_like_an_option_is_shown_after_two_dashes() -> None:
    assert as_word("plain") == "plain"
    assert as_word("a b") == "'a b'"
    assert as_word("-x y") == "-- '-x y'"
