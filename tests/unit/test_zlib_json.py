"""The zlib-JSON format: the envelope, and the document within."""

from __future__ import annotations

import base64
import collections
import json
import pathlib
import string
import subprocess
import sys
from typing import Any

import fiddle as fdl
import pytest
from fiddle.experimental import serialization as fiddle_serialization
from tests.naming import stable_repr
from tests.unit import serialization_targets as targets
from tests.unit.serialization_targets import (
    Access,
    Base,
    Child,
    Color,
    Level,
    Mode,
    Model,
    Outer,
    Pair,
    Point,
    TwoWords,
    collect,
    train,
)
from tests.unit.serialization_text import (
    document,
    pyref,
    refs,
    root_object,
    unwrapped,
    with_root,
    wrapped,
)

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

HERE = "tests.unit.serialization_targets"
serializer = ZlibJSONSerializer()


def round_trip(value: Any) -> Any:
    return serializer.deserialize(serializer.serialize(value))


def stored(value: Any) -> dict[str, Any]:
    return document(serializer.serialize(value))


ENVELOPES = [run.Config(Point, x=3), ["ÿ>?" * n for n in range(40)], None, float("nan")]


@pytest.mark.parametrize("value", ENVELOPES, ids=["config", "list", "none", "nan"])
def test_text_is_padded_url_safe_base64(value: Any) -> None:
    text = serializer.serialize(value)
    assert set(text) <= set(string.ascii_letters + string.digits + "-_=")
    assert len(text) % 4 == 0


@pytest.mark.parametrize("value", ENVELOPES, ids=["config", "list", "none", "nan"])
def test_compressed_at_the_default_level(value: Any) -> None:
    assert base64.urlsafe_b64decode(serializer.serialize(value))[:2] == b"\x78\x9c"


@pytest.mark.parametrize("value", ENVELOPES, ids=["config", "list", "none", "nan"])
def test_json_is_ascii_with_default_separators(value: Any) -> None:
    text = unwrapped(serializer.serialize(value))
    assert text.isascii()
    assert text == json.dumps(json.loads(text))


@pytest.mark.parametrize("around", ["{}\n", "\n{}", "  {} \r\n", "\t{}"])
def test_white_space_around_the_text_is_ignored(around: str) -> None:
    text = around.format(serializer.serialize(run.Config(Point, x=3)))
    assert serializer.deserialize(text) == run.Config(Point, x=3)


def test_the_same_config_gives_the_same_text() -> None:
    texts = {serializer.serialize(run.Config(Model, layers=[1, {"a": 2}])) for _ in range(3)}
    assert len(texts) == 1


def test_top_level_keys_come_in_order() -> None:
    assert list(stored(run.Config(Point))) == ["root", "objects", "refcounts", "version"]


def test_version_is_the_one_earlier_releases_write() -> None:
    assert stored(1)["version"] == "0.0.1"


def test_document_of_a_small_config_is_as_specified() -> None:
    no_items: list[Any] = []
    empty_tuple = {"type": pyref("builtins", "tuple"), "items": no_items, "metadata": None}
    empty_dict = {"type": pyref("builtins", "dict"), "items": no_items, "metadata": empty_tuple}
    metadata_type = pyref("fiddle._src.config", "BuildableTraverserMetadata")
    assert stored(run.Config(Point, x=3)) == {
        "root": {"type": "ref", "key": "point_1"},
        "objects": {
            "tuple_1": {
                "type": pyref("builtins", "tuple"),
                "items": [["Index(index=0)", "x"]],
                "metadata": None,
            },
            "dict_1": empty_dict,
            "dict_2": empty_dict,
            "buildable_traverser_metadata_1": {
                "type": metadata_type,
                "items": [
                    ["Attr(name='fn_or_cls')", pyref(HERE, "Point")],
                    ["Attr(name='argument_names')", {"type": "ref", "key": "tuple_1"}],
                    ["Attr(name='argument_tags')", {"type": "ref", "key": "dict_1"}],
                    ["Attr(name='argument_history')", {"type": "ref", "key": "dict_2"}],
                ],
                "metadata": metadata_type,
            },
            "point_1": {
                "type": pyref("nemo_run.config", "Config"),
                "items": [["Attr(name='x')", {"type": "leaf", "value": 3, "paths": ["<root>.x"]}]],
                "metadata": {"type": "ref", "key": "buildable_traverser_metadata_1"},
                "paths": ["<root>"],
            },
        },
        "refcounts": {
            "tuple_1": 1,
            "dict_1": 1,
            "dict_2": 1,
            "buildable_traverser_metadata_1": 1,
            "point_1": 1,
        },
        "version": "0.0.1",
    }


