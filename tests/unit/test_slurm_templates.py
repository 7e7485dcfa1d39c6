"""A command in a template of the user's, whatever quotes are around its place."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nemo_run as run
from nemo_run._values import Expandable
from nemo_run.exceptions import ConfigError

# In each the command is run once, and prints to the standard output.
PLACES = {
    "a line": "{{ command }}",
    "with others": "set -e; cd / && { {{ command }} ; } && :",
    "single quotes": "bash -c '{{ command }}'",
    "single quotes, later": "bash -c 'cd /; {{ command }}; exit $?'",
    "double quotes": 'bash -c "cd / && {{ command }}"',
    "double quotes with others": 'X=1; bash -c "Y=\\"$X\\"; {{ command }}"',
    "quotes that were closed": "bash -c 'echo '\\''it is'\\'' >/dev/null; {{ command }}'",
    "mixed": "bash -c 'X='\"'a b'\"'; '\"{{ command }}\"",
    "dollar quotes": "bash -c $'{{ command }}'",
    "a here-document": "bash <<END\n{{ command }}\nEND",
    "a here-document as it is": "bash <<'END'\ncd /\n{{ command }}\nEND",
    "one with tabs": "if :; then\n\tbash <<-END\n\t{{ command }}\n\tEND\nfi",
    "the second of two": "cat <<A >/dev/null; bash <<'B'\nit's\nA\n{{ command }}\nB",
    "after one": "cat >/dev/null <<END\nit's \"\nEND\n{{ command }}",
    "a function": "run() {\n  {{ command }}\n}\nrun",
    "a variable": 'line="{{ command }}"\neval "$line"',
    "a substitution": 'exec 3>&1; : "$({{ command }} >&3)"',
    "quotes in a substitution": "exec 3>&1; : \"$(bash -c '{{ command }} >&3')\"",
    "after a comment": "# don't \" {{ command }}\n{{ command }} # it's {{ command }}",
    "after what looks like one": 'set -- a; : $# a#b; bash -c "{{ command }}"',
    "after case": "case a in (b) ;; a) {{ command }} ;; esac",
    "after sums": "x=$((1 << 2)); ((x > 1)); bash -c '{{ command }}'",
    "after a here-string": "cat <<< \"it's\" >/dev/null; bash -c '{{ command }}'",
    "after words that are shown": 'echo "it\'s {{ command }}" >/dev/null\n{{ command }}',
    "after arrays": "x=('a b' \"c'\"); : \"${x[@]}\" '('; bash -c '{{ command }}'",
}
NESTED = {
    "quotes in quotes": "bash -c \"bash -c '{{ command }}'\"",
    "the other way round": "bash -c 'bash -c \"{{ command }}\"'",
    "escaped quotes": 'bash -c "bash -c \\"{{ command }}\\""',
    "backticks": 'x=`{{ command }}`; echo "$x"',
    "a default": 'unset X; eval "${X:-{{ command }}}"',
}
CHARACTERS = st.one_of(
    st.sampled_from(list("'\"\\$`!~*?[]{}()<>|&;#=%@+:,. \t\n-_aA1")),
    st.characters(codec="utf-8", exclude_characters="\0\r"),
)


def script_for(template: str, argv: list[str]) -> str:
    return run.SlurmTemplate(template_inline=f"{template}\n").render_template(argv)


def printed(script: str, **env: str) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", script.encode()],
        env={"PATH": os.environ["PATH"], **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), script
    return done.stdout.decode().split("\0")[:-1]


def show(*args: str) -> list[str]:
    return ["/usr/bin/printf", "%s\\0", *args]


@pytest.mark.parametrize("place", PLACES)
class TestPlaces:
    @settings(max_examples=25, deadline=None)
    @given(words=st.lists(st.text(CHARACTERS, max_size=10), min_size=1, max_size=4))
    @example(words=["a b", "it's", 'say "hi"', "$HOME", "`id`", "\\", "", "x\ny", "#", "END", "*"])
    def test_any_command_arrives(self, place: str, words: list[str]) -> None:
        assert printed(script_for(PLACES[place], show(*words))) == words

    def test_values_are_filled_in(self, place: str) -> None:
        marked = [Expandable("$A:$(echo 'b  c' \"d\")"), run.literal("$A"), Expandable("\\$A")]
        script = script_for(PLACES[place], show(*marked))
        assert printed(script, A="1  2") == ["1  2:b  c d", "$A", "$A"]


@pytest.mark.parametrize("place", NESTED)
class TestNested:
    def test_plain_words_are_put_anywhere(self, place: str) -> None:
        words = ["echo", "train.py", "--lr=1e-4", "a/b:c", "50%", "x@y", "1,2"]
        script = script_for(NESTED[place], words)
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == " ".join(words[1:]) + "\n"
        assert script == NESTED[place].replace("{{ command }}", " ".join(words)) + "\n"

    @pytest.mark.parametrize("word", ["a b", "it's", "$HOME", ""])
    def test_others_are_refused_with_advice(self, place: str, word: str) -> None:
        with pytest.raises(ConfigError, match="on a line of its own") as caught:
            script_for(NESTED[place], ["echo", word])
        assert "bash <<'END'" in str(caught.value)


def test_a_command_that_would_end_its_document_is_refused() -> None:
    for end in ("END", "\tEND"):
        with pytest.raises(ConfigError, match="document"):
            script_for("bash <<-END\n{{ command }}\nEND", show(f"a\n{end}\nb"))


def test_plain_words_are_as_they_were_in_0_12() -> None:
    template = "bash -c 'module load x; {{ command }}'"
    assert script_for(template, ["python", "train.py", "--n", "4"]) == (
        "bash -c 'module load x; python train.py --n 4'\n"
    )


@pytest.mark.parametrize(
    "template", ["{{ command | length }}", "{{ command.split()[0] }}", "{{ command | upper }}"]
)
def test_a_template_may_make_something_else_of_it(template: str) -> None:
    line = shlex.join(["echo", "a b"])
    wanted = {"length": str(len(line)), "split": "echo", "upper": line.upper()}
    (expected,) = [value for word, value in wanted.items() if word in template]
    assert script_for(template, ["echo", "a b"]) == f"{expected}\n"


def test_a_variable_of_that_name_wins() -> None:
    launcher = run.SlurmTemplate(
        template_inline="{{ command }}", template_vars={"command": "my own"}
    )
    assert launcher.render_template(["echo", "it's"]) == "my own"


def test_a_refused_command_is_refused_before_anything_is_submitted() -> None:
    launcher = run.SlurmTemplate(template_inline=NESTED["quotes in quotes"])
    executor = run.SlurmExecutor(account="a", launcher=launcher, packager=run.Packager())
    with (
        pytest.raises(ConfigError, match=r"\{\{ command \}\}"),
        run.Experiment("refused", executor=executor) as exp,
    ):
        exp.add(run.Script("x.sh", args=["a b"]), name="job")
        exp.dryrun()
