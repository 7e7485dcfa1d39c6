"""An ssh server beside a job, and how to find it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.slurm.daemons import is_listening, wait_until

import nemo_run as run
from nemo_run.core.tunnel.server import TunnelMetadata, server_dir
from nemo_run.exceptions import RecordError

NOTE = TunnelMetadata(user="me", hostname="node1", port=2222, workspace_name="space")


def test_the_note_is_below_the_job_directory() -> None:
    assert server_dir("/jobs", "space") == Path("/jobs/.nemo_run/.tunnels/space")


def test_a_note_is_read_here_and_through_a_tunnel(tmp_path: Path) -> None:
    NOTE.save(tmp_path / "deep")
    assert json.loads((tmp_path / "deep" / "metadata.json").read_text()) == {
        "user": "me",
        "hostname": "node1",
        "port": 2222,
        "workspace_name": "space",
    }
    assert TunnelMetadata.restore(tmp_path / "deep") == NOTE
    assert TunnelMetadata.restore(tmp_path / "deep", run.LocalTunnel(job_dir="")) == NOTE


@pytest.mark.parametrize("content", [None, "", "{}", "[1]"])
def test_a_note_that_is_not_there_is_said(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metadata.json").write_text(content)
    with pytest.raises(RecordError, match=r"metadata\.json"):
        TunnelMetadata.restore(tmp_path)
    with pytest.raises(RecordError, match=r"metadata\.json"):
        TunnelMetadata.restore(tmp_path, run.LocalTunnel(job_dir=""))


@pytest.mark.slow
def test_a_server_says_where_it_is_and_listens_there(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from nemo_run.core.tunnel.server import launch; "
        "launch(pathlib.Path(sys.argv[1]), 'space', hostname='127.0.0.1')"
    )
    server = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], start_new_session=True)
    try:
        wait_until((tmp_path / "metadata.json").exists, "the note")
        note = TunnelMetadata.restore(tmp_path)
        wait_until(lambda: is_listening(note.port), "the server")
        assert (note.hostname, note.workspace_name) == ("127.0.0.1", "space")
        scan = ["ssh-keyscan", "-t", "ed25519", "-p", str(note.port), "127.0.0.1"]
        assert "ssh-ed25519" in subprocess.run(scan, capture_output=True, text=True).stdout
    finally:
        server.terminate()
        server.wait()
    wait_until(lambda: not is_listening(note.port), "the end of the server")
    assert not (tmp_path / "metadata.json").exists()
