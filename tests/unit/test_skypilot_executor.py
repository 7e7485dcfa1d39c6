"""SkyPilot's executors as values; what they say without SkyPilot being installed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from torchx.specs import AppDef, AppState, Role

import nemo_run as run
from nemo_run._backends.skypilot.client import SkyJob
from nemo_run._backends.skypilot.downloads import is_without_logs
from nemo_run._backends.skypilot.kept import KeptJob
from nemo_run._backends.skypilot.launches import _may_be_taken
from nemo_run._backends.skypilot.streams import LogLine, in_time, parse_line, written
from nemo_run._backends.skypilot.task import SkypilotTask
from nemo_run.core.execution import skypilot, skypilot_jobs
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    UnsupportedError,
)
from nemo_run.run.torchx_backend.schedulers.api import JobStatus
from nemo_run.run.torchx_backend.schedulers.skypilot import SkypilotScheduler, is_unused
from nemo_run.run.torchx_backend.schedulers.skypilot_jobs import SkypilotJobsScheduler

KINDS = [run.SkypilotExecutor, run.SkypilotJobsExecutor]
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
class TestResources:
    def test_scalars_stand_for_themselves(self, kind: type[SkypilotTask]) -> None:
        executor = kind(cpus=4, memory=16, infra="aws/us-east-1", use_spot=False, ports=("8080",))
        assert executor.resources_config() == {
            "cpus": 4,
            "memory": 16,
            "use_spot": False,
            "infra": "aws/us-east-1",
            "ports": ["8080"],
            "any_of": [],
        }

    def test_elements_of_lists_belong_together(self, kind: type[SkypilotTask]) -> None:
        executor = kind(cloud=["aws", "gcp"], use_spot=[True, False], region=["none", "us-east1"])
        assert executor.resources_config()["any_of"] == [
            {"cloud": "aws", "region": None, "use_spot": True},
            {"cloud": "gcp", "region": "us-east1", "use_spot": False},
        ]

    def test_any_of_several_gpus_will_do(self, kind: type[SkypilotTask]) -> None:
        one = kind(gpus="H100", gpus_per_node=8)
        several = kind(gpus=["A100", "H100"])
        assert one.resources_config()["accelerators"] == {"H100": 8}
        assert several.resources_config()["accelerators"] == {"A100": 1, "H100": 1}
        assert several.gpus_per_node is None

    def test_images_and_overrides_are_handed_on(self, kind: type[SkypilotTask]) -> None:
        config = kind(
            container_image="docker:x", cluster_config_overrides={"docker": {"run_options": ["-v"]}}
        ).resources_config()
        assert config["image_id"] == "docker:x"
        assert config["_cluster_config_overrides"] == {"docker": {"run_options": ["-v"]}}

    def test_lists_of_different_length_are_refused(self, kind: type[SkypilotTask]) -> None:
        with pytest.raises(ConfigError, match="cloud has 2, region has 1"):
            kind(cloud=["aws", "gcp"], region=["x"]).resources_config()


@kinds
class TestSettings:
    @pytest.mark.parametrize("other", ["cloud", "region", "zone"])
    def test_infra_leaves_nothing_to_say(self, kind: type[SkypilotTask], other: str) -> None:
        settings: dict[str, Any] = {other: "x"}
        with pytest.raises(ConfigError, match=other):
            kind(infra="aws", **settings)

    def test_what_separates_ids_is_refused(self, kind: type[SkypilotTask]) -> None:
        with pytest.raises(ConfigError, match="___"):
            kind(cluster_name="a___b")

    def test_no_node_is_refused(self, kind: type[SkypilotTask]) -> None:
        with pytest.raises(ConfigError, match="num_nodes=0"):
            kind(num_nodes=0)

    @pytest.mark.parametrize(
        ("settings", "count"),
        [
            ({}, 1),
            ({"gpus_per_node": 4}, 4),
            ({"gpus_per_node": 4, "torchrun_nproc_per_node": 2}, 2),
        ],
    )
    def test_the_number_of_processes(
        self, kind: type[SkypilotTask], settings: dict[str, Any], count: int
    ) -> None:
        assert kind(**settings).nproc_per_node() == count

    def test_every_packager_will_do(self, kind: type[SkypilotTask]) -> None:
        assert isinstance(kind().packager, run.GitArchivePackager)
        assert kind(packager=run.Packager()).packager == run.Packager()

    def test_configs_are_named_as_the_job_sees_them(
        self, kind: type[SkypilotTask], tmp_path: Path
    ) -> None:
        executor = kind()
        executor.assign("title_1", str(tmp_path), "task", "job")
        before = copy.deepcopy(executor)
        assert executor.package_configs(("a", "1")) == ["/nemo_run/configs/a"]
        assert (tmp_path / "job" / "configs" / "a").read_text() == "1"
        assert executor == before
        assert executor.workdir == str(tmp_path / "job" / "workdir")

    def test_cloud_is_called_deprecated_once(self, kind: type[SkypilotTask]) -> None:
        made = f"run.{kind.__name__}(cloud='aws')"
        code = f"import logging, nemo_run as run; logging.basicConfig(); {made}; {made}"
        said = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stderr
        assert said.count("infra") == 2  # in one line
        assert len(said.splitlines()) == 1


class TestIds:
    def test_an_id_of_an_earlier_release_has_the_number_of_its_job(self) -> None:
        assert run.SkypilotExecutor.parse_app("exp_1___cluster___task___7") == (
            "cluster",
            "task",
            7,
        )
        assert run.SkypilotJobsExecutor.parse_app("cluster___task___7") == ("cluster", "task", 7)

    @pytest.mark.parametrize("app_id", ["", "a___b___c", "a___b______1", "job-nr-1"])
    def test_what_is_no_id_is_refused(self, app_id: str) -> None:
        with pytest.raises(ConfigError, match="not the id"):
            run.SkypilotExecutor.parse_app(app_id)

    @pytest.mark.parametrize("app_id", ["", "a___b", "a______1"])
    def test_what_is_no_id_of_a_managed_job_is_refused(self, app_id: str) -> None:
        with pytest.raises(ConfigError, match="not the id"):
            run.SkypilotJobsExecutor.parse_app(app_id)

    def test_a_cluster_is_named_after_its_experiment_or_by_the_user(self) -> None:
        mine = run.SkypilotExecutor(experiment_id="my title_17")
        theirs = run.SkypilotExecutor(experiment_id="my title_17", cluster_name="dev")
        assert (mine.cluster(), theirs.cluster()) == ("my-title_17", "dev")
        assert skypilot.is_made_for_experiment(skypilot.app_id_for(mine, "t", "nr-1"))
        assert not skypilot.is_made_for_experiment(skypilot.app_id_for(theirs, "t", "nr-1"))

    def test_a_cluster_name_starts_with_a_letter(self) -> None:
        executor = run.SkypilotExecutor(experiment_id="17")
        assert executor.cluster() == "nemo-run-17"
        assert skypilot.is_made_for_experiment(skypilot.app_id_for(executor, "t", "nr-1"))

    def test_experiments_of_one_long_title_have_clusters_of_their_own(self) -> None:
        ids = [f"{'a long title ' * 6}_{time}" for time in (1763251200, 1763251201)]
        first, second = (run.SkypilotExecutor(experiment_id=id).cluster() for id in ids)
        assert first != second
        assert first.startswith("a-long-title")
        assert max(len(first), len(second)) <= 60

    def test_without_an_experiment_a_cluster_has_no_name(self) -> None:
        with pytest.raises(ConfigError, match="cluster_name"):
            run.SkypilotExecutor().cluster()

    def test_ids_of_both_kinds_are_told_apart(self) -> None:
        assert skypilot.split_app_id("e___c___t___nr-1") == ("c", "t", "nr-1")
        assert skypilot_jobs.split_app_id("c___t___nr-1") == ("c", "t", "nr-1")


UNKNOWN = JobStatus(state=AppState.UNKNOWN)
LOST = JobStatus(state=AppState.UNKNOWN, lost=True)
FAILED = JobStatus(state=AppState.FAILED)
RUNNING = JobStatus(state=AppState.RUNNING)
UNSUBMITTED = JobStatus(state=AppState.UNSUBMITTED)


@pytest.mark.parametrize(
    ("cluster", "jobs", "unused"),
    [
        ("UP", [FAILED, LOST], True),
        ("UP", [FAILED, RUNNING], False),
        ("INIT", [UNKNOWN], False),
        ("INIT", [], True),
        # Its launcher died before it asked for anything.
        ("UP", [FAILED, UNSUBMITTED], True),
        # It was idle for long enough before anybody asked for its jobs.
        ("STOPPED", [UNKNOWN, FAILED], True),
    ],
)
def test_a_cluster_is_unused_when_no_job_runs_on_it(
    cluster: str, jobs: list[JobStatus], unused: bool
) -> None:
    assert is_unused(cluster, jobs) is unused


class TestLogLines:
    @pytest.mark.parametrize(
        ("line", "parsed"),
        [
            ("\x1b[36m(train, pid=12)\x1b[0m loss=1\n", LogLine(rank=0, text="loss=1\n")),
            ("(train, pid=12) \n", LogLine(rank=0, text="\n")),
            ("(head, rank=0, pid=1)  two\n", LogLine(rank=0, text=" two\n")),
            (
                "\x1b[36m(worker1, rank=1, pid=3, ip=10.0.0.2)\x1b[0m x\n",
                LogLine(rank=1, text="x\n"),
            ),
            ("(train, pid=1) \x1b[31mred\x1b[0m\n", LogLine(rank=0, text="\x1b[31mred\x1b[0m\n")),
            ("\x1b[36m(setup pid=12)\x1b[0m got it\n", LogLine(rank=0, text="got it\n")),
            ("(setup pid=12, ip=10.0.0.2) got it\n", LogLine(rank=0, text="got it\n")),
        ],
    )
    def test_a_line_of_the_task_is_read_without_its_prefix(
        self, line: str, parsed: LogLine
    ) -> None:
        assert parse_line(line) == parsed

    @pytest.mark.parametrize(
        "line",
        [
            "\x1b[2m├── \x1b[0m\x1b[2mWaiting for task resources on 1 node.\x1b[0m\n",
            "\x1b[0m\x1b[32m✓ Job finished (status: SUCCEEDED).\x1b[0m\x1b[0m\n",
            "ERROR: Job 3's setup failed with return code 1 (pid=12).\n",
        ],
    )
    def test_what_skypilot_says_is_not_of_the_task(self, line: str) -> None:
        assert parse_line(line) is None


JOB = SkyJob(id=3, name="train-nr-1", status="FAILED", started_at=1.0, ended_at=2.0)


class TestKept:
    def test_a_job_is_kept_with_its_logs(self, tmp_path: Path) -> None:
        def download(directory: Path) -> None:
            (directory / "tasks").mkdir(parents=True)
            (directory / "run.log").write_text("failed with return code list: [0, 7]\n")
            (directory / "tasks" / "0-head.log").write_bytes(b"a\rb\nnemo_run: try 2 of 3, x\nc")
            (directory / "tasks" / "1-worker1.log").write_text("one\n")
            (directory / "tasks" / "10-worker10.log").write_text("ten\n")

        kept = KeptJob(tmp_path / "kept")
        kept.keep(JOB, download)
        assert (kept.job, kept.exit_code, kept.restarts) == (JOB, 7, 1)
        assert list(kept.lines(0)) == ["a\rb\n", "nemo_run: try 2 of 3, x\n", "c"]
        assert [list(kept.lines(rank)) for rank in (1, 10, 2)] == [["one\n"], ["ten\n"], []]

    def test_a_managed_job_has_what_skypilot_printed_of_it(self, tmp_path: Path) -> None:
        def download(directory: Path) -> None:
            directory.mkdir()
            (directory / "run.log").write_text(
                "\x1b[2m├── \x1b[0m\x1b[2mWaiting for task resources on 1 node.\x1b[0m\n"
                "\x1b[36m(job-nr-1, pid=3249)\x1b[0m hello\n"
                "\x1b[36m(job-nr-1, pid=3249)\x1b[0m world\n"
                "ERROR: \x1b[31mJob 1 failed with return code list:\x1b[0m [3] \n"
            )

        kept = KeptJob(tmp_path / "kept")
        kept.keep(JOB, download)
        assert list(kept.lines(0)) == ["hello\n", "world\n"]
        assert list(kept.lines(1)) == []
        assert kept.exit_code == 3

    def test_what_the_setup_wrote_comes_before_the_first_node(self, tmp_path: Path) -> None:
        (tmp_path / "tasks").mkdir()
        (tmp_path / "tasks" / "setup-head.log").write_text("ready\n")
        (tmp_path / "tasks" / "run.log").write_text("done\n")
        kept = KeptJob(tmp_path)
        assert [list(kept.lines(rank)) for rank in range(2)] == [["ready\n", "done\n"], []]

    @pytest.mark.parametrize("nodes", [["head"], ["head", "worker1"]])
    def test_of_a_failed_setup_there_is_what_it_wrote(
        self, tmp_path: Path, nodes: list[str]
    ) -> None:
        (tmp_path / "tasks").mkdir()
        for node in nodes:
            (tmp_path / "tasks" / f"setup-{node}.log").write_text("no such package\n")
        (tmp_path / "run.log").write_text(
            "\x1b[36m(setup pid=12)\x1b[0m no such package\n"
            "ERROR: \x1b[31mJob 3's setup failed with return code 1 (pid=12).\x1b[0m\n"
        )
        assert list(KeptJob(tmp_path).lines(0)) == ["no such package\n"]

    @pytest.mark.parametrize(
        ("codes", "code"),
        [
            ("137, 9", 9),
            ("143, 9", 9),
            ("0, 137, 3, 4", 3),
            ("137, 137", 137),
            ("0, 137", 137),
            ("0, 0", None),
        ],
    )
    def test_nodes_that_skypilot_killed_do_not_hide_the_one_that_failed(
        self, tmp_path: Path, codes: str, code: int | None
    ) -> None:
        (tmp_path / "run.log").write_text(f"Job 1 failed with return code list: [{codes}]\n")
        assert KeptJob(tmp_path).exit_code == code

    def test_it_is_kept_once(self, tmp_path: Path) -> None:
        kept = KeptJob(tmp_path / "kept")
        calls: list[Path] = []
        kept.keep(JOB, calls.append)
        kept.keep(JOB, calls.append)
        assert calls == [tmp_path / "kept"]

    def test_an_outage_leaves_it_for_the_next_time(self, tmp_path: Path) -> None:
        def download(directory: Path) -> None:
            raise BackendUnavailableError("away", backend="skypilot", operation="download")

        kept = KeptJob(tmp_path / "kept")
        with pytest.raises(BackendUnavailableError):
            kept.keep(JOB, download)
        assert kept.job is None

    def test_logs_that_are_gone_do_not_hide_how_it_ended(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        def download(directory: Path) -> None:
            raise BackendError("no such file", backend="skypilot", operation="download")

        kept = KeptJob(tmp_path / "kept")
        kept.keep(JOB, download, pauses_s=())
        assert kept.job == JOB
        assert not kept.is_whole
        assert "no such file" in caplog.text

    def test_logs_that_cannot_be_copied_at_first_are_copied_later(self, tmp_path: Path) -> None:
        failures = [BackendError("cut", backend="skypilot", operation="download")] * 4

        def download(directory: Path) -> None:
            if failures:
                raise failures.pop()
            directory.mkdir()
            (directory / "run.log").write_text("failed with return code list: [7]\n")

        kept = KeptJob(tmp_path / "kept")
        kept.keep(JOB, download, pauses_s=(0,))
        assert (kept.job, kept.is_whole, kept.exit_code) == (JOB, False, None)
        kept.keep(JOB, download, pauses_s=(0, 0))
        assert (kept.job, kept.is_whole, kept.exit_code) == (JOB, True, 7)

    def test_lines_are_counted_as_skypilot_streams_them(self, tmp_path: Path) -> None:
        (tmp_path / "tasks").mkdir()
        (tmp_path / "tasks" / "0-head.log").write_bytes(b"1%\r2%\r\nnext\n\x0cend")
        assert list(KeptJob(tmp_path).streamed_lines(0)) == ["1%\n", "2%\n", "next\n", "\x0cend"]


class TestEarlierReleases:
    @pytest.mark.parametrize(
        ("scheduler", "app_id", "word", "state"),
        [
            (SkypilotScheduler, "e___c___t___3", "SUCCEEDED", AppState.SUCCEEDED),
            (SkypilotScheduler, "e___c___t___3", "FAILED_SETUP", AppState.FAILED),
            (SkypilotJobsScheduler, "c___t___3", "FAILED_NO_RESOURCE", AppState.FAILED),
            (SkypilotJobsScheduler, "c___t___3", "CANCELLED", AppState.CANCELLED),
        ],
    )
    def test_an_ended_job_is_known_from_their_index(
        self, nemorun_home: Path, scheduler: type, app_id: str, word: str, state: AppState
    ) -> None:
        nemorun_home.mkdir()
        index = {app_id: {"job_status": word, "log_dir": "~/sky_logs/x"}}
        (nemorun_home / ".skypilot_jobs.json").write_text(json.dumps(index))
        described = scheduler("nemo_run").describe(app_id)
        assert described.state is state
        assert [role.name for role in described.roles] == ["t"]

    def test_jobs_of_the_other_kind_are_not_taken_for_ours(self, nemorun_home: Path) -> None:
        nemorun_home.mkdir()
        index = {name: {"job_status": "SUCCEEDED"} for name in ("c___t___3", "e___c___t___3")}
        (nemorun_home / ".skypilot_jobs.json").write_text(json.dumps(index))
        assert SkypilotScheduler("nemo_run").describe("c___t___3") is None
        assert SkypilotJobsScheduler("nemo_run").describe("e___c___t___3") is None


def test_what_older_releases_write_to_a_file_is_read_while_they_write_it() -> None:
    go_on = threading.Event()

    def tail_logs(output_stream: Any) -> None:
        output_stream.write("first\n")
        assert go_on.wait(100)
        output_stream.write("second\n")

    stream = written(tail_logs)
    assert next(stream) == "first\n"
    go_on.set()
    assert list(stream) == ["second\n"]


def test_what_goes_wrong_while_an_older_release_writes_is_raised() -> None:
    def tail_logs(output_stream: Any) -> None:
        raise ConnectionError("cut")

    with pytest.raises(ConnectionError, match="cut"):
        list(written(tail_logs))


class TestInTime:
    def test_what_comes_is_handed_on(self) -> None:
        assert list(in_time(iter(["a", None, "b"]))) == ["a", "", "b"]

    def test_what_goes_wrong_is_raised_where_it_is_read(self) -> None:
        def broken() -> Iterator[str]:
            yield "a"
            raise ConnectionError("cut")

        stream = in_time(broken())
        assert next(stream) == "a"
        with pytest.raises(ConnectionError, match="cut"):
            next(stream)

    def test_a_stream_that_the_server_does_not_end_is_given_up(self) -> None:
        over = threading.Event()

        def endless() -> Iterator[str]:
            yield "a"
            over.wait(60)

        stream = in_time(endless(), silence_s=0.2)
        assert next(stream) == "a"
        with pytest.raises(BackendUnavailableError, match="has sent nothing"):
            next(stream)
        over.set()


@pytest.mark.parametrize(
    ("said", "without"),
    [
        (
            "\x1b[33mJob 26 is already in terminal state SUCCEEDED. For more, run:\x1b[0m\n",
            True,
        ),
        ("Job started.\n(job, pid=12) Job 26 is already in terminal state\nJob finished.\n", False),
        ("Job started. Streaming logs...\nJob finished (status: SUCCEEDED).\n", False),
    ],
)
def test_a_log_that_skypilot_does_not_have_yet_is_known(
    tmp_path: Path, said: str, without: bool
) -> None:
    (tmp_path / "run.log").write_text(said)
    assert is_without_logs(tmp_path) is without
    assert is_without_logs(tmp_path / "run.log") is without
    assert is_without_logs(tmp_path / "other")


def test_only_a_newline_ends_a_line_of_a_managed_job(tmp_path: Path) -> None:
    lines = ["form\x0cfeed\n", "a\x0bb\x1cc\n", "para\u2029 line\u2028\n"]
    said = "Job started.\n" + "".join(f"(job, pid=12) {line}" for line in lines)
    (tmp_path / "run.log").write_text(said)
    assert list(KeptJob(tmp_path).lines(0)) == lines


def test_what_skypilot_says_at_the_end_is_no_part_of_the_last_line() -> None:
    said = "\x1b[0m\x1b[32m✓ Job finished (status: SUCCEEDED).\x1b[0m\x1b[0m\n"
    assert parse_line(f"(job, pid=12) two{said}") == LogLine(rank=0, text="two")
    mine = "✓ Job finished (status: SUCCEEDED).\n"
    assert parse_line(f"(job, pid=12) {mine}") == LogLine(rank=0, text=mine)


def test_several_nodes_of_a_cluster_are_not_started_again(tmp_path: Path) -> None:
    executor = run.SkypilotExecutor(num_nodes=2, retries=1, cluster_name="dev")
    executor.assign("title_1", str(tmp_path), "task", "job")
    app = AppDef(name="job", roles=[Role(name="job", image="", entrypoint="true")])
    with pytest.raises(UnsupportedError, match="SkypilotJobsExecutor"):
        SkypilotScheduler("nemo_run").submit_dryrun(app, executor)


@pytest.mark.parametrize("name", ["my cluster", "a/b", "1st", "ends-", "ü"])
def test_names_that_skypilot_does_not_take_are_refused_while_planning(name: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster_name.*Use letters"):
        run.SkypilotExecutor(cluster_name=name).cluster()


def _refusal(code: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = code
    return requests.HTTPError(response=response)


@pytest.mark.parametrize(
    ("cause", "may"),
    [
        (requests.ReadTimeout(), True),
        (requests.ConnectionError("reset"), True),
        (_refusal(504), True),  # of something between
        (_refusal(400), False),
        (RuntimeError("Failed to start SkyPilot API server"), True),  # says the text of an error
        (TypeError("the answer has another shape"), True),
    ],
)
def test_a_launch_may_have_been_taken_unless_it_was_refused(cause: Exception, may: bool) -> None:
    err = BackendUnavailableError("away")
    err.__cause__ = cause
    assert _may_be_taken(err) is may
