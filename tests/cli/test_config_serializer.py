"""Tasks as YAML, JSON and TOML files."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.parsing_targets import Color, Model, Net, Optim, fit, note, untyped
from tests.naming import stable_repr

import nemo_run as run
from nemo_run.cli import config
from nemo_run.cli.config import ConfigSerializer
from nemo_run.cli.values.config_files import Format, as_config, parse, plain
from nemo_run.exceptions import ConfigError

HERE = "tests.cli.parsing_targets"
FORMATS = ("yaml", "json", "toml")
serializer = ConfigSerializer()


def task() -> run.Partial[Any]:
    return run.Partial(fit, net=run.Config(Net, width=64), steps=10, tags=["a", "b"])


TEXTS = {
    "yaml": f"""\
_partial_: true
_target_: {HERE}.fit
net:
  _target_: {HERE}.Net
  width: 64
steps: 10
tags:
- a
- b
""",
    "json": f"""\
{{
  "_partial_": true,
  "_target_": "{HERE}.fit",
  "net": {{
    "_target_": "{HERE}.Net",
    "width": 64
  }},
  "steps": 10,
  "tags": [
    "a",
    "b"
  ]
}}""",
    "toml": f"""\
_partial_ = true
_target_ = "{HERE}.fit"
steps = 10
tags = [
    "a",
    "b",
]

