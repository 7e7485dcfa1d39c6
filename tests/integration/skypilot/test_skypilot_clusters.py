"""Jobs on a cluster of a real SkyPilot, beyond what every backend promises."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.contract.backends import ROOT, SkypilotCluster, SkypilotJobs
from torchx.specs import AppState

import nemo_run as run

pytestmark = [pytest.mark.slow, pytest.mark.skypilot, pytest.mark.timeout(1200)]


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
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(mine)
# As one write: the processes of a node share its log.
sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {mine.item():.0f}\\n")
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
    said = "".join(line for k in range(2) for line in cluster.lines(app_id, k=k))
    wanted = [f"rank {rank} of 4 sum 10" for rank in range(4)]
    assert sorted(re.findall(r"rank \d of \d sum \d+", said)) == wanted


def test_one_node_that_fails_makes_the_job_fail(cluster: SkypilotCluster) -> None:
    end = cluster.wait(cluster.schedule("exit $((SKYPILOT_NODE_RANK * 9))", num_nodes=2))
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


def test_a_job_is_found_whose_launcher_never_heard_of_its_request(
    cluster: SkypilotCluster, nemorun_home: Path
) -> None:
    planned = cluster.plan("sleep 5; echo found")
    app_id = cluster.scheduler.schedule(planned)
    (path,) = (nemorun_home / "jobs" / "skypilot").glob("*.json")
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
    status = cluster.status(record.app_id)
    assert status is not None
    assert status.state is AppState.UNSUBMITTED


@pytest.mark.parametrize("kind", [SkypilotCluster, SkypilotJobs])
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