@pytest.mark.parametrize("value", [3, 2.5, True, "text", None])
def test_primitives_in_data_are_leaves(value: Any) -> None:
    assert stored(value)["root"] == {"type": "leaf", "value": value, "paths": ["<root>"]}


def test_primitives_in_metadata_are_bare() -> None:
    doc = stored({"k": 1})
    keys = doc["objects"][root_object(doc)["metadata"]["key"]]
    assert keys["items"] == [["Index(index=0)", "k"]]


def test_metadata_has_no_paths() -> None:
    doc = stored(run.Config(Point, x=1))
    with_paths = {name for name, node in doc["objects"].items() if "paths" in node}
    assert with_paths == {"point_1"}


def test_classes_in_data_are_references_with_paths() -> None:
    assert stored(Point)["root"] == {**pyref(HERE, "Point"), "paths": ["<root>"]}


SHARED = run.Config(Point, x=1)
LINKED = run.Config(Model, layers=[SHARED, {"k": SHARED}], origin=(SHARED, [2]))


def test_objects_come_after_what_they_refer_to() -> None:
    seen: set[str] = set()
    for name, node in stored(LINKED)["objects"].items():
        assert set(refs(node)) <= seen
        seen.add(name)


def test_refcounts_count_the_references() -> None:
    doc = stored(LINKED)
    counted = collections.Counter(refs([doc["root"], list(doc["objects"].values())]))
    assert doc["refcounts"] == dict(counted)
    assert doc["refcounts"]["point_1"] == 3


