"""How files get to a Lepton workspace."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.backends import LeptonCluster
from tests.emulators.faults import Fault
from tests.emulators.lepton import LeptonEmulator
from tests.integration.lepton.requests import sent

import nemo_run as run
from nemo_run.exceptions import AuthenticationError, SubmitError

pytestmark = pytest.mark.slow

CHECK = "print(__import__('hashlib').sha256(open('/nemo_run/code/data', 'rb').read()).hexdigest())"


def plan_with(cluster: LeptonCluster, data: bytes) -> Any:
    """Plan a job that finds ``data`` in its code and prints its hash."""
    executor = cluster.assigned("job")
    code = Path(executor.job_dir) / "code"
    code.mkdir(parents=True)
    (code / "data").write_bytes(data)
    app = cluster.app(["python3", "-c", CHECK], executor=executor)
    return cluster.scheduler.submit_dryrun(app, executor)


class TestFiles:
    def test_movers_are_private_and_gone_afterwards(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        cluster.wait(cluster.schedule("echo a-very-special-word"))
        (body,) = sent(emulator, movers=True)
        assert body["metadata"]["visibility"] == "private"
        assert "special" not in json.dumps(body["spec"]["container"])
        assert [job.id for job in emulator.jobs.values() if not job.archived] == [
            sent(emulator)[0]["metadata"]["id"]
        ]

    def test_size_is_not_limited_by_an_argument_list(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="nemo_run")
        data = os.urandom(3_000_000)
        app_id = cluster.scheduler.schedule(plan_with(cluster, data))
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [hashlib.sha256(data).hexdigest() + "\n"]
        movers = sent(emulator, movers=True)
        assert 5 < len(movers) < 20
        assert all(len(json.dumps(body)) < 600_000 for body in movers)
        assert f"moved {len(movers)} of {len(movers)} parts" in caplog.text
        left = list(emulator.volume("node-nfs:shared").rglob("*incoming*"))
        assert left == []

    def test_a_launcher_goes_on_with_the_parts_where_another_had_to_stop(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        data = os.urandom(3_000_000)
        planned = plan_with(cluster, data)
        expired = Fault(method="POST", path="/jobs$", skip=5, times=1, status=401)
        emulator.faults.add(expired)
        with pytest.raises(AuthenticationError):
            cluster.scheduler.schedule(planned)
        time.sleep(1.1)  # files and archives have times in seconds
        app_id = cluster.scheduler.schedule(planned)
        cluster.wait(app_id)
        assert cluster.lines(app_id) == [hashlib.sha256(data).hexdigest() + "\n"]
        assert len(sent(emulator)) == 1
        assert list(emulator.volume("node-nfs:shared").rglob("*incoming*")) == []

    def test_what_an_earlier_job_wrote_stays_and_its_code_does_not(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        cluster.wait(cluster.schedule("echo kept > /nemo_run/result; touch /nemo_run/code/old"))
        app_id = cluster.schedule("cat /nemo_run/result; ls /nemo_run/code")
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["kept\n"]

    def test_a_mover_that_fails_is_told_about_and_removed(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        (emulator.volume("node-nfs:shared") / "nemo_run").write_text("in the way")
        with pytest.raises(SubmitError, match=r"could not be moved .*mkdir"):
            cluster.schedule(["true"])
        assert all(job.archived for job in emulator.jobs.values())
        assert sent(emulator) == []

    def test_a_mover_that_gets_no_place_is_given_up_and_removed(
        self, cluster: LeptonCluster, emulator: LeptonEmulator
    ) -> None:
        executor = cluster.assigned("job")
        assert isinstance(executor, run.LeptonExecutor)
        with emulator.held(), pytest.raises(TimeoutError, match="Queueing"):
            executor.move_data(timeout=1, poll_interval=1)
        deadline = patience.deadline(10)
        while not all(job.archived for job in emulator.jobs.values()):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def test_from_within_the_cluster_files_are_just_copied(
        self, cluster: LeptonCluster, emulator: LeptonEmulator, tmp_path: Path
    ) -> None:
        mount = tmp_path / "mounted"
        mount.symlink_to(emulator.volume("node-nfs:shared"))
        executor = cluster.assigned("job", launched_from_cluster=True)
        assert isinstance(executor, run.LeptonExecutor)
        executor.nemo_run_dir = str(mount / "runs")
        executor.mounts = [{"path": "/", "mount_path": str(mount), "from": "node-nfs:shared"}]
        executor.assign("contract_1", executor.experiment_dir, "job", "job")
        app = cluster.app("echo copied", executor=executor)
        app_id = cluster.scheduler.schedule(cluster.scheduler.submit_dryrun(app, executor))
        cluster.wait(app_id)
        assert cluster.lines(app_id) == ["copied\n"]
        assert sent(emulator, movers=True) == []
