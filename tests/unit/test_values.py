"""What a job's shell fills in of the values that a user wrote, and what arrives as it is."""

from __future__ import annotations

import copy
import logging
import os
import pickle
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import nemo_run as run
from nemo_run import _shell
from nemo_run._values import (
    Expandable,
    expandable_arguments,
    expandable_environment,
    marks,
    with_marks,
)
from nemo_run.cli.config import ConfigSerializer
from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.core.serialization.build import build_text
from nemo_run.core.serialization.peek import peek
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import AllowList, ZlibJSONSerializer

VALUE = "  *  a\n'b'\"c\" $HOME `id` \\ é -n "
ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/h", "A": VALUE, "_x1": "x; exit 9"}


def bash(script: str) -> str:
    """Return what a script of bash prints."""
    done = subprocess.run(
        ["bash", "-c", script.encode()],
        env=ENVIRONMENT,
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), script
    return done.stdout.decode()


def arrive(texts: Sequence[str]) -> list[str]:
    """Return expandable texts as a program gets them: as arguments, and as variables."""
    marked = [Expandable(text) for text in texts]
    words = _shell.render(["/usr/bin/printf", "%s\\0", "start", *marked])
    start, *arguments, end = bash(words).split("\0")
    assert (start, end) == ("start", "")
    exports = [_shell.export(f"V{n}", text) for n, text in enumerate(marked)]
    shown = "".join(f"printf '%s\\0' \"$V{n}\"\n" for n in range(len(marked)))
    variables = bash("\n".join([*exports, shown])).split("\0")[:-1]
    assert arguments == variables
    return arguments


CHARACTERS = st.one_of(
    st.sampled_from(list("'\"\\$`!~*?[]{}()<>|&;#=%@+:,. \t\n\r-_aA1")),
    st.characters(codec="utf-8", exclude_characters="\0"),
)
TEXT = st.text(CHARACTERS, max_size=12)
# Looked for in another way than the package does.
SOME_FORM = re.compile(r"\$[A-Za-z_]|\$\{[A-Za-z_]\w*\}|\$\(", re.ASCII)


class TestText:
    @settings(max_examples=200, deadline=None)
    @given(texts=st.lists(TEXT, max_size=5))
    @example(texts=["a b", "it's", 'say "hi"', "; exit 9", "a\nexit 9", "`exit 9`", "|&><", "*"])
    @example(texts=["$", "$$", "$1", "$?", "$@", "$#", "$-", "$!", "$*", "50$ off", "a$", "$é"])
    @example(texts=["\\", "a\\b\\", "\\\\", "\\$", "\\$5", "\\n", "\\'", '\\"', "\\`"])
    @example(texts=["${", "${}", "${1}", "${ A}", "${A", "${@}", "${é}", "$[1]", "$'a'", '$"a"'])
    def test_what_has_none_of_the_three_forms_arrives_as_it_is(self, texts: list[str]) -> None:
        assume(not any(SOME_FORM.search(text) for text in texts))
        assert arrive(texts) == texts

    @pytest.mark.parametrize(
        "text",
        [
            *("${A:-x}", "${A:=x}", "${A-x}", "${#A}", "${!A}", "${A%x}", "${A/x/y}", "${A[0]}"),
            *("$((1+1))", "$(( 1 + 1 ))", "$_", "${_}", "$$A", "$$(exit 9)", "$$", "a$$A"),
            # They do not end.
            *("$(", "$(exit 9", "$(a ')'", '$(a ")"', "$(a # b)", "$(don't)", "$(`)"),
        ],
    )
    def test_what_only_looks_like_one_arrives_as_it_is(self, text: str) -> None:
        assert arrive([text]) == [text]

    def test_no_text_is_too_long_to_be_read(self) -> None:
        long = "\\" * 100_000 + "$A"
        assert len(_shell.render([Expandable(long)])) < 100_000


