"""Which editor is opened on a devspace, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_run.devspace.editor import chosen_editor, editor_argv, launch_editor
from nemo_run.exceptions import ConfigError


class TestEditors:
    @pytest.fixture
    def programs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        directory = tmp_path / "bin"
        directory.mkdir()
        for name in ("code", "cursor"):
            program = directory / name
            program.write_text(f'#!/bin/sh\necho "$NEMO_EDITOR" "$@" >{tmp_path}/{name}.said\n')
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
        return tmp_path

    def test_each_opens_the_path_on_the_alias(self, programs: Path) -> None:
        launch_editor("dev.dev", "/workspaces/dev", "code")
        launch_editor("dev.dev", "/workspaces/dev", "cursor")
        where = "--remote ssh-remote+tunnel.dev.dev /workspaces/dev\n"
        assert (programs / "code.said").read_text() == f"vscode --new-window {where}"
        assert (programs / "cursor.said").read_text() == f"cursor {where}"

    def test_none_and_no_terminal_open_nothing(
        self, programs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        launch_editor("dev.dev", "/x", "none")
        launch_editor("dev.dev", "/x")
        assert not list(programs.glob("*.said"))
        monkeypatch.setenv("NEMO_DEVSPACE_EDITOR", "cursor")
        launch_editor("dev.dev", "/x")
        assert (programs / "cursor.said").exists()

    def test_one_that_is_missing_or_unknown_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(EnvironmentError, match="no program 'code'"):
            launch_editor("dev.dev", "/x", "code")
        with pytest.raises(ConfigError, match="'vi' is not an editor"):
            chosen_editor("vi")

    def test_under_windows_the_program_of_windows_is_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "bin" / "code"
        program.parent.mkdir()
        program.touch(mode=0o755)
        (tmp_path / "Code.exe").touch(mode=0o755)
        monkeypatch.setenv("PATH", str(program.parent))
        assert editor_argv("code", "d.d", "/x")[0] == str(program)
        monkeypatch.setattr("platform.release", lambda: "5.15.1-microsoft-standard-WSL2")
        assert editor_argv("code", "d.d", "/x")[0] == str(tmp_path / "Code.exe")
