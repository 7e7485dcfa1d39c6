"""A login host that attacks those who copy files from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.tars import attacks
from tests.integration.slurm.sshd import ALIAS, Sshd, temporary_sshd

import nemo_run as run
from nemo_run._transport.ssh.transfer import MARK
from nemo_run.exceptions import BackendError, BackendUnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.needs("sshd")]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server prints whatever it is asked: a shell script."""
    return tmp_path_factory.mktemp("server") / "answer.sh"


@pytest.fixture(scope="module")
def hostile(answer: Path) -> Iterator[Sshd]:
    with temporary_sshd(f"ForceCommand sh {answer}\n") as server:
        yield server


@pytest.fixture
def tunnel(hostile: Sshd, monkeypatch: pytest.MonkeyPatch) -> run.SSHTunnel:
    monkeypatch.setenv("PATH", hostile.environment["PATH"])
    return run.SSHTunnel(host=ALIAS, user=hostile.user, job_dir="/x")


def says(answer: Path, kind: bytes, data: bytes) -> str:
    sent = answer.with_name("sent")
    sent.write_bytes(MARK + kind + data)
    return f"cat {sent}\n"


@pytest.mark.parametrize("name", sorted(attacks("/x/y")))
def test_a_directory_that_is_fetched_changes_nothing_else(
    name: str, tunnel: run.SSHTunnel, answer: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    answer.write_text(says(answer, b"d", attacks(str(victim))[name]))
    with contextlib.suppress(BackendError):
        tunnel.get("/far", str(tmp_path / "back"))
    assert (victim.read_text(), victim.stat().st_nlink) == ("mine", 1)


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("cat /dev/zero", "before what was asked for"),
        (f"printf '{MARK.decode()}d'; cat /dev/urandom", "not a whole tar file"),
        (f"printf '{MARK.decode()}n'; cat /dev/zero", "more than was asked for"),
    ],
)
def test_a_stream_without_end_is_cut(
    before: str, words: str, tunnel: run.SSHTunnel, answer: Path, tmp_path: Path
) -> None:
    answer.write_text(f"{before}\n")
    with pytest.raises(BackendError, match=words):
        tunnel.get("/far", str(tmp_path / "back"))


@pytest.mark.parametrize(("stream", "hide"), [(1, True), (2, False)], ids=["hidden", "shown"])
def test_a_command_whose_output_does_not_end_is_given_up(
    stream: int, hide: bool, tunnel: run.SSHTunnel, answer: Path
) -> None:
    answer.write_text(f"exec cat /dev/zero >&{stream}\n")
    with (
        Path(os.devnull).open("w") as nowhere,
        pytest.raises(BackendUnavailableError, match="more than 256 MiB"),
    ):
        tunnel.run("true", hide=hide, out_stream=nowhere, err_stream=nowhere)


def test_what_is_read_of_a_file_is_no_more_than_was_asked_for(
    tunnel: run.SSHTunnel, answer: Path
) -> None:
    answer.write_text(f"printf '{MARK.decode()}'; exec cat /dev/zero\n")
    with pytest.raises(BackendUnavailableError, match="more than"):
        tunnel.read("/far", 0, 10)
