"""How a command is escaped at its place; `test_slurm_templates` has bash run such scripts."""

from __future__ import annotations

import string

import pytest

from nemo_run._shell_quotes import put
from nemo_run.exceptions import ConfigError

LINE = r"""say "it's" $A `b` \c"""
FORMS = {
    "as it is": LINE,
    "single": r"""say "it'\''s" $A `b` \c""",
    "double": r"""say \"it's\" \$A \`b\` \\c""",
    "dollar": r"""say "it\'s" $A `b` \\c""",
    "document": r"""say "it's" \$A \`b\` \\c""",
}

# In each, M is the place of the command.
PLACES = {
    "as it is": [
        "M",
        "a; M",
        "a && b || M",
        "{ M; }",
        "( M )",
        "x=$(M)",
        'x="$(M)"',
        'x="$(a "$(M)")"',
        "'a' \"b\" $'c' $\"d\" M",
        "a \\' M",
        'a \\" M',
        'a "\\"" M',
        "a $'it\\'s' M",
        "a '\\' M",
        "# don't\nM",
        "# don't\n# \"\nM",
        "cat <<A\nit's\nA\nM",
        "cat <<A\nit's\n A\nA\nM",
        "cat << A\nit's\nA\nM",
        "cat <<'A'\nit's\nA\nM",
        'cat <<"A B"\nit\'s\nA B\nM',
        "cat <<A'B'\nit's\nAB\nM",
        "cat <<-A\n\tit's\n\t\tA\nM",
        "cat <<A <<B\nit's\nA\n\"\nB\nM",
        "cat <<A; cat <<B\nit's\nA\nit's\nB\nM",
        "cat <<A\nA\nM",
        "cat <<<word\nM",
        "x=$((1<<2))\nM",
        "((1<<2))\nM",
        "x=${y<<A}\nM",
        "x=${y:-a} M",
        'x="${y:-"a"}" M',
        "x=`a 'b'` M",
        'x=`a "b"` M',
        'x="`a`" M',
        'x="$(a ")")" M',
        "x=$(a ')') M",
        "bash <<'A'\nM\nA",
        'bash <<"A"\nM\nA',
        "bash <<\\A\nM\nA",
        "bash <<'A'\ncd /\nM\nA",
        "logger <<'A'\n'M'\nA",
    ],
    "single": [
        "bash -c 'M'",
        "bash -c 'cd /; M'",
        "bash -c 'a '\\''b'\\''; M'",
        "bash -c 'a '\"'b'\"'; M'",
        "bash -c \"cd /;\"'M'",
        "bash -c $'cd /;''M'",
        "bash -c cd\\ /\\;'M'",
        "a $# b#c 'M'",
        "x=${#y} 'M'",
        "x=${y#a} 'M'",
        "x=$((1<<2)) 'M'",
        "cat <<<word 'M'",
        "cat <<A 'M'\nit's\nA",
        "cat <<A\nit's\nA\nbash -c 'M'",
        "x=\"$(bash -c 'M')\"",
        "x=$(bash -c 'M')",
        "(bash -c 'M')",
        "bash -c \\\n'M'",
        "a='b c' 'M'",
    ],
    "double": [
        'bash -c "M"',
        'bash -c $"M"',
        'bash -c "cd / && M"',
        'bash -c "a \\"b\\"; M"',
        'bash -c "a \\$b \\`c\\`; M"',
        'bash -c "a \\\\ M"',
        'bash -c "a \\\n M"',
        'bash -c "$x; M"',
        'bash -c "`a`; M"',
        "bash -c \"$(a 'b'); M\"",
        'bash -c "${x:-y}; M"',
        "bash -c 'cd /;'\"M\"",
        'x="M"',
        'bash -c "it\\\'s; M"',
    ],
    "dollar": ["bash -c $'M'", "bash -c $'cd /; M'", "bash -c $'a \\'; M'", "a $'b' $'M'"],
    "document": [
        "bash <<A\nM\nA",
        "bash <<A\ncd /\nM\nA",
        "bash <<-A\n\tM\n\tA",
        "bash <<A\n\tA\nM\nA",
        "bash <<A\nM",
        "cat <<A; bash <<B\nit's\nA\nM\nB",
        "x=$(bash <<A\nM\nA\n)",
        "bash <<A | cat\nM\nA",
        "bash <<A\n'a' M\nA",
    ],
    "refused": [
        "bash -c \"bash -c 'M'\"",
        "bash -c 'bash -c \"M\"'",
        'bash -c "bash -c \\"M\\""',
        "bash -c 'a \"'\"M\"'\"'",
        'bash -c "it\\\n\'s M"',
        "bash -c $'a \"M\"'",
        "bash -c 'a '\\''M'\\'''",
        "bash -c '# M'",
        "bash <<A\n# M\nA",
        'bash -c "\\a\' M"',
        "x=`M`",
        'x="`M`"',
        "x=${y:-M}",
        'x="${y:-M}"',
        "bash <<A\n'M'\nA",
        'bash <<A\na "\nM\n"\nA',
        "bash <<'A'\n'M'\nA",
        "x=$(cat <<A\n'M'\nA\n)",
    ],
}


