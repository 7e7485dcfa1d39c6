"""Values made from text by annotation."""

# ruff: noqa: UP007, UP045 - unions are written in every way that users write them

from __future__ import annotations

import math
import pathlib
from typing import Any, ForwardRef, Literal, NewType, Optional, Union

import pytest
from tests.cli.parsing_targets import Celsius, Color, Level, Net, Plain, Wide, kinds

import nemo_run as run
from nemo_run.cli.cli_parser import (
    CollectionParseError,
    DictParseError,
    ListParseError,
    LiteralParseError,
    ParseError,
    TypeParser,
    UnknownTypeError,
    parse_value,
    type_parser,
)

Name = NewType("Name", str)


def value_of(word: str) -> Any:
    """Parse one override of ``kinds`` and return what was set."""
    (value,) = run.cli.parse_partial(kinds, word).__arguments__.values()
    return value


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("i=5", 5),
        ("i=-3", -3),
        ("i=1_000", 1000),
        ("i= 7 ", 7),
        ('i="7"', 7),
        ("f=1e3", 1000.0),
        ("f=-inf", -math.inf),
        ("f=3", 3.0),
        ("s=text", "text"),
        ("s=with = and , and ( in it", "with = and , and ( in it"),
        ("s='quoted'", "quoted"),
        ('s="quoted"', "quoted"),
        ('s=""', ""),
        ("s=None", "None"),
        ("s=5", "5"),
        ("s=os.getcwd", "os.getcwd"),
        ("s=note", "note"),
        ("s=[1, 2]", "[1, 2]"),
        ("s='it' or 'that'", "'it' or 'that'"),
        ("by=b'ab'", b"ab"),
        ("c=1+2j", 1 + 2j),
        ("n=None", None),
        ("p=/data/x", pathlib.Path("/data/x")),
        ("p='/a b' ", pathlib.Path("/a b")),
        ("oi=none", None),
        ("oi=NULL", None),
        ("oi=5", 5),
        ("iu=None", None),
        ("iu=5", 5),
        ("us=5", 5),
        ("us=x", "x"),
        ("us=None", "None"),
        ("fi=2", 2.0),
        ("implicit=None", None),
        ("implicit=3", 3),
        ("d={'a': 1}", {"a": 1}),
        ("d={'a': '1'}", {"a": 1}),
        ("d={1: 2}", {"1": 2}),
        ("dl={'a': [1, '2']}", {"a": [1, 2]}),
        ("li=[1, 2]", [1, 2]),
        ("li=['1']", [1]),
        ("li=[]", []),
        ("ll=[[1], [2.5]]", [[1.0], [2.5]]),
        ("bare_list=[1, 'a', None]", [1, "a", None]),
        ("bare_dict={'a': [1]}", {"a": [1]}),
        ("t=(1, 2)", (1, "2")),
        ("t=[1, 'x']", (1, "x")),
        ("tv=(1, 2, 3)", (1, 2, 3)),
        ("tv=()", ()),
        ("tv=1, 2", (1, 2)),
        ("bare_tuple=(1, 'a')", (1, "a")),
        ("si={1, 2}", {1, 2}),
        ("si=[1, 1]", {1}),
        ("si=set()", set()),
        ("si={}", set()),
        ("fs={'a'}", frozenset({"a"})),
        ("seq=[1, 2]", [1, 2]),
        ("seq=(1, 2)", (1, 2)),
        ("color=RED", Color.RED),
        ("color=Color.GREEN", Color.GREEN),
        ("color=green", Color.GREEN),
        ("level=HIGH", Level.HIGH),
        ("level=2", Level.HIGH),
        ("lit=y", "y"),
        ("lit='y'", "y"),
        ("lit=1", 1),
        ("lit=True", True),
        ("lit=true", True),
        ("lit=None", None),
        ("mode=slow", "slow"),
        ("shape={'sides': '3', 'name': 'tri'}", {"sides": 3, "name": "tri"}),
        ("any_=5", 5),
        ("any_=None", None),
        ("any_=null", None),
        ("any_=true", "true"),
        ("any_=[1, 'a']", [1, "a"]),
        ("any_=plain words", "plain words"),
        ("unannotated=5", 5),
        ("unannotated=1.5", 1.5),
        ("unannotated=True", True),
        ("unannotated=None", None),
        ("unannotated=[1, (2, 3)]", [1, (2, 3)]),
        ("unannotated='5'", "5"),
        ("unannotated=word", "word"),
        ("unannotated=os.getcwd", "os.getcwd"),
        ("missing=left as it is", "left as it is"),
        ("cls=tests.cli.parsing_targets.Wide", Wide),
        ("fn=math.sqrt", math.sqrt),
        ("something_extra=5", 5),
    ],
)
def test_text_becomes_what_the_annotation_says(word: str, value: Any) -> None:
    made = value_of(word)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize("word", ["true", "True", "YES", "1", "on", "false", "No", "0", "OFF"])
