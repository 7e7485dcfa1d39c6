"""Jobs on a cluster of a real SkyPilot, beyond what every backend promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import ROOT, SkypilotCluster, SkypilotJobs
from tests.integration.launching import wait_for
from tests.integration.skypilot.late import (
    changed_answers,
    instead,
    late_answers,
    without_header,
)
from tests.integration.skypilot.line import line
from torchx.specs import AppState

import nemo_run as run
from nemo_run._backends.skypilot import client, launches
from nemo_run.exceptions import BackendUnavailableError

pytestmark = [pytest.mark.slow, pytest.mark.skypilot, pytest.mark.timeout(1200)]


KINDS = pytest.mark.parametrize("kind", [SkypilotCluster, SkypilotJobs])
LAUNCHES = pytest.mark.parametrize(
    ("kind", "launch"), [(SkypilotCluster, b"POST /launch"), (SkypilotJobs, b"POST /jobs/launch")]
)


@pytest.fixture
def cluster(skypilot_bed: Path, tmp_path: Path) -> SkypilotCluster:
    return SkypilotCluster(tmp_path)


def test_every_node_runs_the_task_and_has_a_log_of_its_own(cluster: SkypilotCluster) -> None:
    script = 'echo "$SKYPILOT_NODE_RANK of $num_nodes, first $head_node_ip"'
    app_id = cluster.schedule(script, num_nodes=2)
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    (role,) = cluster.scheduler.describe(app_id).roles
    assert role.num_replicas == 2
    logs = [cluster.lines(app_id, k=rank) for rank in range(2)]
    assert logs == [[f"{rank} of 2, first 127.0.0.1\n"] for rank in range(2)]


SUM = """\
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, node = dist.get_rank(), os.environ["SLURMD_NODENAME"]
mine = torch.tensor([rank + 1.0])
dist.all_reduce(mine)
# As one write: the processes of a node share its log.
sys.stdout.write(f"{node} rank {rank} of {dist.get_world_size()} sum {mine.item():.0f}\\n")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("kind", "port"), [(SkypilotCluster, 29871), (SkypilotJobs, 29872)])
def test_torchrun_runs_across_two_nodes(
    skypilot_bed: Path, tmp_path: Path, kind: type[SkypilotCluster], port: int
) -> None:
    torch = ROOT / ".venv-torch" / "bin"
    assert (torch / "torchrun").exists(), "no torch: run `make .venv-torch/.installed`"
    (tmp_path / "sum.py").write_text(SUM)
    cluster = kind(tmp_path)
    executor = cluster.executor(
        num_nodes=2,
        torchrun_nproc_per_node=2,
        launcher=run.Torchrun(rdzv_port=port),
        env_vars={
            "PATH": f"{torch}:/usr/sbin:/usr/bin:/sbin:/bin",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        },
        packager=run.PatternPackager(
            include_pattern=str(tmp_path / "*.py"), relative_path=str(tmp_path)
        ),
    )
    with run.Experiment("sum", executor=executor, check=True) as exp:
        exp.add(run.Script("sum.py", entrypoint="python"), name="job")
        exp.run()
    app_id = exp.jobs[0].handle.rpartition("/")[2]
    logs = ["".join(cluster.lines(app_id, k=k)) for k in range(2)]
    wanted = [f"rank {rank} of 4 sum 10" for rank in range(4)]
    assert sorted(re.findall(r"rank \d of \d sum \d+", "".join(logs))) == wanted
    one, other = (set(re.findall(r"(\w+) rank", log)) for log in logs)
    assert (len(one), len(other)) == (1, 1)
    assert one != other


def test_one_node_that_fails_makes_the_job_fail(cluster: SkypilotCluster) -> None:
    # Where another node runs still it is killed, and SkyPilot's word on Slurm is its code.
    task = "sleep $((SKYPILOT_NODE_RANK * 5)); exit $((SKYPILOT_NODE_RANK * 9))"
    end = cluster.wait(cluster.schedule(task, num_nodes=2))
    assert (end.state, end.exit_code) == (AppState.FAILED, 9)


def test_the_code_travels(cluster: SkypilotCluster, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "word.txt").write_text("travelled\n")
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], check=True)
    packager = run.PatternPackager(
        include_pattern=str(repository / "*.txt"), relative_path=str(repository)
    )
    with run.Experiment("travel", executor=cluster.executor(packager=packager)) as exp:
        exp.add(run.Script(inline="cat word.txt"), name="job")
        exp.run()
        app_id = exp.jobs[0].handle.rpartition("/")[2]
    assert cluster.lines(app_id) == ["travelled\n"]


