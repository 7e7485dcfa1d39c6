"""A vendor's package that is not there is named, with how to install it, when it is needed."""

from __future__ import annotations

import sys
from importlib.metadata import metadata
from pathlib import Path

import pytest

from nemo_run._extras import require
from nemo_run.exceptions import ConfigError, MissingDependencyError


def test_what_is_installed_is_imported() -> None:
    assert (
        require("json.decoder", extra="none", needed_by="this test") is sys.modules["json.decoder"]
    )


def test_what_is_missing_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(MissingDependencyError, match=r"pip install 'nemo_run\[lepton\]'") as caught:
        require("no_such_vendor.api", extra="lepton", needed_by="LeptonExecutor")
    assert "LeptonExecutor needs the package 'no_such_vendor', which is not installed" in str(
        caught.value
    )
    assert caught.value.extra == "lepton"
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, ConfigError)


def test_a_version_without_the_module_is_told_from_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_vendor").mkdir()
    (tmp_path / "some_vendor" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match="cannot be used"):
        require("some_vendor.api.v1", extra="lepton", needed_by="LeptonExecutor")


@pytest.mark.parametrize(
    "extra", ["lepton", "skypilot", "skypilot-all", "kubernetes", "kubeflow", "ray"]
)
def test_every_vendor_is_an_extra_with_both_bounds(extra: str) -> None:
    wanted = metadata("nemo_run").get_all("Requires-Dist") or []
    own = [line for line in wanted if f'extra == "{extra}"' in line.replace("'", '"')]
    assert own
    assert all(">=" in line and "<" in line for line in own)


@pytest.mark.parametrize(
    ("extra", "brought"), [("skypilot", "skypilot[kubernetes]"), ("skypilot-all", "skypilot[all]")]
)
def test_the_extras_of_0_12_bring_the_same_clouds(extra: str, brought: str) -> None:
    wanted = metadata("nemo_run").get_all("Requires-Dist") or []
    (own,) = (line for line in wanted if f'extra == "{extra}"' in line.replace("'", '"'))
    assert own.startswith(brought)


def test_all_brings_every_extra() -> None:
    wanted = metadata("nemo_run").get_all("Requires-Dist") or []
    brought = " ".join(line for line in wanted if 'extra == "all"' in line.replace("'", '"'))
    for name in ("leptonai", "skypilot", "kubernetes", "ray"):
        assert name in brought
