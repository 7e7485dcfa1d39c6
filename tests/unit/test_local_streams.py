"""The streams of a local job: together in order, or each in a file of its own."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.contract.backends import LocalCluster
from tests.integration.launching import wait_for
from torchx.schedulers.api import Stream

from nemo_run._transport import log_files
from nemo_run.exceptions import ConfigError
from nemo_run.run.torchx_backend.schedulers.api import LogQuery

BOTH = "echo out; echo err >&2"
HOUR = timedelta(hours=1)


@pytest.fixture
def local(tmp_path: Path) -> LocalCluster:
    return LocalCluster(tmp_path)


def test_together_they_are_in_order_and_one_alone_is_refused_with_advice(
    local: LocalCluster,
) -> None:
    app_id = local.schedule(f"{BOTH}; echo out again")
    local.wait(app_id)
    assert local.lines(app_id) == ["out\n", "err\n", "out again\n"]
    with pytest.raises(ConfigError, match="separate_streams=True"):
        local.lines(app_id, streams=Stream.STDERR)


def test_kept_apart_each_can_be_had_alone(local: LocalCluster) -> None:
    app_id = local.schedule(BOTH, separate_streams=True)
    local.wait(app_id)
    assert local.lines(app_id, streams=Stream.STDOUT) == ["out\n"]
    assert local.lines(app_id, streams=Stream.STDERR) == ["err\n"]
    assert sorted(local.lines(app_id)) == ["err\n", "out\n"]


def test_kept_apart_both_are_followed_as_they_come(local: LocalCluster) -> None:
    go = local.scratch / "go"
    app_id = local.schedule(
        f"echo err >&2; while [ ! -e '{go}' ]; do sleep 0.02; done; echo out", separate_streams=True
    )
    (role,) = local.scheduler.describe(app_id).roles
    lines = iter(local.scheduler.log_iter(app_id, role.name, should_tail=True))
    assert next(lines) == "err\n"
    go.touch()
    assert list(lines) == ["out\n"]


def test_kept_apart_lines_are_chosen_by_time_too(local: LocalCluster) -> None:
    go = local.scratch / "go"
    app_id = local.schedule(
        f"echo early; echo oops >&2; while [ ! -e '{go}' ]; do sleep 0.02; done; echo late",
        separate_streams=True,
    )
    (replica,) = local.root.glob("experiments/contract/job/nemo_run/*/*/0")
    clock = replica / ".replica" / "clock.stdout"
    wait_for(lambda: clock.exists() and clock.read_text().endswith(" 6\n"), "a look")
    between = datetime.now()
    go.touch()
    local.wait(app_id)
    assert local.lines(app_id, streams=Stream.STDOUT, since=between) == ["late\n"]
    assert local.lines(app_id, streams=Stream.STDOUT, until=between) == ["early\n"]
    assert local.lines(app_id, streams=Stream.STDERR, until=between) == ["oops\n"]
    assert local.lines(app_id, streams=Stream.STDERR, since=between) == []
    assert sorted(local.lines(app_id, until=between)) == ["early\n", "oops\n"]


def test_until_later_is_all_that_there_is_now(local: LocalCluster) -> None:
    go = local.scratch / "go"
    app_id = local.schedule(f"echo up; while [ ! -e '{go}' ]; do sleep 0.02; done")
    wait_for(lambda: local.lines(app_id), "the line")
    assert local.lines(app_id, until=datetime.now() + HOUR) == ["up\n"]
    go.touch()
    local.wait(app_id)


def test_a_log_without_times_is_shown_as_a_whole_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "combined.log").write_text("old\n")
    with caplog.at_level(logging.WARNING, "nemo_run"):
        for query in (
            LogQuery(role="a", until=datetime.now() - HOUR),
            LogQuery(role="a", since=datetime.now() - HOUR),
        ):
            assert list(log_files.read(tmp_path, query)) == [b"old\n"]
    assert "not known" in caplog.text