def test_object_names_are_numbered_snake_case_of_the_callable() -> None:
    names = set(stored([run.Config(TwoWords), run.Partial(TwoWords), run.Config(train)])["objects"])
    assert {"two_words_1", "two_words_2", "train_1", "list_1"} <= names


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (run.Config(Point, x=1), "Attr(name='x')"),
        (run.Config(collect, 1), "Index(index=0)"),
        ([1], "Index(index=0)"),
        ((1,), "Index(index=0)"),
        ({"k": 1}, "Key(key='k')"),
        ({(1, "a"): 1}, "Key(key=(1, 'a'))"),
        ({1}, "SetElement()"),
        (frozenset({1}), "SetElement()"),
        (b"x", "IdentityElement()"),
        (slice(1), "Attr(name='start')"),
        (Pair(1), "Attr(name='left')"),
    ],
    ids=stable_repr,
)
def test_items_are_labelled(value: Any, label: str) -> None:
    assert root_object(stored(value))["items"][0][0] == label


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (run.Config(Model, origin=run.Config(Point, x="!")), "<root>.origin.x"),
        (run.Config(Model, layers={"k": ["!"]}), "<root>.layers['k'][0]"),
        (run.Config(collect, "!"), "<root>[0]"),
        ([("!",)], "<root>[0][0]"),
        ({3: "!"}, "<root>[3]"),
        ([{"!"}], "<root>[0][<set element>]"),
        (Pair(None, "!"), "<root>.right"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_leaves_say_where_they_are(value: Any, path: str) -> None:
    text = unwrapped(serializer.serialize(value))
    assert json.dumps({"type": "leaf", "value": "!", "paths": [path]}) in text


def test_every_path_to_a_shared_value_is_listed() -> None:
    point = stored(LINKED)["objects"]["point_1"]
    expected = ["<root>.layers[0]", "<root>.layers[1]['k']", "<root>.origin[0]"]
    assert sorted(point["paths"]) == expected
    assert sorted(point["items"][0][1]["paths"]) == [f"{path}.x" for path in expected]


def test_at_most_64_paths_are_listed_for_a_value() -> None:
    doc = stored([SHARED] * 100)
    assert len(doc["objects"]["point_1"]["paths"]) == 64
    assert doc["refcounts"]["point_1"] == 100


def test_many_paths_through_shared_values_do_not_grow_the_text_beyond_reason() -> None:
    node = run.Config(Model)
    for _ in range(40):  # 2**40 paths lead to the innermost config
        node = run.Config(Model, layers=node, origin=node)
    text = serializer.serialize(node)
    assert len(text) < 100_000
    back = serializer.deserialize(text)
    assert back.layers is back.origin
    assert back.layers.layers is back.origin.origin


def test_unusual_floats_are_spelled_as_python_does() -> None:
    text = unwrapped(serializer.serialize([float("inf"), float("-inf"), float("nan")]))
    for word in ("Infinity", "-Infinity", "NaN"):
        assert f'"value": {word},' in text


def test_empty_tuples_are_written_in_place() -> None:
    doc = stored([(), {}])
    empty: dict[str, Any] = {"type": pyref("builtins", "tuple"), "items": [], "metadata": None}
    items = root_object(doc)["items"]
    assert items[0][1] == {**empty, "paths": ["<root>[0]"]}
    assert doc["objects"]["dict_1"]["metadata"] == empty


@pytest.mark.parametrize(
    "value",
    [[1], (1,), {"k": 1}, {1}, frozenset({1}), [], {}, run.Config(Point), slice(1), Pair(1)],
    ids=stable_repr,
)
def test_containers_and_buildables_are_referenced(value: Any) -> None:
    doc = stored([value])
    assert root_object(doc)["items"][0][1]["type"] == "ref"


@pytest.mark.parametrize(
    ("value", "kind", "items", "metadata"),
    [
        ([1, "a"], pyref("builtins", "list"), [1, "a"], None),
        ((1, "a"), pyref("builtins", "tuple"), [1, "a"], None),
        ({7}, pyref("builtins", "set"), [7], None),
        (frozenset({7}), pyref("builtins", "frozenset"), [7], None),
        (b"\x00\xffA", pyref("builtins", "bytes"), ["\x00\xffA"], None),
        (slice(1, None, 2), pyref("builtins", "slice"), [1, None, 2], None),
        (Pair(1, 2), pyref(HERE, "Pair"), [1, 2], pyref(HERE, "Pair")),
    ],
    ids=stable_repr,
)
def test_containers_are_encoded_as_specified(
    value: Any, kind: dict[str, str], items: list[Any], metadata: Any
) -> None:
    node = root_object(stored(value))
    assert node["type"] == kind
    assert [item["value"] for _, item in node["items"]] == items
    assert node["metadata"] == metadata


def test_dicts_keep_their_keys_in_a_tuple_beside_the_values() -> None:
    doc = stored({"b": 1, (2, Color.RED): 2, None: 3})
    node = root_object(doc)
    keys = doc["objects"][node["metadata"]["key"]]
    assert [item["value"] for _, item in node["items"]] == [1, 2, 3]
    assert keys["type"] == pyref("builtins", "tuple")
    assert keys["items"][0][1] == "b"
    assert doc["objects"][keys["items"][1][1]["key"]]["items"] == [
        ["Index(index=0)", 2],
        ["Index(index=1)", pyref(HERE, "Color.RED")],
    ]
    assert keys["items"][2][1] is None


@pytest.mark.parametrize(
    ("buildable", "kind"),
    [
        (run.Config(Point), pyref("nemo_run.config", "Config")),
        (run.Partial(Point), pyref("nemo_run.config", "Partial")),
        (fdl.Config(Point), pyref("fiddle._src.config", "Config")),
        (fdl.Partial(Point), pyref("fiddle._src.partial", "Partial")),
    ],
    ids=["Config", "Partial", "fiddle Config", "fiddle Partial"],
)
def test_buildables_are_named_by_their_kind(buildable: Any, kind: dict[str, str]) -> None:
    assert root_object(stored(buildable))["type"] == kind


def test_positional_arguments_are_named_by_number() -> None:
    doc = stored(run.Config(collect, "a", "b", k="c"))
    names = [item for _, item in doc["objects"]["tuple_1"]["items"]]
    assert names == [0, 1, "k"]


def test_history_is_dropped() -> None:
    config = run.Config(Point, x=1)
    config.x = 2
    config.y = 3
    doc = stored(config)
    record = doc["objects"]["buildable_traverser_metadata_1"]
    label, history = record["items"][3]
    assert label == "Attr(name='argument_history')"
    assert doc["objects"][history["key"]]["items"] == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Point, "Point"),
        (train, "train"),
        (Outer.Inner, "Outer.Inner"),
        (Outer.fixed, "Outer.fixed"),
        (Base.make, "Base.make"),
        (Child.make, "Child.make"),
        (Color.RED, "Color.RED"),
        (Color.CRIMSON, "Color.RED"),
        (Outer.Shade.DARK, "Outer.Shade.DARK"),
        (Level.HIGH, "Level.HIGH"),
        (Mode.FAST, "Mode.FAST"),
        (Access.READ, "Access.READ"),
    ],
    ids=stable_repr,
)
def test_importable_things_are_stored_by_module_and_name(value: Any, name: str) -> None:
    node = stored(value)["root"]
    assert (node["type"], node["module"], node["name"]) == ("pyref", HERE, name)