@pytest.mark.parametrize(
    ("place", "form"), [(place, form) for form, places in PLACES.items() for place in places]
)
def test_a_command_is_escaped_as_its_place_needs(place: str, form: str) -> None:
    if form == "refused":
        with pytest.raises(ConfigError, match="on a line of its own"):
            put(place, "M", LINE)
    else:
        assert put(place, "M", LINE) == place.replace("M", FORMS[form])


@pytest.mark.parametrize(
    "start",
    [
        "echo",
        "printf",
        "logger",
        ":",
        '"echo"',
        "ec'ho'",
        'ec"ho"',
        "ec\\ho",
        "e\\\ncho",
        "$'echo'",
        '$"echo"',
        "true; echo",
        "true && echo",
        "true | logger",
        "true & echo",
        "true\necho",
        "(echo",
        "x=$(echo",
        "echo a",
        "echo 'a' \"b\"",
        'echo ""',
        "echo a <<<b",
        "# bash\necho",
        "echo <<A >x",
    ],
)
def test_quotes_within_quotes_do_no_harm_where_they_are_only_shown(start: str) -> None:
    place = f"{start} 'a \"M\"'"
    assert put(place, "M", LINE) == place.replace("M", FORMS["single"])


@pytest.mark.parametrize(
    "start",
    [
        "bash -c",
        "echo a; bash -c",
        "echo a\nbash -c",
        "echo a | bash -c",
        "echo a & bash -c",
        "echo a <<A\n'\nA\nbash -c",
        "echo $(bash -c",
        "echo (bash -c",
        "'' echo",
        "echoes",
        "x=echo",
        "",
    ],
)
def test_quotes_within_quotes_are_refused_where_they_may_be_run(start: str) -> None:
    with pytest.raises(ConfigError, match="quotes"):
        put(f"{start} 'a \"M\"'", "M", LINE)


def test_a_comment_stays_one() -> None:
    assert put("# M", "M", "echo 'a\nb'") == "# echo 'a\\nb'"
    assert put("a # M\nM", "M", "'a\nb'") == "a # 'a\\nb'\n'a\nb'"


def test_each_place_is_escaped_for_itself() -> None:
    place = "M\nbash -c 'M'\nbash -c \"M\" # M"
    escaped = iter([LINE, FORMS["single"], FORMS["double"], LINE])
    assert put(place, "M", LINE) == "".join(
        next(escaped) if part == "M" else part for part in place
    )


@pytest.mark.parametrize("end", ["END", "\tEND", "E\tND"])
def test_a_command_that_would_end_its_document_is_refused(end: str) -> None:
    place = "bash <<END\nM\nEND"
    with pytest.raises(ConfigError, match="document"):
        put(place, "M", f"'a\n{end}\nb'")
    assert put(place, "M", "'a\nEND b\n'") == "bash <<END\n'a\nEND b\n'\nEND"


@pytest.mark.parametrize("char", string.printable)
def test_plain_words_go_anywhere_and_others_do_not(char: str) -> None:
    place, line = "x=`M`", f"a{char}b"
    if char.isalnum() or char in "@%+=:,./_- ":
        assert put(place, "M", line) == f"x=`{line}`"
    else:
        with pytest.raises(ConfigError):
            put(place, "M", line)
