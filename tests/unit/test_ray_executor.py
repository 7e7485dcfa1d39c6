"""Jobs on a Ray cluster that is already there: what is sent, what runs there, what its log says."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import patience
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.ray import request
from nemo_run._backends.ray.client import Job
from nemo_run._backends.ray.driver import CONFIG, JOB_FILE, KEY, sealed
from nemo_run._backends.ray.logs import JobLog
from nemo_run._backends.ray.marks import Marks, nonce_of
from nemo_run._backends.ray.site import Site
from nemo_run._backends.ray.status import RAY_STATES, status_of
from nemo_run._credentials import CredentialStore
from nemo_run.exceptions import BackendUnavailableError, ConfigError, UnsupportedError

TAG = "nr-0123456789"
HEAD = b"2026 INFO job_manager.py -- Runtime env is setting up.\nRunning entrypoint: x\n"


def mark(what: str) -> bytes:
    return f"[nemo_run {nonce_of(TAG)} {what}]\n".encode()


class TestMarks:
    @given(
        text=st.binary(max_size=60).filter(lambda text: b"[nemo_run" not in text),
        cuts=st.lists(st.integers(0, 400), max_size=5),
    )
    def test_a_log_is_the_same_in_whatever_pieces_it_comes(
        self, text: bytes, cuts: list[int]
    ) -> None:
        whole = HEAD + mark("begin") + text + mark("try 1 ended with exit code 3") + mark("end")
        marks, said, at = Marks(nonce_of(TAG)), b"", 0
        for cut in [*sorted(cuts), len(whole)]:
            piece = marks.feed(whole[at:cut])
            assert piece == b"" or piece.endswith(b"\n")
            said, at = said + piece, max(at, cut)
        assert said + marks.rest() == text
        assert (marks.tries, marks.begun, marks.finished) == (1, True, True)

    def test_the_last_line_of_a_try_need_not_end(self) -> None:
        marks = Marks(nonce_of(TAG))
        log = mark("begin") + b"one" + mark("try 1 ended with exit code 1") + b"two\n"
        assert marks.feed(log) + marks.rest() == b"one\ntwo\n"

    def test_what_looks_like_a_mark_of_another_job_is_text(self) -> None:
        marks = Marks(nonce_of(TAG))
        line = mark("end").replace(nonce_of(TAG).encode(), b"0" * 16)
        assert marks.feed(mark("begin") + line) == line
        assert not marks.finished

    def test_of_a_task_that_never_began_there_is_what_ray_said(self) -> None:
        marks = Marks(nonce_of(TAG))
        assert marks.feed(HEAD) == b""
        assert marks.before() == HEAD


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def key() -> str:
    body = request.body(env={}, runtime_env={}, metadata={}, resources={}, package="p.zip", tag=TAG)
    return str(body["metadata"][KEY])


def opened(data: bytes) -> Any:
    return json.loads(sealed(key(), data))


class TestPackage:
    def make(self, job_dir: Path, env: Mapping[str, str] | None = None) -> tuple[str, bytes]:
        return request.package(job_dir, ["true"], env or {}, tag=TAG, retries=0)

    @pytest.fixture
    def job_dir(self, tmp_path: Path) -> Path:
        code = tmp_path / "job" / "code"
        (code / "pkg" / "empty").mkdir(parents=True)
        (code / "pkg" / "mod.py").write_text("x = 1\n")
        (code / "tool").write_text("#!/bin/sh\n")
        (code / "tool").chmod(0o755)
        (code / "same").symlink_to("pkg/mod.py")
        (code / "folder").symlink_to("pkg")
        (tmp_path / "job" / "configs").mkdir()
        (tmp_path / "job" / "configs" / "task").write_text("text")
        (tmp_path / "job" / "code.tar.gz").write_text("not again")
        return tmp_path / "job"

    def test_code_is_at_the_top_and_our_files_are_below(self, job_dir: Path) -> None:
        found = members(self.make(job_dir)[1])
        assert found["pkg/mod.py"] == found["same"] == b"x = 1\n"
        assert "pkg/empty/" in found
        assert found[f"{request.OURS}/configs/task"] == b"text"
        job = opened(found[f"{request.OURS}/{JOB_FILE}"])
        assert (job["links"], job["programs"]) == ({"folder": "pkg"}, ["tool"])
        assert not [name for name in found if name.endswith(".tar.gz")]

    def test_programs_stay_programs_and_only_the_owner_reads_the_environment(
        self, job_dir: Path
    ) -> None:
        with zipfile.ZipFile(io.BytesIO(self.make(job_dir)[1])) as archive:
            modes = {i.filename: (i.external_attr >> 16) & 0o777 for i in archive.infolist()}
        assert modes["tool"] == 0o755
        assert modes[f"{request.OURS}/{JOB_FILE}"] == 0o600

    def test_the_environment_is_sealed(self, job_dir: Path) -> None:
        data = members(self.make(job_dir, {"HF_TOKEN": "hf_abcdef"})[1])
        assert not [name for name, content in data.items() if b"hf_abcdef" in content]
        job = opened(data[f"{request.OURS}/{JOB_FILE}"])
        assert job["env"] == {"HF_TOKEN": ["hf_abcdef", True]}

    def test_the_same_files_have_the_same_name(self, job_dir: Path) -> None:
        first = self.make(job_dir)
        (job_dir / "code" / "pkg" / "mod.py").touch()
        assert self.make(job_dir) == first
        (job_dir / "code" / "pkg" / "mod.py").write_text("x = 2\n")
        assert self.make(job_dir)[0] != first[0]


class TestBody:
    def body(self, **settings: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "env": {},
            "runtime_env": {},
            "metadata": {},
            "resources": {},
            "package": "p.zip",
        }
        given["tag"] = TAG
        return request.body(**{**given, **settings})

    def test_a_secret_is_in_none_of_it(self) -> None:
        env = {"HF_TOKEN": "hf_abcdefghijklmnop", "PLAIN": "x", "FILLED": "${HOME}"}
        body = self.body(env=env)
        assert body["runtime_env"]["env_vars"] == {"PLAIN": "x"}
        assert "hf_abc" not in json.dumps(body)

    def test_only_what_was_asked_for_is_kept_for_the_job(self) -> None:
        asked = run.RayExecutor(address="http://r:1", num_gpus=1, resources={"a": 1}).asked_for()
        body = self.body(resources=asked)
        kept = {name: value for name, value in body.items() if name.startswith("entrypoint_")}
        assert kept == {"entrypoint_num_gpus": 1, "entrypoint_resources": {"a": 1}}


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"address": ""}, "RAY_API_SERVER_ADDRESS"),
            ({"address": "ray://head:10001"}, "not the address of a dashboard"),
            ({"address": "http://me:secret@head:8265"}, "login"),
            ({"num_gpus": -1}, "num_gpus=-1"),
            ({"resources": {"tpu": -2}}, "less than nothing"),
            ({"runtime_env": {"working_dir": "."}}, "packager"),
            ({"runtime_env": {"env_vars": {"A": 1}}}, "not text"),
            ({"runtime_env": {"env_vars": {"HF_TOKEN": "hf_abcdefghijkl"}}}, "secret"),
            ({"runtime_env": {"pip": {1, 2}}}, "JSON"),
            ({"metadata": {"a": 1}}, "texts only"),
        ],
    )
    def test_what_is_wrong_is_said_before_anything_is_sent(
        self, settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
            monkeypatch.delenv(name, raising=False)
        executor = run.RayExecutor(**{"address": "http://127.0.0.1:8265", **settings})
        with pytest.raises(ConfigError, match=said):
            executor.check()

    def test_a_token_that_was_written_out_is_stored_apart(self) -> None:
        executor = run.RayExecutor(address="http://127.0.0.1:8265/", token="tok-123456")
        assert "tok-123456" not in repr(executor)
        assert executor.to_config().token == ""
        assert CredentialStore().find("http://127.0.0.1:8265", "ray") == "tok-123456"
        assert Site.at("http://127.0.0.1:8265/", "tok-123456").to_where()["token"] == ""

    def test_several_replicas_are_refused(self, tmp_path: Path) -> None:
        from torchx.specs import AppDef, Role

        from nemo_run.run.torchx_backend.schedulers.ray import create_scheduler

        executor = run.RayExecutor(address="http://127.0.0.1:8265")
        executor.assign("e_1", str(tmp_path), "job", "job")
        role = Role(name="job", image="", entrypoint="true", num_replicas=2)
        with pytest.raises(UnsupportedError, match="once, not 2"):
            create_scheduler("x").submit_dryrun(AppDef(name="job", roles=[role]), executor)


class TestStates:
    def test_every_word_of_ray_has_a_state(self) -> None:
        words = {"PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"}
        assert RAY_STATES.keys() == words

    @pytest.mark.parametrize(("code", "shown"), [(3, 3), (-9, 137), (None, None)])
    def test_a_signal_is_a_code_above_128(self, code: int | None, shown: int | None) -> None:
        status = status_of(Job(id="a", status="FAILED", exit_code=code), url="")
        assert (status.state, status.exit_code) == (AppState.FAILED, shown)

    def test_a_word_that_ray_will_have_some_day_ends_nothing(self) -> None:
        assert status_of(Job(id="a", status="PAUSED"), url="").state is AppState.UNKNOWN


class LongLog:
    """A cluster whose log comes for an hour before the connection breaks; then the job has ended.

    It is the clock, too.
    """

    server = "Ray"

    def __init__(self) -> None:
        self.now = 0.0
        self.opened = 0

    def monotonic(self) -> float:
        return self.now

    def find(self, job_id: str) -> Job:
        return Job(id=job_id, status="SUCCEEDED" if self.opened else "RUNNING", node="n")

    def log(self, job: Job, *, follow: bool = False, lines: int = -1) -> Any:
        self.opened += 1
        return self.first() if follow else iter_of(mark("begin") + b"one\ntwo\n" + mark("end"))

    def first(self) -> Iterator[bytes]:
        yield mark("begin")
        self.now += 3600
        yield b"one\n"
        raise BackendUnavailableError("cut", backend="ray")


def iter_of(*blocks: bytes) -> Iterator[bytes]:
    yield from blocks


def test_a_log_that_was_followed_for_an_hour_is_followed_through_a_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = LongLog()
    monkeypatch.setattr("nemo_run._backends.ray.logs.time", there)
    log = JobLog(there, "a", nonce_of(TAG))  # type: ignore[arg-type]  # a stand-in
    assert b"".join(log.follow()) == b"one\ntwo\n"


def laid_out(tmp_path: Path, argv: Sequence[str], retries: int = 0, **env: str) -> Path:
    """Return a directory as Ray unpacks it."""
    job_dir, there = tmp_path / "job", tmp_path / "there"
    (job_dir / "scripts").mkdir(parents=True)
    (job_dir / "scripts" / "s.sh").write_text('cat "/nemo_run/code/word"; echo "$1"\n')
    (job_dir / "code").mkdir()
    (job_dir / "code" / "word").write_text("from the code\n")
    _, data = request.package(job_dir, argv, env, tag=TAG, retries=retries)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(there)
    return there


def start(directory: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        driver = f"{request.OURS}/driver.py"
        return subprocess.Popen(
            [sys.executable, "-I", "-S", driver],
            cwd=directory,
            stdout=output,
            stderr=output,
            env={**os.environ, CONFIG: json.dumps({"metadata": {KEY: key(), "job_name": "x"}})},
        )


def said(log: Path) -> bytes:
    marks = Marks(nonce_of(TAG))
    return marks.feed(log.read_bytes()) + marks.rest()


class TestDriver:
    def test_it_runs_the_task_and_forgets_the_environment(self, tmp_path: Path) -> None:
        argv = ["bash", "/nemo_run/scripts/s.sh", run.literal("/nemo_run/x")]
        directory = laid_out(tmp_path, argv, WORD="a b")
        assert start(directory, tmp_path / "log").wait() == 0
        assert said(tmp_path / "log") == b"from the code\n/nemo_run/x\n"
        assert not (directory / request.OURS / JOB_FILE).exists()

    def test_the_task_does_not_learn_what_opens_the_file(self, tmp_path: Path) -> None:
        directory = laid_out(tmp_path, ["bash", "-c", f'echo "${CONFIG}"'])
        assert start(directory, tmp_path / "log").wait() == 0
        assert json.loads(said(tmp_path / "log")) == {"metadata": {"job_name": "x"}}

    def test_it_tries_again_until_it_succeeds(self, tmp_path: Path) -> None:
        task = 'echo "$NEMO_RUN_ATTEMPT"; [ "$NEMO_RUN_ATTEMPT" = 3 ]'
        directory = laid_out(tmp_path, ["bash", "-c", task], retries=5)
        assert start(directory, tmp_path / "log").wait() == 0
        assert said(tmp_path / "log") == b"1\n2\n3\n"

    @pytest.mark.parametrize(
        ("argv", "code"),
        [(["bash", "-c", "exit 5"], 5), (["bash", "-c", "kill -9 $$"], 137), (["no-such"], 127)],
    )
    def test_it_ends_as_the_task_did(self, tmp_path: Path, argv: list[str], code: int) -> None:
        assert start(laid_out(tmp_path, argv), tmp_path / "log").wait() == code

    def test_what_the_task_leaves_behind_is_ended(self, tmp_path: Path) -> None:
        task = "(setsid sleep 671 & echo $! >pid) ; exit 0"
        directory = laid_out(tmp_path, ["bash", "-c", task])
        assert start(directory, tmp_path / "log").wait() == 0
        pid = (directory / "pid").read_text().strip()
        assert not Path("/proc", pid).exists()

    def test_a_task_that_does_not_listen_is_killed_and_not_tried_again(
        self, tmp_path: Path
    ) -> None:
        task = "trap '' TERM; touch up; while :; do sleep 0.1; done"
        directory = laid_out(tmp_path, ["bash", "-c", task], retries=3)
        driver = start(directory, tmp_path / "log")
        patience.wait_for((directory / "up").exists, "the task")
        began = time.monotonic()
        os.kill(driver.pid, signal.SIGTERM)
        assert driver.wait() == 137
        assert time.monotonic() - began > 2  # it had time to clean up
        assert (tmp_path / "log").read_bytes().count(b"ended with exit code") == 1
