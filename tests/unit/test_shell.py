"""What is rendered arrives, through real shells."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nemo_run._shell import assignment, export, render
from nemo_run.exceptions import ConfigError

SHELLS = ["bash", "dash", "/bin/sh"]

AWKWARD = [
    "",
    " ",
    "a b",
    'say "hi"',
    "it's",
    "'",
    '"',
    "\\",
    "\\\\",
    "a\\",
    "$HOME",
    "${HOME}",
    "$(id)",
    "`id`",
    "$((1+1))",
    "$'a'",
    "$",
    "$$",
    "$1",
    "$@",
    "~",
    "~root",
    "a=~",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "!",
    "!!",
    "#",
    "# no comment",
    ";",
    "&",
    "|",
    ">",
    "a\nb",
    "\n",
    "a\r\nb",
    "\t",
    "-",
    "--",
    "-n",
    "--x=y z",
    "%s%d",
    "50% off; $HOME",
    "naïve 日本語 🙂",
    "\u0081\u0082\u0088",
    "\x01\x7f\x80\x1b[0m",
    "\u2028\u00a0",
    "\ufeff",
]

# All of unicode but NUL, with the characters shells care about made likely.
CHARACTERS = st.one_of(
    st.sampled_from(list("'\"\\$`!~*?[]{}()<>|&;#=%@+:,. \t\n\r-_aA1")),
    st.characters(codec="utf-8", exclude_characters="\0"),
)
TEXT = st.text(CHARACTERS, max_size=12)


def run(shell: str, command: str, env: dict[str, str] | None = None) -> bytes:
    result = subprocess.run(
        [shell, "-c", command.encode()],
        env={"PATH": os.environ["PATH"], **(env or {})},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b""), command
    return result.stdout


def arrives(
    shell: str,
    args: Sequence[str],
    expand: Collection[str] = (),
    env: dict[str, str] | None = None,
) -> list[str]:
    """Run a program of its own, not a builtin, and return the arguments it was given."""
    command = render(["/usr/bin/printf", "%s\\0", "start", *args], expand)
    start, *words, end = run(shell, command, env).decode().split("\0")
    assert (start, end) == ("start", "")
    return words


def test_rendering_reads_as_one_would_write_it() -> None:
    argv = ["torchrun", "--rdzv-endpoint", "$head_node_ip:29500", "--note", "50% off; $HOME"]
    assert render(argv, expand={"head_node_ip"}) == (
        """torchrun --rdzv-endpoint "${head_node_ip}":29500 --note '50% off; $HOME'"""
    )


def test_no_arguments_render_as_no_text() -> None:
    assert render([]) == ""
    assert render([""]) == "''"


@pytest.mark.parametrize("shell", SHELLS)
def test_awkward_arguments_arrive_unchanged(shell: str) -> None:
    assert arrives(shell, AWKWARD) == AWKWARD


@pytest.mark.parametrize("shell", SHELLS)
def test_awkward_arguments_arrive_unchanged_from_a_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    text = render(["/usr/bin/printf", "%s\\0", *AWKWARD])
    script.write_bytes(f"set -eu\n{text}\n".encode())
    result = subprocess.run([shell, script], capture_output=True, check=True)
    assert result.stdout.decode().split("\0")[:-1] == AWKWARD


@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(max_examples=150, deadline=None)
@given(args=st.lists(TEXT, max_size=6))
def test_any_arguments_arrive_unchanged(shell: str, args: list[str]) -> None:
    assert arrives(shell, args) == args


@given(args=st.lists(st.text(st.characters(exclude_characters="\0"))))
def test_any_arguments_are_split_back_by_shlex(args: list[str]) -> None:
    assert shlex.split(render(args)) == args


VALUE = "  *  a\n'b'\"c\" $HOME `id` \\ é -n "
NAMES = ["head_node_ip", "_x1", "PATH2"]

# An argument in pieces: text meant literally, or the name of a variable in one of two forms.
PIECES = st.lists(
    st.tuples(st.just("text"), TEXT)
    | st.tuples(st.sampled_from(["plain", "braced"]), st.sampled_from(NAMES)),
    max_size=5,
)


def compose(pieces: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return an argument and what should arrive of it."""
    argument = expected = ""
    # From the end, to see what comes after a name.
    for kind, content in reversed(pieces):
        if kind == "text":
            # Without these, text cannot spell a variable by chance.
            literal = content.replace("_", "-").replace("$P", "$p")
            argument, expected = literal + argument, literal + expected
            continue
        runs_on = re.match(r"[A-Za-z0-9_]", argument)
        form = f"${{{content}}}" if kind == "braced" or runs_on else f"${content}"
        argument, expected = form + argument, f"{VALUE}<{content}>{expected}"
    return argument, expected


