"""Tasks on a Ray cluster that is already there, with a real Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest
from tests import patience
from tests.cli import commands
from tests.contract.backends import ROOT, RayBackend
from tests.integration.ray.bed import RayBed, own_bed
from torchx.specs import AppState

import nemo_run as run
from nemo_run.exceptions import AuthenticationError

pytestmark = pytest.mark.slow

SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


def jobs_of(bed: RayBed) -> str:
    """Return all that the cluster tells of its jobs."""
    request = urllib.request.Request(f"http://127.0.0.1:{bed.port}/api/jobs/")
    request.add_header("Authorization", f"Bearer {bed.token}")
    with urllib.request.urlopen(request, timeout=patience.seconds(60)) as answer:
        return str(answer.read().decode())


TASK = """
import os, ray
import helper

ray.init(log_to_driver=False)

@ray.remote
def there():
    import helper
    return helper.WORD, os.environ.get("PLAIN"), os.environ.get("HF_TOKEN")

print(helper.WORD, os.environ["PLAIN"], os.environ["HF_TOKEN"][:3])
print(*ray.get(there.remote()))
"""


def test_packaged_code_is_there_for_the_job_and_what_it_starts_but_no_secret(
    cluster: RayBackend, ray_bed: RayBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "helper.py").write_text("WORD = 'packaged'\n")
    (project / "task.py").write_text(TASK)
    monkeypatch.chdir(project)
    executor = cluster.executor(
        packager=run.PatternPackager(include_pattern="*.py", relative_path=str(project)),
        env_vars={"PLAIN": "plain", "HF_TOKEN": SECRET},
    )
    script = run.Script("task.py", entrypoint="python")
    with run.Experiment("on_ray") as experiment:
        experiment.add(script, executor=executor, name="task")
        experiment.run(detach=False, tail_logs=False)
    (job,) = experiment.jobs
    assert job.state is AppState.SUCCEEDED
    lines = commands.nemorun("experiment", "logs", "on_ray", cwd=tmp_path).out.splitlines()
    assert [line.split("task ")[-1] for line in lines][-2:] == [
        "packaged plain hf_",
        "packaged plain None",
    ]
    assert SECRET not in jobs_of(ray_bed)


def test_a_job_whose_answer_was_lost_is_not_submitted_again(
    cluster: RayBackend, ray_bed: RayBed
) -> None:
    ray_bed.relay.cut_after_posts = True
    app_id = cluster.schedule("echo once")
    assert not ray_bed.relay.cut_after_posts
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["once\n"]
    assert jobs_of(ray_bed).count(f'"submission_id": "{app_id.rpartition("___")[2]}"') == 1


LAUNCHER = """
import os
import nemo_run as run

executor = run.RayExecutor(
    address=os.environ["NEMO_RUN_TEST_RAY"], token="env:NEMO_RUN_TEST_RAY_TOKEN",
    packager=run.Packager(),
)
run.run(run.Script(inline="echo found"), executor=executor, name="killed", detach=True)
"""


def test_a_job_is_found_whose_launcher_was_killed_while_it_submitted(
    cluster: RayBackend, ray_bed: RayBed, tmp_path: Path
) -> None:
    script = tmp_path / "launch.py"
    script.write_text(textwrap.dedent(LAUNCHER))
    launcher = subprocess.Popen([sys.executable, str(script)], cwd=ROOT)
    ray_bed.relay.kill_after_post = launcher.pid
    assert launcher.wait(patience.seconds(60)) == -9
    (app_id,) = cluster.listed()
    assert cluster.wait(app_id).state is AppState.SUCCEEDED
    assert cluster.lines(app_id) == ["found\n"]
    assert commands.nemorun("experiment", "resume", "killed", cwd=tmp_path).code == 0
    assert list(cluster.listed()) == [app_id]
    assert jobs_of(ray_bed).count('"submission_id": "killed-') == 1


def test_a_wrong_token_is_refused_and_doctor_says_so(
    cluster: RayBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEMO_RUN_TEST_RAY_TOKEN", "wrong")
    with pytest.raises(AuthenticationError, match="Invalid authentication"):
        cluster.schedule("true")
    (tmp_path / "workspace.py").write_text(
        textwrap.dedent(f"""
        import nemo_run as run

        @run.cli.factory
        def there() -> run.Config[run.RayExecutor]:
            return run.Config(
                run.RayExecutor, address={os.environ["NEMO_RUN_TEST_RAY"]!r},
                token="env:NEMO_RUN_TEST_RAY_TOKEN",
            )
        """)
    )
    done = commands.nemorun("doctor", "there()", "--json", cwd=tmp_path)
    assert done.code == 1
    _, findings = done.json().values()
    assert "Invalid authentication" in json.dumps(findings)


def test_jobs_of_a_cluster_that_was_started_anew_are_lost_and_never_called_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_bed() as bed:
        for name, value in bed.environment.items():
            monkeypatch.setenv(name, value)
        cluster = RayBackend(tmp_path)
        app_id = cluster.schedule("echo up; sleep 600")
        cluster.wait_for_line(app_id, "up\n")
        cluster.wait_until_running(app_id)
        bed.stop()
        status = cluster.scheduler.status_of(app_id)
        assert (status.state, status.lost) == (AppState.RUNNING, False)
        assert "cannot be reached" in status.message
        bed.start_again()
        status = cluster.scheduler.status_of(app_id)
        assert (status.state, status.lost) == (AppState.UNKNOWN, True)
        assert "started anew" in status.message
