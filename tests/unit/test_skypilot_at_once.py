"""What several threads, or processes, ask of SkyPilot at the same time."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nemo_run._backends.skypilot.downloads import keep
from nemo_run._backends.skypilot.sdk import muted


class TestMuted:
    def test_the_standard_output_is_put_back_whoever_leaves_first(self) -> None:
        before = sys.stdout
        one, other = muted(), muted()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert sys.stdout is not before
        other.__exit__(None, None, None)
        assert sys.stdout is before

    def test_a_thread_that_is_not_muted_prints(self) -> None:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), muted(), ThreadPoolExecutor(1) as pool:
            print("muted")
            pool.submit(print, "loud").result()
        assert said.getvalue() == "loud\n"

    def test_what_is_redirected_meanwhile_stays_so(self) -> None:
        before = sys.stdout
        said = io.StringIO()
        with contextlib.ExitStack() as stack:
            with muted():
                stack.enter_context(contextlib.redirect_stdout(said))
            print("mine")
        print("not mine")
        assert said.getvalue() == "mine\n"
        with muted():
            pass
        assert sys.stdout is before


def test_logs_are_downloaded_by_one_at_a_time(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    both = threading.Barrier(2)
    fetched: list[str] = []

    def fetch() -> str:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.5)
            fetched.append("while another did")
        (shared / "run.log").write_text("whole\n")
        fetched.append("whole")
        return str(shared)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(keep, fetch, tmp_path / "kept") for _ in range(2)]:
            done.result()
    assert fetched == ["whole"]
    assert (tmp_path / "kept" / "run.log").read_text() == "whole\n"
