"""Files get to the volume whole, by whichever way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import DGXCloudCluster
from tests.contract.repositories import odd_tree, read_tree, write_tree
from tests.emulators.runai import RunaiEmulator
from tests.integration.dgxcloud.settings import from_the_cluster
from torchx.specs import AppState

import nemo_run as run
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.packaging._staging import stage
from nemo_run.exceptions import ConfigError, SubmitError

pytestmark = pytest.mark.slow


def job_with_code(cluster: DGXCloudCluster, **settings: Any) -> DGXCloudExecutor:
    executor = cluster.assigned("job", **settings)
    assert isinstance(executor, DGXCloudExecutor)
    code = Path(executor.job_dir) / "code"
    (code / "empty").mkdir(parents=True)
    (code / 'it\'s a "file" $HOME ☃').write_text("odd")
    (code / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (code / "run.sh").chmod(0o755)
    (code / "link").symlink_to("run.sh")
    (code / "data.tar.gz").write_bytes(b"the user's own")
    (Path(executor.job_dir) / "job.tar.gz").write_bytes(b"what the code came in")
    return executor


def schedule(cluster: DGXCloudCluster, executor: DGXCloudExecutor, task: str) -> str:
    app = cluster.app(task, executor=executor)
    app_id: str = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
    return app_id


class TestThroughAWorkspace:
    def test_everything_arrives_as_it_is(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        executor = job_with_code(cluster)
        app_id = schedule(cluster, executor, "./run.sh; pwd")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        assert cluster.lines(app_id) == ["ran\n", f"{executor.pvc_job_dir}/code\n"]
        relative = executor.pvc_job_dir.removeprefix("/workspace/")
        there = emulator.volume("work") / relative
        assert (there / "code" / "empty").is_dir()
        assert (there / "code" / 'it\'s a "file" $HOME ☃').read_text() == "odd"
        assert os.access(there / "code" / "run.sh", os.X_OK)
        assert (there / "code" / "link").is_symlink()
        assert (there / "code" / "data.tar.gz").exists()
        assert not (there / "job.tar.gz").exists()

    def test_a_task_may_call_its_directory_by_its_short_name(
        self, cluster: DGXCloudCluster
    ) -> None:
        app_id = schedule(cluster, job_with_code(cluster), "cat /nemo_run/code/run.sh | tail -1")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["echo ran\n"]

    def test_no_request_carries_a_file(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, DGXCloudExecutor)
        code = Path(executor.job_dir) / "code"
        code.mkdir()
        (code / "big").write_bytes(os.urandom(3_000_000))
        app_id = schedule(cluster, executor, "wc -c < big")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["3000000\n"]
        assert max(len(request.body) for request in emulator.server.seen) < 5_000
        assert max(len(request.query_string) for request in emulator.server.seen) < 2_000

    def test_one_workspace_serves_many_jobs_and_asks_for_no_gpu(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_ids = [cluster.schedule("true", name=f"job-{n}", gpus_per_node=8) for n in range(3)]
        for app_id in app_ids:
            cluster.wait(app_id)
        (mover,) = [w for w in emulator.workloads.values() if w.kind == "workspaces"]
        assert "gpuDevicesRequest" not in mover.spec["compute"]
        assert mover.spec["autoDeletionTimeAfterCompletionSeconds"] <= 300

    def test_a_workspace_ends_itself_when_it_was_not_used(self, tmp_path: Path) -> None:
        from nemo_run._backends.runai import payloads
        from nemo_run._backends.runai.client import Project

        used = tmp_path / "state" / "used"
        body = payloads.mover(
            name="mover",
            project=Project(id="1", name="p", cluster_id="c", namespace="n"),
            pvcs=[],
            security={},
            used=str(used),
            idle_minutes=1,
        )
        text = f"{body['spec']['command']} {body['spec']['args']}".replace("sleep 5", "sleep 0.1")
        process = subprocess.Popen(["/bin/sh", "-c", text])
        deadline = patience.deadline(20)
        while not used.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.3)
        assert process.poll() is None
        long_ago = time.time() - 3600
        os.utime(used, (long_ago, long_ago))
        assert process.wait(patience.seconds(20)) == 0

    def test_a_workspace_that_has_ended_is_replaced(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        cluster.wait(cluster.schedule("true"))
        (mover,) = [w for w in emulator.workloads.values() if w.kind == "workspaces"]
        mover.suspend()
        app_id = cluster.schedule("true")
        assert cluster.wait(app_id).state is AppState.SUCCEEDED

    def test_a_workspace_that_does_not_start_is_told_and_removed(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nemo_run._backends.runai.volume.READY_S", 0.5)
        with emulator.held(), pytest.raises(SubmitError, match=r"Pending instead of Running"):
            cluster.schedule("true")
        (mover,) = emulator.workloads.values()
        assert mover.desired == "Deleted"

    def test_a_job_that_runs_as_somebody_else_has_its_files_written_as_that(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        security = {"runAsUid": 1000, "runAsGid": 1000}
        app_id = cluster.schedule("true", custom_spec={"security": security})
        cluster.wait(app_id)
        assert [w.spec["security"] for w in emulator.workloads.values()] == [security] * 2

    def test_the_script_of_a_job_is_its_own_and_its_owners(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_ids = [cluster.schedule(f"echo {n}", name=f"job-{n}") for n in range(3)]
        for app_id in app_ids:
            cluster.wait(app_id)
        scripts = list((emulator.volume("work")).rglob("launch_script.sh"))
        assert len(scripts) == 3
        assert {path.stat().st_mode & 0o777 for path in scripts} == {0o600}
        assert [cluster.lines(app_id) for app_id in app_ids] == [["0\n"], ["1\n"], ["2\n"]]

    def test_the_log_of_a_job_whose_pods_are_gone_is_read_from_the_volume(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator
    ) -> None:
        app_id = cluster.schedule("echo up; sleep 60")
        cluster.wait_for_line(app_id, "up\n")
        cluster.cancel(app_id)
        (job,) = emulator.jobs()
        assert all(pod.gone for pod in job.pods)
        assert cluster.lines(app_id) == ["up\n"]


class TestCode:
    """What a packager takes along travels as its archive, and is kept on the volume by its hash."""

    @pytest.fixture(autouse=True)
    def tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        tree = tmp_path / "tree"
        write_tree(tree, odd_tree())
        (tree / "empty dir").mkdir()
        monkeypatch.chdir(tree)
        return tree

    def ran(self, cluster: DGXCloudCluster, name: str, task: str, **settings: Any) -> str:
        """Run a task with the code of today; return its log."""
        executor = cluster.assigned(name, packager=run.SnapshotPackager(), **settings)
        executor.package(executor.packager, name)
        assert isinstance(executor, DGXCloudExecutor)
        app_id = schedule(cluster, executor, task)
        assert cluster.wait(app_id).state is AppState.SUCCEEDED
        return "".join(cluster.lines(app_id))

    @pytest.mark.parametrize("mounted", [False, True])
    def test_it_arrives_as_it_is(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, mounted: bool
    ) -> None:
        settings = from_the_cluster(emulator) if mounted else {}
        assert self.ran(cluster, "job", "./run.sh", **settings) == "hi\n"
        (code,) = (path for path in emulator.volume("work").rglob("code") if path.is_dir())
        assert read_tree(code) == odd_tree()
        assert (code / "empty dir").is_dir()

    def test_what_the_volume_has_is_not_sent_again_unless_it_was_changed(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, tree: Path, tmp_path: Path
    ) -> None:
        assert self.ran(cluster, "first", "./run.sh") == "hi\n"
        (kept,) = emulator.volume("work").rglob(".dgx_cloud/archives/*")
        before = kept.stat().st_ino
        assert self.ran(cluster, "second", "./run.sh") == "hi\n"
        assert kept.stat().st_ino == before
        (tree / "run.sh").write_text("#!/bin/sh\necho changed\n")
        other = stage(run.SnapshotPackager(), str(tmp_path / "other"), "other")
        assert other is not None
        kept.unlink()
        shutil.copy(other.archive, kept)
        (tree / "run.sh").write_text("#!/bin/sh\necho hi\n")
        assert self.ran(cluster, "third", "./run.sh") == "hi\n"
        assert list(kept.parent.iterdir()) == [kept]

    def test_what_an_attempt_that_broke_off_has_left_is_gone_on_with(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, tree: Path
    ) -> None:
        (tree / "large").write_bytes(os.urandom(3_000_000))
        staged = stage(run.SnapshotPackager(), str(tree.parent / "other"), "other")
        assert staged is not None
        archives = emulator.volume("work") / "nemo_run" / ".dgx_cloud" / "archives"
        archives.mkdir(parents=True)
        part = archives / f"{staged.sha256}.tar.gz.0.part"
        part.write_bytes(staged.archive.read_bytes()[:2_000_000])
        assert self.ran(cluster, "job", "wc -c < large") == "3000000\n"
        assert [path.name for path in archives.iterdir()] == [f"{staged.sha256}.tar.gz"]


class TestWrittenOnce:
    @pytest.mark.parametrize("mounted", [False, True])
    def test_files_that_a_job_may_be_using_are_not_touched(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, mounted: bool
    ) -> None:
        settings: dict[str, Any] = {}
        if mounted:
            settings = from_the_cluster(emulator)
        executor = job_with_code(cluster, **settings)
        planned = cluster.scheduler.submit_dryrun(
            cluster.app("./run.sh", executor=executor), executor
        )
        app_id = cluster.scheduler.schedule(planned)
        cluster.wait(app_id)
        (job,) = emulator.jobs()
        (there,) = emulator.volume("work").rglob("run.sh")
        before = there.stat()
        # As after a launcher that was killed before it had created the workload.
        del emulator.workloads[job.id]
        cluster.scheduler.schedule(planned)
        after = there.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
        assert len(emulator.jobs()) == 1


class TestFromTheCluster:
    """This process is in a pod: the volume is a directory here, under the same path."""

    @pytest.fixture
    def settings(self, emulator: RunaiEmulator) -> dict[str, Any]:
        return from_the_cluster(emulator)

    def test_jobs_run_without_any_workspace(
        self,
        cluster: DGXCloudCluster,
        emulator: RunaiEmulator,
        settings: dict[str, Any],
    ) -> None:
        executor = job_with_code(cluster, **settings)
        app_id = schedule(cluster, executor, "./run.sh; exit 4")
        end = cluster.wait(app_id)
        assert (end.state, end.exit_code) == (AppState.FAILED, 4)
        assert cluster.lines(app_id) == ["ran\n"]
        assert [w.kind for w in emulator.workloads.values()] == ["trainings"]

    def test_logs_are_followed_and_read_after_a_cancel(
        self, cluster: DGXCloudCluster, settings: dict[str, Any]
    ) -> None:
        counting = "for i in 1 2 3; do echo $i; sleep 0.3; done"
        app_id = cluster.schedule(counting, **settings)
        assert cluster.lines(app_id, should_tail=True) == ["1\n", "2\n", "3\n"]
        app_id = cluster.schedule("echo up; sleep 60", name="other", **settings)
        cluster.wait_for_line(app_id, "up\n")
        cluster.cancel(app_id)
        assert cluster.lines(app_id) == ["up\n"]

    def test_a_volume_that_is_not_mounted_here_is_named(self, cluster: DGXCloudCluster) -> None:
        with pytest.raises(SubmitError, match=r"must be mounted here"):
            cluster.schedule(
                "true",
                launched_from_cluster=True,
                pvcs=[{"name": "work", "path": "/proc/nowhere"}],
                pvc_nemo_run_dir="/proc/nowhere/nemo_run",
            )


class TestSettings:
    def test_a_home_that_is_on_no_volume_is_refused(self, cluster: DGXCloudCluster) -> None:
        with pytest.raises(ConfigError, match=r"/elsewhere.*/workspace"):
            cluster.assigned("job", pvc_nemo_run_dir="/elsewhere")

    def test_a_volume_whose_path_only_starts_alike_does_not_count(
        self, cluster: DGXCloudCluster
    ) -> None:
        with pytest.raises(ConfigError, match="none of the volumes"):
            cluster.assigned("job", pvc_nemo_run_dir="/workspace2/nemo_run")

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"project_name": ""}, "project_name is empty"),
            ({"container_image": ""}, "container_image is empty"),
            ({"base_url": "host/api"}, "base_url='host/api' is not a URL"),
            ({"nodes": 0}, "nodes=0"),
            ({"pvc_nemo_run_dir": "/workspace/my dir"}, "absolute path of letters"),
            ({"nodes": 2, "retries": 1}, "retries=1"),
        ],
    )
    def test_what_cannot_work_is_found_while_planning(
        self, cluster: DGXCloudCluster, emulator: RunaiEmulator, settings: dict, said: str
    ) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            cluster.plan("true", **settings)
        assert emulator.server.seen == []
