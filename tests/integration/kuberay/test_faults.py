"""Ray jobs on Kubernetes while heads restart, operators suspend and answers get lost."""

from __future__ import annotations

import threading

import pytest
from tests import patience
from tests.emulators.faults import Fault
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.kubernetes.ray_job import RayJob as EmulatedJob
from tests.integration.kuberay.conftest import MakeExecutor
from tests.integration.kuberay.waiting import wait_until

from nemo_run.run.ray.kuberay import KubeRayJob

JOB = "ann-lee-train-rayjob"
WAITS = "echo begun; until [ -e /workspace/go ]; do sleep 0.05; done; echo done"


@pytest.fixture
def job(executor: MakeExecutor) -> KubeRayJob:
    return KubeRayJob(name="train", executor=executor())


def running(job: KubeRayJob, emulator: KubernetesEmulator) -> EmulatedJob:
    wait_until(lambda: job.status(display=False)["jobStatus"] == "RUNNING", "start of the job")
    made = emulator.ray.jobs["default", JOB]
    assert isinstance(made, EmulatedJob)
    return made


def test_a_job_whose_head_was_started_again_has_failed(
    job: KubeRayJob, emulator: KubernetesEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    job.start(command=WAITS)
    made = running(job, emulator)
    assert made.cluster is not None
    assert made.cluster.head is not None
    wait_until(lambda: "begun" in made.submitters[0].container.log.text, "first line")  # type: ignore[union-attr]  # it runs
    made.cluster.head.kill_container()
    job.logs(follow=True)
    assert "begun" in capfd.readouterr().out
    status = job.status()
    assert (status["jobStatus"], status["jobDeploymentStatus"]) == ("FAILED", "Failed")
    assert "does not know the job any more" in status["message"]
    # The operator itself never notices.
    assert made.status["jobStatus"] == "RUNNING"
    assert made.deployment == "Running"
    assert job.stop(wait=True)
    assert not emulator.pods


def test_a_job_whose_head_was_replaced_has_failed(
    job: KubeRayJob, emulator: KubernetesEmulator
) -> None:
    job.start(command=WAITS)
    made = running(job, emulator)
    assert made.cluster is not None
    first = made.cluster.head
    assert first is not None
    # Times of pods are whole seconds.
    threading.Event().wait(1.1)
    first.delete()
    wait_until(lambda: job.status(display=False)["jobStatus"] == "FAILED", "word of the loss")


def test_a_suspended_job_waits_and_goes_on(
    job: KubeRayJob, emulator: KubernetesEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    job.start(command=WAITS)
    made = running(job, emulator)
    made.spec["suspend"] = True
    wait_until(
        lambda: job.status(display=False)["jobDeploymentStatus"] == "Suspended", "suspended job"
    )
    follower = threading.Thread(target=job.logs, kwargs={"follow": True})
    follower.start()
    (emulator.volume("work") / "go").touch()
    made.spec["suspend"] = False
    follower.join(patience.seconds(60))
    assert not follower.is_alive()
    assert "done" in capfd.readouterr().out
    assert job.status()["jobStatus"] == "SUCCEEDED"


def test_a_submitter_that_fails_is_not_started_again(
    job: KubeRayJob, emulator: KubernetesEmulator
) -> None:
    emulator.ray.paused.set()
    job.start(command="true")
    made = emulator.ray.jobs["default", JOB]
    assert isinstance(made, EmulatedJob)
    made.spec["entrypoint"] = "'"  # which the shell that submits cannot read
    emulator.ray.paused.clear()
    wait_until(lambda: job._has_ended(), "end of the job")
    status = job.status()
    assert status["jobDeploymentStatus"] == "Failed"
    assert "SubmissionFailed" in status["message"]
    assert len(made.submitters) == 1


def test_a_job_is_tried_as_often_as_asked_for(
    executor: MakeExecutor, emulator: KubernetesEmulator
) -> None:
    job = KubeRayJob(name="train", executor=executor(retries=1))
    job.start(command="echo once >>/workspace/tries; exit 1")
    wait_until(lambda: job._has_ended(), "end of the job")
    assert (emulator.volume("work") / "tries").read_text() == "once\nonce\n"
    assert job.status()["jobStatus"] == "FAILED"


def test_an_answer_that_is_lost_leaves_one_job(
    job: KubeRayJob, emulator: KubernetesEmulator
) -> None:
    emulator.faults.add(Fault(method="POST", path=".*/rayjobs$", times=1, drop=True, handled=True))
    job.start(command="true")
    assert len(emulator.ray.jobs) == 1
    wait_until(lambda: job.status(display=False)["jobStatus"] == "SUCCEEDED", "end of the job")


def test_an_outage_says_nothing_about_a_job_and_is_waited_for(
    job: KubeRayJob, emulator: KubernetesEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    job.start(command=WAITS)
    running(job, emulator)
    follower = threading.Thread(target=job.logs, kwargs={"follow": True})
    follower.start()
    with emulator.unreachable():
        assert job.status()["jobStatus"] == "ERROR"
    (emulator.volume("work") / "go").touch()
    follower.join(patience.seconds(60))
    assert not follower.is_alive()
    assert "begun\ndone\n" in capfd.readouterr().out


def test_waiting_for_a_log_ends_in_time_and_following_does_not(
    job: KubeRayJob, emulator: KubernetesEmulator, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator.may_start.clear()
    job.start(command=WAITS)
    job.logs(timeout=0)
    assert capfd.readouterr().out == ""
    emulator.may_start.set()
    threading.Timer(1.5, (emulator.volume("work") / "go").touch).start()
    # The time is for the first line; what is followed takes as long as it takes.
    job.logs(follow=True, timeout=1)
    assert "done" in capfd.readouterr().out
    job.logs(lines=1)
    assert capfd.readouterr().out == "done\n"
