"""What goes to and fro between us and a command, within limits."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from nemo_run._transport.ssh.exchange import heard
from nemo_run.exceptions import BackendUnavailableError


def started(text: str, *, stdin: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", text], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_all_that_is_said_comes_back_and_all_that_is_given_arrives() -> None:
    data = bytes(range(256)) * 4096
    with started("cat; printf more >&2; exit 3") as process:
        assert heard(process, data) == (data, b"more")
    assert process.returncode == 3


@pytest.mark.parametrize("data", [None, b"", b"x" * 1_000_000], ids=["none", "empty", "much"])
def test_a_command_need_not_read(data: bytes | None) -> None:
    with started("exec <&-; echo done") as process:
        assert heard(process, data) == (b"done\n", b"")
    with started("echo done", stdin=subprocess.DEVNULL) as process:
        assert heard(process, data) == (b"done\n", b"")


def test_one_that_writes_without_end_is_killed() -> None:
    with (
        started(f"exec {sys.executable} -c 'while 1: print(8)'") as process,
        pytest.raises(BackendUnavailableError, match="more than 1 MiB"),
    ):
        heard(process, most_bytes=1 << 20)
    assert process.returncode == -9


def test_one_that_takes_too_long_is_left_to_the_caller() -> None:
    begin = time.monotonic()
    with started("echo now; exec sleep 100") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            heard(process, timeout_s=0.2)
        assert process.poll() is None
        process.kill()
    assert time.monotonic() - begin < 60