@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(max_examples=150, deadline=None)
@given(arguments=st.lists(PIECES, max_size=4))
def test_named_variables_become_their_value_and_nothing_else_changes(
    shell: str, arguments: list[list[tuple[str, str]]]
) -> None:
    composed = [compose(pieces) for pieces in arguments]
    env = {name: f"{VALUE}<{name}>" for name in NAMES}
    words = arrives(shell, [text for text, _ in composed], expand=NAMES, env=env)
    assert words == [expected for _, expected in composed]


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("$x", "1 *"),
        ("${x}", "1 *"),
        ("a$x", "a1 *"),
        ("${x}b", "1 *b"),
        ("$x$x", "1 *1 *"),
        ("$x:$y", "1 *:$y"),
        ("$xb", "$xb"),
        ("$x_", "$x_"),
        ("$x1", "$x1"),
        ("$xé", "1 *é"),
        ("$x-", "1 *-"),
        ("$$x", "$1 *"),
        ("\\$x", "\\1 *"),
        ("'$x'", "'1 *'"),
        ('"$x"', '"1 *"'),
        ("${x:-z}", "${x:-z}"),
        ("${x", "${x"),
        ("${ x}", "${ x}"),
        ("${#x}", "${#x}"),
        ("$(x)", "$(x)"),
        ("$x[0]", "1 *[0]"),
        ("$X", "$X"),
        ("x", "x"),
        ("$HOME", "$HOME"),
        ("$1", "$1"),
        ("~$x", "~1 *"),
    ],
)
def test_only_whole_names_that_were_given_expand(shell: str, argument: str, expected: str) -> None:
    assert arrives(shell, [argument], expand={"x"}, env={"x": "1 *", "y": "2"}) == [expected]


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_an_unset_variable_expands_to_an_empty_argument(shell: str) -> None:
    assert arrives(shell, ["$x", "b"], expand={"x"}) == ["", "b"]


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize(
    "program",
    [
        *("if", "while", "time", "in", "function", "{", "!", "[[", "A=b", "A+=b", "a[0]=b"),
        *("a b", "é", "#x", "~x", "-x", "--x", "+x", "'", "=", "-c", "a=b c"),
    ],
)
def test_the_first_word_is_a_program_whatever_it_is_called(
    shell: str, program: str, tmp_path: Path
) -> None:
    path = tmp_path / program
    path.write_text("#!/bin/sh\nprintf 'ran %s' \"$1\"\n")
    path.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run(shell, render([program, "fine"]), env) == b"ran fine"


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_the_program_can_be_a_variable(shell: str, tmp_path: Path) -> None:
    path = tmp_path / "A=b c"
    path.write_text("#!/bin/sh\necho ran\n")
    path.chmod(0o755)
    env = {"here": str(tmp_path), "c": "c", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert run(shell, render(["$here/A=b c"], expand={"here"}), env) == b"ran\n"
    assert run(shell, render(["A=b $c"], expand={"c"}), env) == b"ran\n"


@pytest.mark.parametrize("shell", ["bash", "dash"])
@settings(max_examples=100, deadline=None)
@given(value=TEXT)
@example(value="~:~/x")
@example(value="a b=c")
def test_any_value_arrives_in_a_variable(shell: str, value: str) -> None:
    show = 'printf "%s|" "$V"'
    assert run(shell, f"{assignment('V', value)}; {show}").decode() == f"{value}|"
    # A child of the shell sees it only if it was exported.
    child = "/usr/bin/printenv V"
    assert run(shell, f"{export('V', value)}; {child}").decode() == f"{value}\n"
    assert run(shell, f"{assignment('V', value)} {child}").decode() == f"{value}\n"


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_value_may_name_variables_too(shell: str) -> None:
    command = export("V", "http://$host:1 $HOME", expand={"host"}) + "; /usr/bin/printenv V"
    assert run(shell, command, {"host": "a *  b"}) == b"http://a *  b:1 $HOME\n"


def test_assignments_read_as_one_would_write_them() -> None:
    assert assignment("A", "b") == "A=b"
    assert assignment("A", "") == "A=''"
    assert export("PATH", "$PATH:/x y", expand={"PATH"}) == """export PATH="${PATH}"':/x y'"""


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "é", "A\n", "$A", "A;id", "A\0"])
def test_a_name_no_variable_can_have_is_refused(name: str) -> None:
    for use in (
        lambda: assignment(name, "x"),
        lambda: export(name, "x"),
        lambda: render(["a"], expand=[name]),
        lambda: assignment("A", "x", expand=[name]),
    ):
        with pytest.raises(ConfigError, match="cannot be the name of an environment variable"):
            use()


def test_a_nul_is_refused_without_showing_what_may_be_a_secret() -> None:
    with pytest.raises(ConfigError, match="argument 1 contains a NUL"):
        render(["a", "b\0c"])
    with pytest.raises(ConfigError, match="argument 0 contains a NUL"):
        render(["$x\0"], expand={"x"})
    with pytest.raises(ConfigError, match="the value of TOKEN contains a NUL") as caught:
        assignment("TOKEN", "hunter2\0")
    assert "hunter2" not in str(caught.value)


def test_text_in_place_of_a_list_is_a_mistake_that_is_said() -> None:
    with pytest.raises(TypeError, match="a list of arguments"):
        render("ls -l")