def _with_setup(kind: type[SkypilotCluster], root: Path, setup: str) -> tuple[AppState, list[str]]:
    """Run a job in a directory with a file, and return how it ended and what it said."""
    code = root / "repository"
    code.mkdir(exist_ok=True)
    (code / "requirements.txt").write_text("numpy\n")
    # The others' cluster is not there for them while SkyPilot makes it ready for a setup.
    own: dict[str, Any] = {"cluster_name": "prepared"} if kind is SkypilotCluster else {}
    packager = run.PatternPackager(include_pattern=str(code / "*.txt"), relative_path=str(code))
    cluster = kind(root)
    executor = cluster.executor(cpus=1, memory=1, setup=setup, packager=packager, **own)
    with run.Experiment("prepared", executor=executor) as exp:
        exp.add(run.Script(inline="echo done"), name="job")
        exp.run(tail_logs=False)
        app_id = exp.jobs[0].handle.rpartition("/")[2]
    return cluster.wait(app_id).state, cluster.lines(app_id)


@KINDS
def test_the_setup_finds_the_code_and_is_in_the_log(
    skypilot_bed: Path, tmp_path: Path, kind: type[SkypilotCluster]
) -> None:
    """Also on a cluster that is up, and for every job: each brings code of its own."""
    try:
        for _ in range(2 if kind is SkypilotCluster else 1):
            state, lines = _with_setup(kind, tmp_path, "sed s/^/with-/ requirements.txt")
            assert (state, lines) == (AppState.SUCCEEDED, ["with-numpy\n", "done\n"])
        state, lines = _with_setup(kind, tmp_path, "echo no such package; exit 3")
        assert (state, lines) == (AppState.FAILED, ["no such package\n"])
    finally:
        client.down("prepared")


def test_a_job_and_its_log_go_on_while_its_cluster_is_made_ready_for_another(
    cluster: SkypilotCluster,
) -> None:
    go_on = cluster.scratch / "go_on"
    own: dict[str, Any] = {"cluster_name": "two-jobs", "cpus": 4, "memory": 4}
    first = cluster.schedule(f"echo up; until [ -e {go_on} ]; do sleep 0.1; done; echo done", **own)
    try:
        cluster.wait_for_line(first, "up\n")
        with ThreadPoolExecutor(1) as pool:
            followed = pool.submit(cluster.lines, first, should_tail=True)
            second = cluster.schedule("true", name="second", setup="true", **own)
            seen = set()
            deadline = patience.deadline(300)
            while run.SkypilotExecutor.status(second)[1] is None:
                assert time.monotonic() < deadline
                status = cluster.status(first)
                assert status is not None
                seen.add(status.state)
            assert seen == {AppState.RUNNING}
            go_on.touch()
            assert followed.result() == ["up\n", "done\n"]
        assert cluster.wait(second).state is AppState.SUCCEEDED
    finally:
        go_on.touch()
        client.down("two-jobs")


@KINDS
def test_an_executor_is_asked_for_its_job(
    skypilot_bed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: type[SkypilotCluster],
) -> None:
    cluster = kind(tmp_path)
    app_id = cluster.schedule("echo up; sleep 600")
    cluster.wait_for_line(app_id, "up\n")
    executor: Any = cluster.assigned("job")
    _, task, number = executor.parse_app(app_id)
    assert task == "job"

    def details() -> Any:
        found = executor.status(app_id)
        return found[1] if kind is SkypilotCluster else found

    assert (details()["job_id"], details()["status"].value) == (number, "RUNNING")
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(executor.logs, app_id, None)
        deadline = patience.deadline(300)
        said = ""
        while "up\n" not in said:
            assert time.monotonic() < deadline
            said += capsys.readouterr().out
            time.sleep(0.2)
        executor.cancel(app_id)
        followed.result()
    assert cluster.wait(app_id).state is AppState.CANCELLED
    assert details()["status"].value == "CANCELLED"
    executor.cancel(app_id)
    executor.cleanup(f"{kind.name}://nemo_run/{app_id}")
    logs = Path(executor.job_dir, "sky_logs", app_id.rpartition("___")[2])
    assert (logs / "run.log").exists()
    capsys.readouterr()
    executor.logs(app_id, str(logs))
    assert capsys.readouterr().out == (logs / "run.log").read_text()


