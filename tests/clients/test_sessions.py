"""Tunnels in the hands of tools: commands, watchers, terminals, files, connections of their own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.clients.users import ClusterUser, site

pytestmark = pytest.mark.slow


# The two kinds of accounting make no difference to a tunnel.
both_ways = pytest.mark.parametrize(
    "cluster_user",
    [site("ssh", accounting=False), site("local", accounting=False)],
    indirect=True,
)
over_ssh_only = pytest.mark.parametrize(
    "cluster_user", [site("ssh", accounting=False)], indirect=True
)


def told(user: ClusterUser, what: str) -> dict[str, Any]:
    user.runs("sessions.py", what)
    found = user.found(what)
    assert isinstance(found, dict)
    return found


@both_ways
def test_a_command_says_how_it_ended(cluster_user: ClusterUser) -> None:
    done = cluster_user.runs("sessions.py", "commands")
    found = cluster_user.found("commands")

    well = {"stdout": "fine\n", "stderr": "", "exited": 0, "ok": True, "return_code": 0}
    assert found["good"] == well
    badly = {"stdout": "out\n", "stderr": "err\n", "exited": 3, "ok": False, "return_code": 3}
    assert found["bad"] == badly
    assert found["raised"][0]
    # What is not hidden is shown, and nothing else.
    assert "seen\n" in done.stdout
    assert "complaint\n" in done.stderr
    assert "fine" not in done.stdout


@both_ways
def test_a_watcher_answers_a_question(cluster_user: ClusterUser) -> None:
    found = told(cluster_user, "watched")
    for pty in (False, True):
        answer = found[f"pty={pty}"]
        assert answer["ok"], answer
        assert "Password: " in answer["stdout"]
        assert "got <open sesame>" in answer["stdout"]


@both_ways
def test_a_command_gets_a_terminal_if_wanted(cluster_user: ClusterUser) -> None:
    found = told(cluster_user, "terminals")
    assert found["with"]["stdout"].split() == ["terminal"]
    assert found["without"]["stdout"] == "pipe\n"
    assert found["failing"]["exited"] == 6


@over_ssh_only
def test_there_is_no_session_until_connected(cluster_user: ClusterUser) -> None:
    assert told(cluster_user, "session") == {"before": True, "after": True}


@over_ssh_only
def test_files_are_copied_with_progress(cluster_user: ClusterUser) -> None:
    found = told(cluster_user, "sftp")
    assert (found["sent"], found["fetched"]) == (True, True)
    for direction in ("put", "get"):
        steps = found["progress"][direction]
        assert steps[-1] == [found["size"], found["size"]]
        assert steps == sorted(steps)


@over_ssh_only
@pytest.mark.parametrize("direction", ["put", "get"])
def test_a_file_that_sftp_misses_is_named(cluster_user: ClusterUser, direction: str) -> None:
    kind, text = told(cluster_user, "sftp")["missing"][direction]
    assert kind == "FileNotFoundError"
    assert "nothing" in text or "No such file" in text


@both_ways
def test_the_tunnel_copies_files(cluster_user: ClusterUser) -> None:
    found = told(cluster_user, "files")
    assert (found["there"], found["back"]) == ("some words\n", "some words\n")


@both_ways
@pytest.mark.parametrize("direction", ["put", "get"])
def test_a_file_that_the_tunnel_misses_is_named(cluster_user: ClusterUser, direction: str) -> None:
    kind, text = told(cluster_user, "files")["missing"][direction]
    assert kind == "FileNotFoundError"
    assert "nothing" in text


@pytest.mark.parametrize(
    "cluster_user",
    [site("ssh", accounting=True), site("ssh", accounting=False)],
    indirect=True,
)
def test_a_tunnel_may_connect_in_its_own_way(cluster_user: ClusterUser) -> None:
    found = told(cluster_user, "own")
    assert found["result"]["stdout"] == "by our own way\n"
    assert found["result"]["return_code"] == 2
    assert "by our own way" in found["first"]
    # Jobs are launched through it as well.
    assert found["states"] == {"train": "SUCCEEDED"}
    assert found["more"]
    assert cluster_user.found("own-job")["env"]["SLURM_JOB_ID"]