def between_quotes(text: str) -> str:
    """Return letters as bash wants them between double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


PARTS = st.lists(
    st.tuples(st.just("text"), TEXT)
    | st.tuples(
        st.just("form"),
        st.sampled_from(
            [
                *("${A}", "$A", "${_x1}", "$HOME", "$UNSET", "${UNSET}", "$()", "$(:)"),
                *("\\$A", "\\\\$A", "\\\\\\${A}", "\\$(exit 9)", "\\\\$(echo b)"),
                *("$(echo a  b)", '$(echo "a  b")', '$(echo "$A")', "$(printf '%s' ')')"),
                *("$(echo $(echo '(' \"$(echo ')')\"))", "$( (echo a; echo b) )", "$(echo \\))"),
                *("$(echo a; exit 9)", "$(echo a\necho b)", "$(printf 'a\\n\\n')", "$(</dev/null)"),
                *("$(cat <<'.'\n$A (\"a\")\n.\n)", "$(echo a # b)\n)", "$(echo `echo ')'`)"),
                *("$(printf '%s.' *n?t* \"*\")", "$(echo $0)", "$(echo ${A:-x} $((1+1)) $'a\\'b')"),
            ]
        ),
    ),
    max_size=5,
)


class TestForms:
    @settings(max_examples=200, deadline=None)
    @given(parts=PARTS)
    def test_they_become_what_bash_makes_of_them_between_double_quotes(
        self, parts: list[tuple[str, str]]
    ) -> None:
        text = quoted = ""
        for kind, content in parts:
            if kind == "text":
                # With blanks around it: a name would go on, and a backslash mean the next dollar.
                content = f" {content} " if not SOME_FORM.search(content) else "-"
            text += content
            quoted += between_quotes(content) if kind == "text" else content
        assert arrive([text]) == [bash(f'printf %s "{quoted}"')]

    @settings(max_examples=200, deadline=None)
    @given(text=TEXT)
    @example(text=")")
    @example(text="'\")")
    @example(text='"')
    @example(text="$(exit 9) ${A} `id`")
    def test_a_command_may_hold_any_text_in_quotes(self, text: str) -> None:
        wanted = text.rstrip("\n")
        assert arrive([f"<$(printf %s {shlex.quote(text)})>"]) == [f"<{wanted}>"]
        assert arrive([f'<$(printf %s "{between_quotes(text)}")>']) == [f"<{wanted}>"]

    def test_the_first_node_is_found_as_people_write_it(self) -> None:
        text = '$(printf "%s\\n" "n1,n2" | tr , "\\n" | head -n1):29500'
        assert arrive([text]) == ["n1:29500"]

    def test_a_file_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("in it\n")
        assert arrive([f"$(< {tmp_path}/f)", f"$(<{tmp_path}/f)"]) == ["in it", "in it"]

    def test_a_command_that_bash_cannot_read_spoils_nothing_else(self) -> None:
        exports = [_shell.export("V", Expandable("$(if; then)")), _shell.export("W", "w")]
        script = "\n".join([*exports, 'echo "<$V$W>"'])
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == "<w>\n"
        assert "syntax error" in done.stderr

    @pytest.mark.parametrize("shell", ["bash", "dash"])
    def test_some_variables_can_be_left_to_a_shell_elsewhere(self, shell: str) -> None:
        argv = ["$RANK", "$(echo it\\'s  $RANK)-$RANK", "$A", "${HOME}", "\\$RANK", "a b"]
        marked = [Expandable(arg) for arg in argv]
        plain = ["$RANK", "$SIZE", run.literal("$SIZE")]
        program = ["/usr/bin/printf", "%s\\0", *marked, *plain]
        text, parameters = _shell.render_in_two(program, {"RANK", "SIZE"}, expand={"SIZE"})
        elsewhere = ["env", "RANK=3", "SIZE=4", shell, "-c", text, "sh", *parameters]
        assert bash(_shell.render(elsewhere)).split("\0")[:-1] == [
            *("3", "it's-3", VALUE, "/h", "$RANK", "a b"),
            *("$RANK", "4", "$SIZE"),
        ]


class TestArguments:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ("--calib-size 32", ["--calib-size", "32"]),
            ("-n \t 4", ["-n", "4"]),
            ("--text hello  world ", ["--text", "hello  world "]),
            ("--pair a=b", ["--pair", "a=b"]),
            ("--flag ", ["--flag"]),
            ("--text=hello world", ["--text=hello world"]),
            ("--text", ["--text"]),
            ("hello --world x", ["hello --world x"]),
            (" --text x", [" --text x"]),
            ("--text\nx", ["--text\nx"]),
            ("", [""]),
            (run.literal("--text x"), ["--text x"]),
        ],
    )
    def test_an_option_with_its_value_is_two_words(self, given: str, words: list[str]) -> None:
        assert expandable_arguments([given]) == words

    def test_what_is_probably_meant_for_a_shell_is_said(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            expandable_arguments(["--a 1 --b 2", "${A:-x}", "$((1+1))"])
        first, second, third = (record.getMessage() for record in caplog.records)
        assert "--a" in first and "item of its own" in first
        assert "${A:-x}" in second and "run.literal" in second
        assert "$((" in third

    def test_what_is_plain_is_not_talked_about(self, caplog: pytest.LogCaptureFixture) -> None:
        texts = ["--a 1", "$A", "${A}", "$(id)", "${oc.env:HOME}", "$5", "a-b", "--a a-b -1"]
        expandable_arguments([*texts, run.literal("--a 1 --b ${A:-x}")])
        assert not caplog.records


class TestVariables:
    def test_secrets_and_literals_are_not_filled_in(self) -> None:
        env = {"HF_TOKEN": "a$A", "API_KEY": "${A}", "B": run.literal("$A"), "C": "$A"}
        marked = expandable_environment(env)
        lines = [_shell.export(name, value, expand={"A"}) for name, value in marked.items()]
        shown = [f'printf "%s|" "${name}"' for name in env]
        assert bash("\n".join(lines + shown)) == f"a$A|${{A}}|$A|{VALUE}|"

    def test_a_secret_that_is_likely_meant_to_be_filled_in_is_said_without_its_value(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        expandable_environment({"HF_TOKEN": "$MY_TOKEN", "API_KEY": "a$b", "AUTH": "${A:-x}"})
        (record,) = caplog.records
        assert "HF_TOKEN" in record.getMessage()
        assert "setup_lines" in record.getMessage()
        assert "MY_TOKEN" not in record.getMessage()


class TestLiteral:
    def test_it_is_the_text(self) -> None:
        text = run.literal("$HOME")
        assert isinstance(text, str)
        assert text == "$HOME"
        assert str(text) == "$HOME" and type(str(text)) is str
        assert repr(text) == "literal('$HOME')"
        assert {"$HOME": 1}[text] == 1

    @pytest.mark.parametrize("value", [5, None, b"x", ["$HOME"]])
    def test_nothing_but_a_text_can_be_one(self, value: object) -> None:
        with pytest.raises(TypeError, match="literal"):
            run.literal(value)  # type: ignore[arg-type]

    def test_it_stays_one_in_copies_and_files(self) -> None:
        script = run.Script(
            inline="x", args=[run.literal("$A"), "$A"], env={"E": run.literal("${B}"), "F": "$B"}
        )
        stored = ZlibJSONSerializer().serialize(script)
        yaml, files = YamlSerializer(), ConfigSerializer()
        copies = [
            copy.copy(script),
            copy.deepcopy(script),
            pickle.loads(pickle.dumps(script)),
            script.to_config(),
            script.to_config().clone(),
            ZlibJSONSerializer().deserialize(stored),
            ZlibJSONSerializer().deserialize(stored, AllowList()),
            build_text(stored),
            yaml.deserialize(yaml.serialize(script)),
            files.deserialize_yaml(files.serialize_yaml(script)),
            files.deserialize_json(files.serialize_json(script)),
            files.deserialize_toml(files.serialize_toml(script)),
        ]
        for found in copies:
            assert found.args == ["$A", "$A"]
            assert [type(arg) for arg in found.args] == [run.literal, str]
            assert {name: type(value) for name, value in found.env.items()} == {
                "E": run.literal,
                "F": str,
            }
            assert found.env == {"E": "${B}", "F": "$B"}

    def test_stored_configs_name_it_as_users_do(self) -> None:
        stored = ZlibJSONSerializer().serialize(run.Script(inline="x", args=[run.literal("$A")]))
        (found,) = peek(stored).arguments["args"]
        assert found.target == "nemo_run:literal"

    def test_configs_that_differ_in_it_differ(self) -> None:
        one, other = (run.Config(run.Script, path=p) for p in (run.literal("$A"), "$A"))
        assert one != other
        assert one == run.Config(run.Script, path=run.literal("$A"))

    def test_placeholders_in_it_stay(self) -> None:
        from torchx.specs import Role

        rank = f"$${ExecutorMacros.NODE_RANK_VAR}"
        role = Role(
            name="r", image="", args=[rank, run.literal(rank)], env={"E": run.literal(rank)}
        )
        macros = run.SlurmExecutor(account="a").macro_values()
        filled = macros.apply(role)
        assert filled.args == ["$SLURM_NODEID", rank]
        assert filled.env == {"E": rank}


@given(kinds=st.lists(st.sampled_from([str, run.literal, Expandable]), max_size=6))
def test_marks_survive_files_that_know_texts_only(kinds: list[type[str]]) -> None:
    args = [kind(f"$A{n}") for n, kind in enumerate(kinds)]
    env = {f"V{n}": arg for n, arg in enumerate(args)}
    words, variables = with_marks(
        marks(args, env), [str(arg) for arg in args], {n: str(v) for n, v in env.items()}
    )
    assert (words, variables) == (args, env)
    assert [type(word) for word in words] == kinds
    assert [type(value) for value in variables.values()] == kinds