@KINDS
def test_a_job_is_found_whose_launcher_never_heard_of_its_request(
    skypilot_bed: Path, nemorun_home: Path, tmp_path: Path, kind: type[SkypilotCluster]
) -> None:
    cluster = kind(tmp_path)
    planned = cluster.plan("sleep 5; echo found")
    app_id = cluster.scheduler.schedule(planned)
    (path,) = (nemorun_home / "jobs" / kind.name).glob("*.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "ref": None, "state": "UNSUBMITTED"}))
    assert cluster.scheduler.submitted(planned) == app_id
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["found\n"]


def test_a_job_that_was_never_asked_for_is_known_as_such(
    cluster: SkypilotCluster, nemorun_home: Path
) -> None:
    planned = cluster.plan("true")
    record = cluster.scheduler._new_record(planned, planned.request.app_id)
    cluster.scheduler._put(record)
    assert cluster.scheduler.submitted(planned) is None
    assert cluster.outage is not None
    with cluster.outage(), pytest.raises(BackendUnavailableError):
        cluster.scheduler.submitted(planned)
    status = cluster.status(record.app_id)
    assert status is not None
    assert status.state is AppState.UNSUBMITTED


@pytest.mark.parametrize(
    ("kind", "app_id"), [(SkypilotCluster, "e___gone___t___3"), (SkypilotJobs, "e___t___987")]
)
def test_a_job_of_an_earlier_release_whose_cluster_is_gone_is_lost(
    skypilot_bed: Path,
    nemorun_home: Path,
    tmp_path: Path,
    kind: type[SkypilotCluster],
    app_id: str,
) -> None:
    nemorun_home.mkdir(exist_ok=True)
    index = {app_id: {"job_status": "RUNNING"}}
    (nemorun_home / ".skypilot_jobs.json").write_text(json.dumps(index))
    status = kind(tmp_path).scheduler.status_of(app_id)
    assert (status.state, status.lost) == (AppState.UNKNOWN, True)


@KINDS
def test_the_api_server_may_be_elsewhere(
    skypilot_bed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[SkypilotCluster],
) -> None:
    """A client with a home directory of its own sees none of the API server's files."""
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://elsewhere:46580")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    there = kind(tmp_path).in_new_process()
    app_id = there.schedule("echo from afar; exit 3")
    assert there.call("seen", app_id) == {
        "state": "FAILED",
        "exit_code": 3,
        "lines": ["from afar\n"],
        "listed": [app_id],
    }


@LAUNCHES
def test_a_job_is_launched_once_where_the_answer_comes_too_late(
    skypilot_bed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[SkypilotCluster],
    launch: bytes,
) -> None:
    cluster = kind(tmp_path)
    with late_answers(launch) as address, monkeypatch.context() as there:
        there.setenv("SKYPILOT_API_SERVER_ENDPOINT", address)
        app_id = cluster.in_new_process().schedule("echo once")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["once\n"]
    assert len(_launches(kind, app_id)) == 1


@LAUNCHES
def test_a_job_is_launched_once_where_the_answer_does_not_say_which_request_it_is(
    skypilot_bed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[SkypilotCluster],
    launch: bytes,
) -> None:
    cluster = kind(tmp_path)
    nameless = without_header(b"X-Skypilot-Request-ID")
    with changed_answers(launch, nameless) as address, monkeypatch.context() as there:
        there.setenv("SKYPILOT_API_SERVER_ENDPOINT", address)
        app_id = cluster.in_new_process().schedule("echo once")
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["once\n"]
    assert len(_launches(kind, app_id)) == 1


ASKED = """\
import pathlib, sys
from tests.contract.backends import BACKENDS
cluster = BACKENDS[sys.argv[1]](pathlib.Path(sys.argv[2]))
status = cluster.scheduler.status_of(sys.argv[3])
print(status.state.name, repr(status.message))
"""


ODD = [
    (b"{}", b"200 OK", "could not queue"),
    (b'[{"job": 1}]', b"200 OK", "cannot read"),
    (b"null", b"200 OK", "cannot read"),
    (b"<html>Sign in</html>", b"401 Unauthorized", "sky api login"),
]


@KINDS
def test_odd_answers_say_nothing_about_a_job(
    skypilot_bed: Path, tmp_path: Path, kind: type[SkypilotCluster]
) -> None:
    cluster = kind(tmp_path)
    app_id = cluster.schedule("echo up; sleep 600")
    cluster.wait_for_line(app_id, "up\n")
    wait_for(lambda: cluster.scheduler.status_of(app_id).state is AppState.RUNNING, "its start")
    for body, status, why in ODD:
        with changed_answers(b"GET /api/", instead(body, status)) as address:
            host = address.removeprefix("http://")
            done = subprocess.run(
                [sys.executable, "-c", ASKED, kind.name, str(tmp_path), app_id],
                cwd=ROOT,
                env={**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": f"http://Ada:sesame-17@{host}"},
                capture_output=True,
                text=True,
            )
        assert done.stdout.startswith("RUNNING "), done.stdout + done.stderr
        assert why in done.stdout
        assert "sesame-17" not in done.stdout + done.stderr
    cluster.cancel(app_id)


ONCE = """\
import pathlib, sys
import nemo_run as run
from tests.contract.backends import BACKENDS
executor = BACKENDS[sys.argv[1]](pathlib.Path(sys.argv[2])).executor()
with run.Experiment("once", executor=executor, check=True) as exp:
    exp.add(run.Script(inline="echo once"), name="job")
    exp.run()
"""


@LAUNCHES
def test_a_launch_whose_answer_is_lost_is_neither_repeated_nor_given_up(
    skypilot_bed: Path, tmp_path: Path, kind: type[SkypilotCluster], launch: bytes
) -> None:
    cluster = kind(tmp_path)
    with line(cut_after=launch) as way:
        launcher = subprocess.Popen(
            [sys.executable, "-c", ONCE, kind.name, str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": way.address},
        )
        # Nobody can be asked for so long that whoever launched it has to leave it at that.
        deadline = patience.deadline(300)
        while way.refused < 12:
            assert launcher.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        way.mend()
        assert launcher.wait() == 0
    (app_id,) = cluster.listed()
    assert cluster.lines(app_id) == ["once\n"]
    assert len(_launches(kind, app_id)) == 1


FOLLOW = """\
import pathlib, sys
from tests.contract.backends import BACKENDS
scheduler = BACKENDS[sys.argv[1]](pathlib.Path(sys.argv[2])).scheduler
for line in scheduler.log_iter(sys.argv[3], "job", should_tail=True):
    print(line, end="", flush=True)
"""


@KINDS
def test_followed_logs_go_on_after_an_outage_in_which_the_job_has_ended(
    skypilot_bed: Path, tmp_path: Path, kind: type[SkypilotCluster]
) -> None:
    cluster = kind(tmp_path)
    go_on = cluster.scratch / "go_on"
    app_id = cluster.schedule(f"echo up; until [ -e {go_on} ]; do sleep 0.1; done; echo done")
    cluster.wait_for_line(app_id, "up\n")
    with line() as way:
        follower = subprocess.Popen(
            [sys.executable, "-c", FOLLOW, kind.name, str(tmp_path), app_id],
            cwd=ROOT,
            env={**os.environ, "SKYPILOT_API_SERVER_ENDPOINT": way.address},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert follower.stdout is not None
        assert follower.stdout.readline() == "up\n"
        way.cut()
        deadline = patience.deadline(300)
        while way.refused < 3:
            assert follower.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        go_on.touch()
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        way.mend()
        rest, _ = follower.communicate()
    assert (rest, follower.returncode) == ("done\n", 0)


def test_logs_that_could_not_be_copied_are_read_from_the_cluster(
    skypilot_bed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    logs = home / "sky_logs" / os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"]
    logs.parent.mkdir(parents=True)
    logs.write_text("not the directory that SkyPilot copies logs to")
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://elsewhere:46580")
    monkeypatch.setenv("HOME", str(home))
    there = SkypilotCluster(tmp_path).in_new_process()
    app_id = there.schedule("echo still there")
    seen = there.call("seen", app_id)
    assert (seen["state"], seen["lines"]) == ("SUCCEEDED", ["still there\n"])


def _launches(kind: type[SkypilotCluster], app_id: str) -> list[launches.SkyRequest]:
    """Return the launches of a job that the API server was asked for."""
    managed = kind is SkypilotJobs
    cluster = None if managed else os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"]
    return launches.requests_naming(cluster, app_id.rpartition("___")[2])
