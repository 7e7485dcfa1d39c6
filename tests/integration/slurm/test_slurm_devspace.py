"""Devspaces on a real Slurm: logged in to by an alias, over a login node, from any process."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.integration import devspaces
from tests.integration.docker import images
from tests.integration.slurm.cluster import SlurmCluster
from tests.integration.slurm.jobs import Jobs, wait_until
from tests.integration.slurm.podman import PodmanStore

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmTunnelCallback
from nemo_run.devspace import _reaching, _records, commands

JUPYTER = Path(__file__).parents[3] / ".venv-jupyter" / "bin"


@pytest.fixture
def jobs(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    devspaces.home_of_its_own(tmp_path, monkeypatch)
    yield Jobs(slurm, tmp_path)
    for record in _records.known():
        commands.stop(record.name)


def space(jobs: Jobs, name: str = "dev", path: Path | None = None, **settings: Any) -> run.DevSpace:
    """Return a devspace whose jobs find the programs in ``path`` first."""
    env_vars = {"PATH": f"{path}:$PATH"} if path else {}
    executor = jobs.slurm_executor(env_vars=env_vars)
    return run.DevSpace(name, executor, **{"editor": "none", "detach": True, **settings})


@pytest.mark.timeout(300)
def test_an_alias_leads_to_the_node_and_holds_through_a_cut_connection(jobs: Jobs) -> None:
    space(jobs).launch()
    where = devspaces.said("dev", "echo $SLURM_JOB_ID $SLURMD_NODENAME; pwd; echo $NEMO_DEVSPACE")
    ids, workspace, name = where.splitlines()
    number, node = ids.split()
    assert jobs.squeue(number, "%T %N") == f"RUNNING {node}"
    assert workspace == f"{jobs.remote}/devspaces/dev"
    assert name == "dev"

    left = Path(workspace) / "left"
    left.touch()
    loop = f"(while sleep 0.2; do date +%s%N >{left}; done) >/dev/null 2>&1 &"
    work = f"{loop} echo begun; sleep 600"
    with subprocess.Popen(
        devspaces.ssh_argv("dev", work), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"begun\n"
        jobs.engine.sshd.drop_connections()
        assert session.wait(patience.seconds(60)) != 0
    before = left.read_text()
    wait_until(lambda: left.read_text() not in ("", before), "a process that the cut left alone")
    assert devspaces.said("dev", "echo $SLURM_JOB_ID") == number

    space(jobs).launch()
    assert devspaces.said("dev", "echo $SLURM_JOB_ID") == number
    assert devspaces.listed()["dev"]["state"] == "RUNNING"
    stopped = devspaces.nemorun("devspace", "stop", "dev")
    assert (stopped.returncode, stopped.stdout) == (0, "dev: CANCELLED\n")
    assert jobs.squeue(number, "%T") == "CANCELLED"
    assert devspaces.listed() == {}
    assert devspaces.ssh("dev", "true").returncode == 255


@pytest.mark.timeout(300)
def test_another_machine_connects_by_host_and_path(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space(jobs, "shared").launch()
    record = _records.get("shared")
    with monkeypatch.context() as other:
        other.setenv("NEMORUN_HOME", str(tmp_path / "other"))
        # Both machines are this one, and so have one config; of two aliases ssh takes the first.
        other.setenv("HOME", str(tmp_path))
        done = devspaces.nemorun("devspace", "connect", "root@loop", record.directory, "--detach")
        assert done.returncode == 0, done.stderr
        assert "ssh tunnel.shared.shared" in done.stdout
        assert devspaces.said("shared", "echo $NEMO_DEVSPACE") == "shared"
        refused = devspaces.nemorun("devspace", "stop", "shared")
        assert refused.returncode == 2
        assert "stop it there" in refused.stderr
        wrong = devspaces.nemorun("devspace", "connect", "root@loop", str(tmp_path))
        assert wrong.returncode == 2
        assert f"There is no devspace in '{tmp_path}' on root@loop" in wrong.stderr
    assert devspaces.said("shared", "echo $NEMO_DEVSPACE") == "shared"
    commands.stop("shared")
    with monkeypatch.context() as other:
        other.setenv("NEMORUN_HOME", str(tmp_path / "other"))
        other.setenv("HOME", str(tmp_path))
        assert devspaces.listed() == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("on_login_node", [False, True], ids=["over ssh", "on a login node"])
def test_a_devspace_without_connections_ends(
    jobs: Jobs, on_login_node: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = space(jobs, "idle", idle="1s")
    executor = made.executor
    assert isinstance(executor, run.SlurmExecutor)
    if on_login_node:
        monkeypatch.setenv("SLURM_CONF", jobs.engine.environment["SLURM_CONF"])
        executor.tunnel = run.LocalTunnel(job_dir=str(jobs.remote))
        assert executor.launch_devspace(made) is None
    else:
        callback = executor.launch_devspace(made)
        assert isinstance(callback, SlurmTunnelCallback)
        made.attend(executor.tunnel, callback)
    record = _records.get("idle")
    wait_until(lambda: commands.listed() == [], "the end of an idle devspace")
    status = run.Experiment.from_id(record.experiment).status(return_dict=True)
    assert status is not None
    assert status[record.job]["status"].name == "SUCCEEDED"
    assert not Path(record.directory).exists()


@pytest.mark.timeout(300)
def test_a_container_on_a_node_has_the_workspace(
    jobs: Jobs, podman_store: PodmanStore, tmp_path: Path
) -> None:
    (tmp_path / "passwd").write_text(devspaces.USERS)
    mounts = [*devspaces.OPENSSH, f"{tmp_path}/passwd:/etc/passwd:ro"]
    executor = jobs.slurm_executor(
        container_image=images.PYTHON,
        container_runtime="podman",
        container_mounts=mounts,
        setup_lines="\n".join(f"export {n}={v}" for n, v in podman_store.environment.items()),
    )
    run.DevSpace("inside", executor, editor="none", detach=True, env_vars={"A": "b c"}).launch()
    words = "pwd; echo $A; echo $PYTHONPATH; touch /workspaces/.main/made; cat /etc/passwd"
    said = devspaces.said("inside", words).splitlines()
    assert said[:3] == ["/workspaces/inside", "b c", "/workspaces/inside"]
    assert said[3:] == devspaces.USERS.splitlines()
    assert (jobs.remote / "devspaces" / "inside" / "made").exists()
    note = _reaching.find_server(_records.get("inside"))
    assert note is not None
    assert (note.address, note.node) == (
        "127.0.0.1",
        devspaces.said("inside", "echo $SLURMD_NODENAME"),
    )
    assert executor.container_mounts == mounts
    assert commands.stop("inside") == "CANCELLED"
    wait_until(lambda: podman_store.running() == 0, "the end of the container")


@pytest.mark.timeout(300)
def test_a_job_that_login_nodes_may_not_reach_opens_a_way_back_and_again_after_a_cut(
    jobs: Jobs,
) -> None:
    space(jobs, "back", jobs.engine.sshd.bin, reverse="loop").launch()
    record = _records.get("back")
    first = _reaching.find_server(record)
    assert first is not None
    assert first.reverse
    assert devspaces.said("back", "echo $NEMO_DEVSPACE") == "back"
    jobs.engine.sshd.drop_connections()

    def is_back() -> bool:
        now = _reaching.find_server(record)
        return now is not None and now.port != first.port

    wait_until(is_back, "another way back")
    assert devspaces.said("back", "echo $NEMO_DEVSPACE") == "back"


@pytest.mark.timeout(300)
def test_jupyter_answers_with_its_token_and_refuses_without_also_after_a_cut(jobs: Jobs) -> None:
    assert (JUPYTER / "jupyter-server").exists(), "no Jupyter: run `make .venv-jupyter/.installed`"
    space(jobs, "lab", JUPYTER).launch()
    argv = [sys.executable, "-m", "nemo_run", "devspace", "connect", "lab", "--editor", "jupyter"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as attached:
        assert attached.stdout is not None
        line = ""
        while not line.startswith("Jupyter: "):
            line = attached.stdout.readline()
            assert line, "it ended"
        address, _, token = line.removeprefix("Jupyter: ").strip().partition("?token=")
        api = f"{'/'.join(address.split('/')[:3])}/api/contents"
        assert answer(api, token) == 200
        assert answer(api, "") == answer(api, "0" * len(token)) == 403
        arguments = devspaces.said("lab", "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
        assert "--ServerApp.sock" in arguments
        assert token not in arguments
        jobs.engine.sshd.drop_connections()
        wait_until(lambda: answer(api, token) == 200, "Jupyter after a cut")
        attached.send_signal(signal.SIGINT)
        attached.communicate(timeout=patience.seconds(60))
    assert attached.returncode == 0
    assert answer(api, token) == 0
    number = devspaces.said("lab", "echo $SLURM_JOB_ID")
    pid = devspaces.said("lab", "cat $NEMO_DEVSPACE_PRIVATE/jupyter.pid")
    commands.stop("lab")
    assert jobs.squeue(number, "%T") == "CANCELLED"
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of Jupyter")


def answer(url: str, token: str) -> int:
    """Return the status that a server answers with; 0 without an answer."""
    request = urllib.request.Request(url, headers={"Authorization": f"token {token}"})
    try:
        with urllib.request.urlopen(request, timeout=patience.seconds(20)) as done:
            return int(done.status)
    except urllib.error.HTTPError as err:
        return err.code
    except (OSError, http.client.HTTPException):
        return 0