def test_booleans_have_many_names(word: str) -> None:
    assert value_of(f"b={word}") is (word.lower() in {"true", "yes", "1", "on"})


def test_nan_is_a_float() -> None:
    assert math.isnan(value_of("f=nan"))


@pytest.mark.parametrize(
    ("word", "error", "says"),
    [
        ("i=0x10", ParseError, "'0x10' as int"),
        ("i=1e3", ParseError, "'1e3' as int"),
        ("i=5.0", ParseError, "'5.0' as int"),
        ("i=" + "9" * 5000, ParseError, "as int"),
        ("f=fast", ParseError, "'fast' as float"),
        ("b=maybe", ParseError, "true, yes, 1, on"),
        ("by=text", ParseError, "bytes literal"),
        ("c=x", ParseError, "as complex"),
        ("n=5", ParseError, "Only None"),
        ("p=a\0b", ParseError, "NUL"),
        ("oi=x", ParseError, "'x' as int | None"),
        ("li=1", ListParseError, "got an int"),
        ("li=(1, 2)", ListParseError, "got a tuple"),
        ("li=[1, 'x']", ListParseError, "'x' is not int"),
        ("li=[1, None]", ListParseError, "None"),
        ("li=[1, 2.5]", ListParseError, "got a float"),
        ("li=[True]", ListParseError, "got a bool"),
        ("li=[1", ListParseError, "Not a Python list"),
        ("li=[a, b]", ListParseError, "Not a Python list"),
        ("li=" + "[" * 150 + "]" * 150, ListParseError, "got a list"),
        ("li=" + "-" * 100_000 + "1", ListParseError, "Not a Python list"),
        ("d=[1]", DictParseError, "got a list"),
        ("d={'a': 'x'}", DictParseError, "'x' is not int"),
        ("d=x", DictParseError, "Not a Python dict"),
        ("t=(1,)", CollectionParseError, "1 elements instead of 2"),
        ("tv={1}", CollectionParseError, "got a set"),
        ("si=5", CollectionParseError, "got an int"),
        ("si=[[1]]", CollectionParseError, "got a list"),
        ("fs=frozenset({1})", CollectionParseError, "Not a Python set"),
        ("color=BLUE", ParseError, "Known: GREEN, RED."),
        ("color=REED", ParseError, "Did you mean 'RED'?"),
        ("lit=z", LiteralParseError, "Expected one of 'x', 'y', 1, True, None"),
        ("mode=True", LiteralParseError, "Expected one of 'fast', 'slow'"),
        ("shape={'side': 3}", ParseError, "Did you mean 'sides'?"),
        ("net={'widht': 3}", ParseError, "Did you mean 'width'?"),
        ("net=5", ParseError, "Unsupported type: Net"),
        ("checked=5", ParseError, "Unsupported type: Decimal"),
        ("something_extra=x", ParseError, "as int"),
    ],
)
def test_text_that_does_not_fit_is_refused_with_a_reason(
    word: str, error: type[ParseError], says: str
) -> None:
    with pytest.raises(error) as caught:
        value_of(word)
    assert says in caught.value.message
    assert "\n" not in caught.value.message


def test_a_dict_of_fields_is_a_config_of_the_dataclass() -> None:
    assert value_of("net={'width': '3'}") == run.Config(Net, width=3)


