"""Logs of several jobs on one console, and the copy that a direct run keeps."""

from __future__ import annotations

import io
import logging
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.contract.experiments import experiment, script, statuses

import nemo_run as run
from nemo_run._transport.log_files import BLOCK_BYTES
from nemo_run.exceptions import JobNotFoundError
from nemo_run.run.logs import follow_all, get_logs
from nemo_run.run.torchx_backend.packaging import package
from nemo_run.run.torchx_backend.runner import get_runner
from nemo_run.run.utils import TeeStdoutStderr


class SlowBytes(io.BytesIO):
    """A stream that lets other threads in halfway through every write."""

    def write(self, data: Any) -> int:
        half = len(data) // 2
        super().write(data[:half])
        time.sleep(0.002)
        super().write(data[half:])
        return len(data)


class SlowText(io.StringIO):
    """The same for text, as notebooks have it: there are no bytes underneath."""

    def write(self, text: str) -> int:
        half = len(text) // 2
        super().write(text[:half])
        time.sleep(0.002)
        super().write(text[half:])
        return len(text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def handles_of(*texts: str) -> list[str]:
    """Run scripts, named a, b, c and so on, and return their handles."""
    with experiment() as exp:
        for name, text in zip("abc", texts, strict=False):
            exp.add(script(text), name=name)
        exp.run()
    return [status["handle"] for status in statuses(exp).values()]


@pytest.mark.parametrize("regex", [None, "line"])
@pytest.mark.parametrize("with_bytes", [True, False], ids=["bytes", "text"])
def test_lines_of_two_jobs_do_not_mix(with_bytes: bool, regex: str | None) -> None:
    count = 20
    handles = handles_of(
        *(
            f"for i in $(seq {count}); do echo {word} line $i; sleep 0.005; done"
            for word in ("first", "second")
        )
    )
    raw = SlowBytes()
    file = io.TextIOWrapper(raw, write_through=True) if with_bytes else SlowText()
    follow_all(file, handles, get_runner(), regex=regex)
    shown = raw.getvalue().decode() if with_bytes else file.getvalue()  # type: ignore[union-attr]
    assert sorted(shown.splitlines()) == sorted(
        f"{job}/0 {word} line {i + 1}"
        for job, word in (("a", "first"), ("b", "second"))
        for i in range(count)
    )


def test_whoever_else_prints_does_not_come_between_a_name_and_its_line() -> None:
    written: list[bytes] = []

    class Pieces(io.BytesIO):
        def write(self, data: Any) -> int:
            written.append(bytes(data))
            return len(data)

    follow_all(io.TextIOWrapper(Pieces()), handles_of("echo one", "echo two"), get_runner())
    assert sorted(filter(None, written)) == [b"a/0 one\n", b"b/0 two\n"]


@pytest.mark.parametrize("regex", [None, "after"])
def test_only_a_newline_ends_a_line(regex: str | None) -> None:
    (handle,) = handles_of(r"printf 'before\rmiddle\342\200\250after\n'")
    file = io.StringIO(newline="")
    get_logs(file, handle, regex)
    assert file.getvalue() == "before\rmiddle\u2028after\n"


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = handles_of("echo hi", "echo hi")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Terminal()
    follow_all(coloured, handles, get_runner())
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    follow_all(plain, handles, get_runner())
    assert "\033[" in coloured.getvalue()
    assert sorted(plain.getvalue().splitlines()) == ["a/0 hi", "b/0 hi"]


@pytest.mark.parametrize("regex", [None, "l"])
@pytest.mark.parametrize("with_bytes", [True, False], ids=["bytes", "text"])
def test_a_job_that_is_alone_is_printed_as_it_is(with_bytes: bool, regex: str | None) -> None:
    (handle,) = handles_of("printf 'line\\n\\nlast line'")
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw) if with_bytes else io.StringIO()
    get_logs(file, handle, regex)
    shown = raw.getvalue().decode() if with_bytes else file.getvalue()  # type: ignore[union-attr]
    assert shown == ("line\n\nlast line" if regex is None else "line\nlast line")


def test_replicas_of_one_job_are_told_apart(tmp_path: Path) -> None:
    executor = run.LocalExecutor()
    executor.assign("exp", str(tmp_path), task_id="task", task_dir="task")
    app = package("task", script("echo hi"), executor, num_replicas=2)
    runner = get_runner()
    handle = runner.run(app, executor.SCHEDULER, executor)
    file = io.StringIO()
    get_logs(file, handle, None, should_tail=True, runner=runner)
    assert sorted(file.getvalue().splitlines()) == ["task/0 hi", "task/1 hi"]


def test_long_names_that_end_alike_are_told_apart() -> None:
    names = ("experiment-alpha-training", "experiment-beta-training")
    with experiment() as exp:
        for name in names:
            exp.add(script("echo hi"), name=name)
        exp.run()
    file = io.StringIO()
    follow_all(file, [job.handle for job in exp.jobs], get_runner())
    assert sorted(file.getvalue().splitlines()) == [f"{name}/0 hi" for name in names]


def test_of_several_logs_those_that_are_there_are_printed() -> None:
    (handle,) = handles_of("echo hi")
    file = io.StringIO()
    with pytest.raises(JobNotFoundError, match="There is no job"):
        follow_all(file, [handle, "local_persistent://nemo_run/none"], get_runner())
    assert file.getvalue() == "a/0 hi\n"


@pytest.mark.parametrize("size", [1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 5])
def test_lines_of_any_length_are_whole(size: int) -> None:
    text = f"head -c {size} /dev/zero | tr '\\0' x"
    (handle,) = handles_of(f"{text}; echo; echo short; {text}")
    file = io.StringIO()
    get_logs(file, handle, None, should_tail=True)
    line = "x" * size
    assert file.getvalue() == f"{line}\nshort\n{line}"


class TestCopy:
    def test_a_logger_that_was_kept_goes_on_without_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        logger = logging.Logger("kept")
        with TeeStdoutStderr(str(tmp_path / "log")):
            logger.addHandler(logging.StreamHandler(sys.stdout))
            logger.warning("during")
        logger.warning("after")
        shown = capsys.readouterr()
        assert shown.out == "during\nafter\n"
        assert shown.err == ""
        assert (tmp_path / "log").read_text() == "during\n"

    def test_lines_written_at_once_are_copied(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with TeeStdoutStderr(str(tmp_path / "log")):
            sys.stdout.writelines(["one\n", "two\n"])
        assert (tmp_path / "log").read_text() == "one\ntwo\n"
        assert capsys.readouterr().out == "one\ntwo\n"
