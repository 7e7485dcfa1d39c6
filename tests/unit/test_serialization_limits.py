"""What reading a stored config may do, and what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fiddle.experimental.serialization import PyrefPolicyError
from tests.unit.config_targets import Box, Model, Point
from tests.unit.serialization_text import document, pyref, unwrapped, wrapped

import nemo_run as run
from nemo_run.core.serialization.build import build_text
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError

serializer = ZlibJSONSerializer()


def calling(module: str, name: str, *arguments: str) -> str:
    """A stored text that asks its reader to call something."""
    call = {
        "type": pyref("fiddle._src.daglish", "NamedTupleType"),
        "items": [
            [f"Index(index={i})", {"type": "leaf", "value": text, "paths": []}]
            for i, text in enumerate(arguments)
        ],
        "metadata": pyref(module, name),
        "paths": ["<root>"],
    }
    return wrapped(
        json.dumps(
            {
                "root": {"type": "ref", "key": "call_1"},
                "objects": {"call_1": call},
                "refcounts": {"call_1": 1},
                "version": "0.0.1",
            }
        )
    )


class TestCalls:
    @pytest.mark.parametrize(
        "target",
        [("subprocess", "getoutput"), ("os", "system"), ("subprocess", "Popen")],
        ids=lambda target: ".".join(target),
    )
    def test_reading_calls_no_functions(self, target: tuple[str, str], tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with pytest.raises((ConfigError, PyrefPolicyError)):
            serializer.deserialize(calling(*target, f"touch {ran}"))
        assert not ran.exists()

    def test_the_refusal_names_the_function(self) -> None:
        with pytest.raises(ConfigError, match="getoutput"):
            serializer.deserialize(calling("subprocess", "getoutput", "true"))

    @pytest.mark.parametrize("as_partial", [True, False])
    def test_building_calls_no_functions(self, as_partial: bool, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        with pytest.raises(ConfigError, match="getoutput"):
            build_text(calling("subprocess", "getoutput", f"touch {ran}"), as_partial=as_partial)
        assert not ran.exists()

    def test_a_call_inside_of_another_node_is_found(self, tmp_path: Path) -> None:
        ran = tmp_path / "ran"
        document = json.loads(unwrapped(calling("subprocess", "getoutput", f"touch {ran}")))
        document["root"] = document["objects"].pop("call_1")
        for read in (build_text, serializer.deserialize):
            with pytest.raises(ConfigError, match="getoutput"):
                read(wrapped(json.dumps(document)))
        assert not ran.exists()

    def test_plain_values_are_made(self) -> None:
        text = calling("pathlib", "PurePosixPath", "a/b")
        assert str(serializer.deserialize(text)) == "a/b"
        assert str(build_text(text)) == "a/b"


MALFORMED: dict[str, Any] = {
    "a list": [],
    "a number": 5,
    "no root": {"objects": {}},
    "no objects": {"root": None},
    "a reference to nothing": {"root": {"type": "ref", "key": "gone"}, "objects": {}},
    "a reference without a key": {"root": {"type": "ref"}, "objects": {}},
    "a node without a type": {"root": {"value": 1}, "objects": {}},
    "a leaf without a value": {"root": {"type": "leaf"}, "objects": {}},
    "a type of an unknown kind": {"root": {"type": "mystery"}, "objects": {}},
    "an object without items": {"root": {"type": pyref("builtins", "list")}, "objects": {}},
    "a config without a target": {
        "root": {
            "type": pyref("nemo_run.config", "Config"),
            "items": [],
            "metadata": {"type": "leaf", "value": None},
        },
        "objects": {},
    },
}


@pytest.mark.parametrize("stored", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_document_is_no_stored_config(stored: Any) -> None:
    with pytest.raises(ConfigError, match="stored config"):
        serializer.deserialize(wrapped(json.dumps(stored)))


@pytest.mark.parametrize("target", ["5", "[a]", "null", "true", "{a: b}"])
def test_the_target_in_yaml_is_a_name(target: str) -> None:
    with pytest.raises(ConfigError, match="_target_"):
        YamlSerializer().deserialize(f"_target_: {target}\n")


NEW_SETTINGS = {"time_limit_s": 5.0, "gpus": 1, "jobs_at_a_time": 2, "separate_streams": True}


class TestSettingsThatEarlierReleasesDoNotKnow:
    def test_are_not_stored_unless_they_are_used(self) -> None:
        text = serializer.serialize(run.LocalExecutor(retries=2).to_config())
        assert NEW_SETTINGS.keys().isdisjoint(run.LocalExecutor().to_config().__arguments__)
        assert not any(name in json.dumps(document(text)) for name in NEW_SETTINGS)

    @pytest.mark.parametrize("name", NEW_SETTINGS)
    def test_are_stored_where_they_are_used(self, name: str) -> None:
        executor = run.LocalExecutor(**{name: NEW_SETTINGS[name]})  # type: ignore[arg-type]
        stored = executor.to_config().__arguments__
        assert NEW_SETTINGS.keys() & stored.keys() == {name}
        assert stored[name] == NEW_SETTINGS[name]


def test_what_equal_configs_have_in_common_is_stored_once() -> None:
    cfg = run.Config(Box, value=[run.Config(Point, x=i) for i in range(20)])
    stored = document(serializer.serialize(cfg))["objects"].values()
    kinds = [node["type"]["name"] for node in stored]
    assert kinds.count("Config") == 21
    assert kinds.count("BuildableTraverserMetadata") == 2
    assert serializer.deserialize(serializer.serialize(cfg)) == cfg


def test_configs_with_other_arguments_keep_their_own() -> None:
    cfg = [run.Config(Model, width=1), run.Config(Model, depth=1), run.Partial(Model, width=1)]
    assert serializer.deserialize(serializer.serialize(cfg)) == cfg
