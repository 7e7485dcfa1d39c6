"""Stored configs can be read under a policy that names what they may import."""

from __future__ import annotations

import fractions
import sys

import pytest
from fiddle.experimental.serialization import PyrefPolicyError

import nemo_run as run
from nemo_run.core.serialization.zlib_json import AllowList, ZlibJSONSerializer

serializer = ZlibJSONSerializer()


def test_what_is_on_the_list_is_read() -> None:
    cfg = run.Config(fractions.Fraction, 1, 3)
    text = serializer.serialize(cfg)
    assert serializer.deserialize(text, AllowList("fractions")) == cfg


def test_what_is_not_on_the_list_is_not_even_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory
) -> None:
    text = serializer.serialize(run.Config(fractions.Fraction, 1, 3))
    monkeypatch.delitem(sys.modules, "fractions")
    with pytest.raises(PyrefPolicyError, match="AllowList"):
        serializer.deserialize(text, AllowList("fract", "fractions_of_mine"))
    assert "fractions" not in sys.modules


def test_submodules_of_a_package_on_the_list_are_read() -> None:
    cfg = run.Config(run.Script, "job.sh")
    assert serializer.deserialize(serializer.serialize(cfg), AllowList()) == cfg
