"""Variables that change what people see."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

import nemo_run as run
from nemo_run._experiments.display import panel
from nemo_run.core.frontend.console.api import configure_logging, deconfigure_logging


def small_net() -> run.Config[dict[str, int]]:
    return run.Config(dict, width=1)


def fit(net: dict[str, int]) -> None:
    pass


@pytest.mark.parametrize(
    ("variable", "value", "scheme"),
    [
        ("NEMO_EDITOR", "vscode", "vscode://file/"),
        ("TERM_PROGRAM", "cursor", "cursor://file/"),
        ("NEMO_EDITOR", "", "file://"),
    ],
)
def test_help_links_to_the_source_the_way_the_editor_wants(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, scheme: str
) -> None:
    for name in ("NEMO_EDITOR", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value)
    run.cli.factory(small_net, target=fit, target_arg="net")
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    run.help(fit, console=console)
    assert isinstance(console.file, io.StringIO)
    assert f"{scheme}{__file__}:" in console.file.getvalue()


def test_the_closing_hint_has_the_theme_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {}
    for theme in ("monokai", "bw"):
        monkeypatch.delenv("NO_COLOR", raising=False)
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, color_system="truecolor")
        panel.goodbye(console, "id", ["job"], theme)
        shown[theme] = file.getvalue()
    assert "from_id" in shown["monokai"]
    assert shown["monokai"] != shown["bw"]


def test_a_notebook_keeps_its_own_log_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    logger = logging.getLogger("nemo_run")
    deconfigure_logging()
    before = list(logger.handlers)
    configure_logging("debug")
    try:
        assert logger.handlers == before
        assert logger.propagate
        assert logger.level == logging.DEBUG
    finally:
        deconfigure_logging()
