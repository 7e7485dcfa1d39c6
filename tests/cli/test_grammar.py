"""How overrides, calls of factories, paths and quotes are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run.cli.cli_parser import ArgumentParsingError, Operation, PythonicParser
from nemo_run.cli.values.grammar import Call, Item, parse_call, parse_file, parse_list, split
from nemo_run.cli.values.literals import unquote


@pytest.mark.parametrize(
    ("word", "key", "operation", "value"),
    [
        ("x=1", "x", Operation.ASSIGN, "1"),
        ("x+=1", "x", Operation.ADD, "1"),
        ("x-=1", "x", Operation.SUBTRACT, "1"),
        ("x*=1", "x", Operation.MULTIPLY, "1"),
        ("x/=1", "x", Operation.DIVIDE, "1"),
        ("x|=1", "x", Operation.OR, "1"),
        ("x&=1", "x", Operation.AND, "1"),
        ("  x  =  1", "x", Operation.ASSIGN, "1"),
        ("x == 1", "x", Operation.ASSIGN, "= 1"),
        ("x=a b ", "x", Operation.ASSIGN, "a b "),
        ("x=-1", "x", Operation.ASSIGN, "-1"),
        ("a.b[2].c=x=y", "a.b[2].c", Operation.ASSIGN, "x=y"),
        ("x=two\nlines", "x", Operation.ASSIGN, "two\nlines"),
    ],
)
def test_an_override_is_a_key_an_operator_and_a_value(
    word: str, key: str, operation: Operation, value: str
) -> None:
    assert PythonicParser().parse(word) == {key: (operation, value)}


@pytest.mark.parametrize(
    "word",
    ["x", "x=", "x=  ", "=1", "x-y=1", "x y=1", "x//=1", "x%=1", "x**=1", "x^=1", "x:=1", "--x=1"],
)
def test_anything_else_is_not_an_override(word: str) -> None:
    with pytest.raises(ArgumentParsingError) as caught:
        PythonicParser().parse(word)
    assert caught.value.arg == word


@pytest.mark.parametrize("key", ["a..b", ".a", "a.", "a[", "a]", "a[]", "a[0", "a[0]b", "[a.b]"])
def test_a_key_that_is_no_path_is_refused(key: str) -> None:
    with pytest.raises(ArgumentParsingError, match="not a path"):
        PythonicParser().parse(f"{key}=1")


def test_union_is_another_name_for_or() -> None:
    assert Operation["UNION"] is Operation["OR"]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("name", Call("name")),
        ("pkg.mod.name", Call("pkg.mod.name")),
        ("name()", Call("name", ())),
        ("name(1, a=2)", Call("name", ("1", "a=2"))),
        (
            "name(a=[1, 2], b='x, y', c=f(d=1, e=2))",
            Call("name", ("a=[1, 2]", "b='x, y'", "c=f(d=1, e=2)")),
        ),
        ('name(a=")")', Call("name", ('a=")"',))),
        (r"name(a='it\'s, ok')", Call("name", (r"a='it\'s, ok'",))),
        ("name(a=1,)", Call("name", ("a=1",))),
        ("name(a=1", None),
        ("name(a=1))", None),
        ("f(1) + g(2)", None),
        ("name(a=1).b", None),
        ("name(a='x)", None),
        ("name(,)", None),
        ("1name", None),
        ("a b", None),
        ("", None),
    ],
)
def test_a_call_is_a_name_with_or_without_arguments(text: str, call: Call | None) -> None:
    assert parse_call(text) == call


def test_a_list_is_taken_apart_at_its_own_commas_only() -> None:
    assert parse_list("[a, b(c=[1, 2]), 'd, e']") == ["a", "b(c=[1, 2])", "'d, e'"]
    assert parse_list("[]") == []
    assert parse_list("[a], [b]") is None
    assert parse_list("a, b") is None


PIECES = st.one_of(
    st.from_regex(r"[a-z0-9=]+", fullmatch=True),
    st.text("abc ,()[]{}", min_size=1).map(repr),
    st.lists(st.integers(), max_size=3).map(str),
    st.dictionaries(st.text("ab,)", max_size=3), st.integers(), max_size=2).map(str),
)


@given(st.lists(PIECES, max_size=6))
def test_splitting_is_the_inverse_of_joining_with_commas(pieces: list[str]) -> None:
    assert split(", ".join(pieces)) == pieces


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("'a'", "a"),
        ('"a"', "a"),
        ("a", "a"),
        ("''", ""),
        ("'", "'"),
        ("'a\"", "'a\""),
        ("\"'a'\"", "'a'"),
        ("'a' and 'b'", "'a' and 'b'"),
        (r'"say \"hi\""', 'say "hi"'),
        (r"'a\b'", r"a\b"),
        (r"'a\'", r"'a\'"),
    ],
)
def test_one_pair_of_quotes_around_everything_is_removed(text: str, plain: str) -> None:
    assert unquote(text) == plain


@pytest.mark.parametrize(
    ("text", "path", "section"),
    [
        ("@a.yaml", "a.yaml", None),
        ("@dir/sub-dir/a_1.yml", "dir/sub-dir/a_1.yml", None),
        ("@../a.json", "../a.json", None),
        ("@my dir/a b.yaml", "my dir/a b.yaml", None),
        (r"@dir\a.toml:net", r"dir\a.toml", "net"),
    ],
)
def test_a_file_value_is_a_path_and_perhaps_a_section(
    text: str, path: str, section: str | None
) -> None:
    named = parse_file(text)
    assert named is not None
    assert (named.path, named.section) == (path, section)


@pytest.mark.parametrize(
    "text", ["a.yaml", "@a.txt", "@a", "@", "@ a.yaml", "@a.yaml:b:c", "user@a.yaml"]
)
def test_other_texts_are_not_file_values(text: str) -> None:
    assert parse_file(text) is None


def test_steps_tell_parameters_from_elements() -> None:
    from nemo_run.cli.values.grammar import parse_override

    assert parse_override("a.b[2][k].c=1").steps == ("a", "b", Item(2), Item("k"), "c")
    assert parse_override("[0].x=1").steps == (Item(0), "x")