[net]
_target_ = "{HERE}.Net"
width = 64
""",
}


def serialize(cfg: Any, format: str) -> str:
    return str(getattr(serializer, f"serialize_{format}")(cfg))


def deserialize(text: str, format: str) -> Any:
    return getattr(serializer, f"deserialize_{format}")(text)


@pytest.mark.parametrize("format", FORMATS)
def test_a_task_is_written_with_sorted_keys(format: str) -> None:
    assert serialize(task(), format) == TEXTS[format]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_can_be_read_back(format: str) -> None:
    assert deserialize(TEXTS[format], format) == task()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "value",
    [
        run.Config(Net),
        run.Config(Model, net=run.Config(Net), optim=run.Config(Optim, betas=(0.1, 0.2))),
        run.Config(Model, net=run.Config(Net, width=1), optim=run.Partial(Optim)),
        run.Partial(untyped, a=[run.Config(Net), run.Config(Net, width=2)], b="5", c="true"),
        run.Partial(untyped, a=(1, 2), b={1, 2}, c=Color.RED, d=note),
        run.Partial(untyped, a={"x": {"y": [1, "2", 3.5]}}, b={1: 2}, c=Path("/a b")),
        run.Partial(untyped, a=float("inf"), b=-0.0, c="naïve\n'\"", d=False),
        run.Partial(untyped, 1, 2),
        run.Config(dict, a=1, b=run.Config(Net)),
    ],
    ids=stable_repr,
)
def test_trees_come_back_as_they_were(value: Any, format: str) -> None:
    assert deserialize(serialize(value, format), format) == value


LEAVES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text("aé'\"\n0:", max_size=5),
)
KEYS = st.text('ab." ', max_size=3)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.sampled_from(FORMATS))
def test_any_plain_data_comes_back_as_it_was(data: Any, format: str) -> None:
    value = run.Partial(untyped, a=data, b=run.Config(Net, name=copy.deepcopy(data)))
    assert deserialize(serialize(value, format), format) == value


def test_configs_that_are_equal_are_not_shared_after_reading() -> None:
    value = run.Partial(fit, net=run.Config(Net), other=run.Config(Net))
    back = serializer.deserialize_yaml(serializer.serialize_yaml(value))
    assert back.net is not back.other


@pytest.mark.parametrize("format", FORMATS)
def test_null_comes_back_in_every_format(format: str) -> None:
    value = run.Partial(untyped, a=None, b={"x": [1, None]})
    assert deserialize(serialize(value, format), format) == value


@pytest.mark.parametrize("format", FORMATS)
@given(text=st.text("a\\${}", max_size=8))
def test_texts_with_dollars_come_back_here_and_on_a_command_line(format: Format, text: str) -> None:
    written = serialize(run.Partial(untyped, a=text), format)
    assert deserialize(written, format).a == text
    assert plain(as_config(parse(written, format)))["a"] == text


def test_a_text_that_means_missing_cannot_be_written() -> None:
    with pytest.raises(ConfigError, match=r"'\?\?\?' cannot be written to a config file"):
        serializer.serialize_yaml(run.Partial(untyped, a="???"))


def test_null_in_a_list_cannot_be_converted_to_toml() -> None:
    with pytest.raises(ConfigError, match=r"the list at <root>.a.x holds one. Use YAML or JSON"):
        config.yaml_to_toml("a: {x: [1, null]}")


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_gets_the_text_too(format: str) -> None:
    stream = io.StringIO()
    text = getattr(serializer, f"serialize_{format}")(task(), stream)
    assert stream.getvalue() == text == TEXTS[format]


@pytest.mark.parametrize("format", FORMATS)
def test_each_format_has_file_versions(here: Path, format: str) -> None:
    getattr(serializer, f"dump_{format}")(task(), here / "task")
    assert (here / "task").read_text() == TEXTS[format]
    assert getattr(serializer, f"load_{format}")(here / "task") == task()


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.yaml", "yaml"),
        ("a.yml", "yaml"),
        ("a.json", "json"),
        ("a.toml", "toml"),
        ("A.YAML", "yaml"),
    ],
)
def test_the_suffix_says_the_format(here: Path, name: str, format: str) -> None:
    serializer.dump(task(), name)
    assert (here / name).read_text() == TEXTS[format]
    assert serializer.load(name) == task()


@pytest.mark.parametrize("name", ["a.txt", "a", "yaml"])
def test_another_suffix_is_refused_with_the_four_there_are(here: Path, name: str) -> None:
    for use in (lambda: serializer.dump(task(), name), lambda: serializer.load(name)):
        with pytest.raises(ValueError, match=r"\.yaml, \.yml, \.json, \.toml"):
            use()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("a: 1", "yaml"),
        ("- 1", "yaml"),
        ("a: [", "yaml"),
        ("{}", "json"),
        ("{", "json"),
        ("a = 1", "toml"),
        ("a =", "toml"),
    ],
)
def test_what_is_no_task_is_refused(text: str, format: str) -> None:
    with pytest.raises(ValueError, match=r"no _target_|This is not"):
        deserialize(text, format)


def test_raw_data_is_read_without_making_a_config(here: Path) -> None:
    (here / "a.yaml").write_text("_target_: nowhere.at.all\nx: [1]\n")
    assert serializer.load_dict("a.yaml") == {"_target_": "nowhere.at.all", "x": [1]}


@pytest.mark.parametrize("name", ["a.yaml", "a.json", "a.toml"])
def test_raw_data_is_written_in_the_format_of_the_suffix(here: Path, name: str) -> None:
    serializer.dump_dict({"b": {"x": 1}, "a": [1]}, name)
    assert serializer.load_dict(name) == {"b": {"x": 1}, "a": [1]}


def test_a_format_overrides_the_suffix(here: Path) -> None:
    serializer.dump_dict({"a": 1}, "out.txt", format="json")
    assert json.loads(Path("out.txt").read_text()) == {"a": 1}
    with pytest.raises(ValueError, match="Supported formats are: yaml, json, toml"):
        serializer.dump_dict({"a": 1}, "out.txt", format="xml")


def test_one_section_can_be_written_alone(here: Path) -> None:
    data = {"net": {"width": 1}, "steps": 2}
    serializer.dump_dict(data, "a.yaml", section="net")
    serializer.dump_dict(data, "b.yaml:net")
    assert Path("a.yaml").read_text() == Path("b.yaml").read_text() == "width: 1\n"


def test_a_section_that_is_not_there_is_a_key_error(here: Path) -> None:
    with pytest.raises(KeyError, match="Section 'nte' not found"):
        serializer.dump_dict({"net": 1}, "a.yaml", section="nte")
    assert not Path("a.yaml").exists()


YAML = "a:\n- 1\n- 2\nb: x\nc:\n  z: 1\n"
DATA = {"a": [1, 2], "b": "x", "c": {"z": 1}}


def test_texts_are_converted_between_the_formats() -> None:
    as_json, as_toml = json.dumps(DATA), 'a = [1, 2]\nb = "x"\n[c]\nz = 1\n'
    assert config.yaml_to_dict(YAML) == DATA
    assert config.dict_to_yaml(DATA) == YAML
    assert json.loads(config.yaml_to_json(YAML)) == DATA
    assert config.json_to_yaml(as_json) == YAML
    assert config.toml_to_yaml(config.yaml_to_toml(YAML)) == YAML
    assert config.toml_to_yaml(as_toml) == YAML
    assert json.loads(config.toml_to_json(as_toml)) == DATA
    assert json.loads(config.toml_to_json(config.json_to_toml(as_json))) == DATA


def test_json_is_indented_by_two() -> None:
    assert config.yaml_to_json("a: {b: 1}") == '{\n  "a": {\n    "b": 1\n  }\n}'


def test_null_vanishes_on_the_way_to_toml() -> None:
    assert config.yaml_to_toml("a: null\nb: {c: null, d: 1}") == "[b]\nd = 1\n"
    assert config.json_to_toml('{"a": null, "b": 1}') == "b = 1\n"


def test_tuples_and_sets_are_written_so_that_any_reader_takes_them() -> None:
    text = config.dict_to_yaml({"t": (1, 2), "s": {2, 1}})
    assert yaml.safe_load(text) == {"t": [1, 2], "s": [1, 2]}


def test_dates_are_texts_in_json() -> None:
    assert json.loads(config.yaml_to_json("day: 2024-01-31")) == {"day": "2024-01-31"}


def test_toml_holds_nothing_but_a_mapping_at_the_top() -> None:
    with pytest.raises(ConfigError, match="TOML holds a mapping"):
        config.yaml_to_toml("- 1")