def test_a_path_is_stored_so_that_fiddle_reads_a_path() -> None:
    node = root_object(stored(pathlib.Path("/data/x")))
    assert node["type"] == pyref("fiddle._src.daglish", "NamedTupleType")
    assert node["metadata"] == pyref("pathlib", type(pathlib.Path()).__name__)
    assert [item["value"] for _, item in node["items"]] == ["/data/x"]


def test_dict_configs_are_stored_as_configs_of_builtin_dict() -> None:
    record = stored(run.Config(dict, a=1))["objects"]["buildable_traverser_metadata_1"]
    assert record["items"][0][1] == pyref("builtins", "dict")


def test_lazy_entrypoints_are_stored_as_target_factory_and_arguments() -> None:
    doc = stored(run.LazyEntrypoint("fractions.Fraction"))
    node = root_object(doc)
    assert node["type"] == pyref("nemo_run.cli.lazy", "LazyEntrypoint")
    assert node["metadata"] is None
    assert [label for label, _ in node["items"]] == [
        "Attr(name='_target_')",
        "Attr(name='_factory_')",
        "Attr(name='_args_')",
    ]
    target = doc["objects"][node["items"][0][1]["key"]]
    assert target["type"] == pyref("nemo_run.cli.lazy", "LazyTarget")
    assert target["metadata"] is None
    assert [(label, item["value"]) for label, item in target["items"]] == [
        ("Attr(name='import_path')", "fractions.Fraction"),
        ("Attr(name='script')", ""),
    ]


def test_registered_constants_are_stored_by_reference() -> None:
    fiddle_serialization.register_constant(HERE, "CONSTANT", compare_by_identity=True)
    node = stored([targets.CONSTANT])["objects"]["list_1"]["items"][0][1]
    assert node == {**pyref(HERE, "CONSTANT"), "paths": ["<root>[0]"]}
    assert round_trip([targets.CONSTANT])[0] is targets.CONSTANT


MAIN_SCRIPT = """
import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

def fit(steps: int = 1) -> int:
    return steps

serializer = ZlibJSONSerializer()
text = serializer.serialize(run.Partial(fit, steps=3))
assert serializer.deserialize(text) == run.Partial(fit, steps=3)
print(text)
"""


def test_functions_of_the_launching_script_are_stored_as_main(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(MAIN_SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    record = document(done.stdout.strip())["objects"]["buildable_traverser_metadata_1"]
    assert record["items"][0][1] == pyref("__main__", "fit")


def test_the_former_place_of_fiddles_partial_is_understood() -> None:
    text = serializer.serialize(fdl.Partial(Point, x=1))
    older = document(text)
    older["objects"]["point_1"]["type"] = pyref("fiddle._src.config", "Partial")
    back = serializer.deserialize(wrapped(json.dumps(older)))
    assert back == fdl.Partial(Point, x=1)
    assert type(back) is fdl.Partial


@pytest.mark.parametrize("bare", [True, False], ids=["bare", "leaf"])
def test_readers_accept_bare_primitives_and_leaves_alike(bare: bool) -> None:
    node = 5 if bare else {"type": "leaf", "value": 5}
    text = with_root({"type": pyref("builtins", "list"), "items": [["", node]], "metadata": None})
    assert serializer.deserialize(text) == [5]


def test_readers_ignore_labels_paths_names_and_counts() -> None:
    doc = stored(run.Config(Model, layers=[1, 2]))
    renamed = json.loads(json.dumps(doc).replace("list_1", "whatever"))
    renamed["refcounts"] = {}
    for node in renamed["objects"].values():
        node.pop("paths", None)
        node["items"] = [["?", item] for _, item in node["items"]]
    assert serializer.deserialize(wrapped(json.dumps(renamed))) == run.Config(Model, layers=[1, 2])


def test_readers_do_not_depend_on_the_order_of_objects() -> None:
    doc = stored(LINKED)
    doc["objects"] = dict(reversed(doc["objects"].items()))
    assert serializer.deserialize(wrapped(json.dumps(doc))) == LINKED