def test_a_parser_registered_with_the_shared_instance_is_used_for_words() -> None:
    @type_parser.register_parser(Celsius)
    def parse_celsius(text: str, annotation: Any) -> Celsius:
        return Celsius(float(text.removesuffix("C")))

    assert value_of("warmth=21C").degrees == 21.0


def test_names_imported_for_type_checking_only_are_found() -> None:
    with pytest.raises(ParseError, match=r"as Decimal \| None"):
        value_of("checked=1.50")
    with pytest.raises(ParseError, match=r"as Fraction \| None"):
        value_of("ratio=1/2")


def test_each_parse_gives_a_value_of_its_own() -> None:
    first, second = (type_parser.parse("[1]", list[int]) for _ in range(2))
    assert first == second
    assert first is not second


def test_annotations_may_be_given_as_text() -> None:
    assert type_parser.parse("5", "int") == 5
    assert type_parser.parse("[5]", "Optional[list[int]]") == [5]


@pytest.mark.parametrize("annotation", ["Unheard", "not an annotation", ForwardRef("Unheard")])
def test_what_cannot_be_resolved_is_left_as_text(annotation: Any) -> None:
    assert type_parser.parse("5", annotation) == "5"


def test_new_types_and_nested_unions_are_seen_through() -> None:
    assert type_parser.parse("'a'", Name) == "a"
    assert type_parser.parse("3", Union[None, Optional[int], list[int]]) == 3
    assert type_parser.parse("[3]", Union[None, Optional[int], list[int]]) == [3]


def test_members_of_a_union_are_tried_in_order() -> None:
    assert type_parser.parse("1", Union[bool, int]) is True
    assert type_parser.parse("1", Union[int, bool]) == 1
    assert type_parser.parse("1", Union[str, int]) == "1"


def test_literals_tell_one_from_true() -> None:
    assert type_parser.parse("1", Literal[True, 1]) is not True
    assert type_parser.parse("True", Literal[1, True]) is True


def test_members_of_enums_may_be_literals() -> None:
    assert type_parser.parse("RED", Literal[Color.RED]) is Color.RED
    with pytest.raises(LiteralParseError):
        type_parser.parse("GREEN", Literal[Color.RED])


def test_a_registered_parser_is_used_wherever_its_type_occurs() -> None:
    parser = TypeParser()

    @parser.register_parser(Plain)
    def parse_plain(text: str, annotation: Any) -> Plain:
        return Plain(int(text))

    assert parser.parse("3", Plain).size == 3
    assert parser.parse("3", Optional[Plain]).size == 3
    assert [p.size for p in parser.parse("['1', '2']", list[Plain])] == [1, 2]
    with pytest.raises(ParseError, match="invalid literal for int"):
        parser.parse("x", Plain)


def test_parsers_do_not_share_what_is_registered() -> None:
    TypeParser().register_parser(Plain)(lambda text, _: text)
    with pytest.raises(UnknownTypeError, match="Unsupported type: Plain"):
        TypeParser().parse("x", Plain)


def test_without_strict_mode_unknown_types_give_the_text() -> None:
    assert TypeParser(strict_mode=False).parse("x", Plain) == "x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", int),
        ("1.5", float),
        ("True", bool),
        ("true", str),
        ("abc", str),
        ("'x'", str),
        ("[1]", list),
        ("{'a': 1}", dict),
        ("(1, 2)", tuple),
        ("None", type(None)),
    ],
)
def test_the_type_of_a_literal_is_inferred(text: str, expected: type) -> None:
    assert type_parser.infer_type(text) is expected


def test_parse_value_infers_without_an_annotation() -> None:
    assert parse_value("1") == 1
    assert parse_value("[1, 2]") == [1, 2]
    assert parse_value("None") is None
    assert parse_value("1", str) == "1"


def test_nothing_is_run_to_make_a_value(tmp_path: pathlib.Path) -> None:
    marker = tmp_path / "marker"
    attack = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    for annotation in (int, list[int], dict[str, int], set[int], Any, None, Net, Color):
        try:
            type_parser.parse(attack, annotation)
        except ParseError:
            continue
    assert not marker.exists()
