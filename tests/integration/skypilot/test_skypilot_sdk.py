"""What we expect of SkyPilot's SDK, of the oldest and of the newest release that we support.

Nothing is started here: SkyPilot is imported with an empty home directory, in another process.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from nemo_run.run.torchx_backend.schedulers import skypilot, skypilot_jobs

pytestmark = [pytest.mark.slow, pytest.mark.skypilot]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the functions below say in an interpreter that has SkyPilot, by their names."""
    functions = (words, tables, parameters, task, refused, raised)
    code = ["from __future__ import annotations", "import json"]
    code += [inspect.getsource(function) for function in functions]
    code += [f"print(json.dumps([{', '.join(f'{f.__name__}()' for f in functions)}]))"]
    home = tmp_path_factory.mktemp("home")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join(code)],
        env={**os.environ, "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return dict(zip((function.__name__ for function in functions), found, strict=True))


def words() -> dict[str, list[str]]:
    import sky
    from sky.server.requests.requests import RequestStatus

    return {
        "jobs": [word.value for word in sky.JobStatus],
        "managed": [word.value for word in sky.jobs.ManagedJobStatus],
        "clusters": [word.value for word in sky.ClusterStatus],
        "requests": [word.value for word in RequestStatus],
    }


def test_every_word_about_a_job_is_known(answers: dict[str, Any]) -> None:
    found = answers["words"]
    assert set(found["jobs"]) <= skypilot.STATES.keys()
    assert set(found["managed"]) <= skypilot_jobs.STATES.keys()
    assert set(found["clusters"]) <= skypilot.CLUSTERS.keys()
    ended = {"SUCCEEDED", "FAILED", "CANCELLED"}
    live = {"PENDING", "WAITING", "RUNNING"}
    assert set(found["requests"]) <= live | ended


def tables() -> list[dict[str, str]]:
    from nemo_run.run.torchx_backend.schedulers import skypilot, skypilot_jobs

    return [
        {word.value: state.name for word, state in module.SKYPILOT_STATES.items()}
        for module in (skypilot, skypilot_jobs)
    ]


def test_the_public_tables_are_made_of_its_words(answers: dict[str, Any]) -> None:
    clusters, managed = answers["tables"]
    known = answers["words"]
    assert clusters == {word: skypilot.STATES[word].name for word in known["jobs"]}
    assert managed == {word: skypilot_jobs.STATES[word].name for word in known["managed"]}


def parameters() -> dict[str, list[str]]:
    import inspect

    import sky

    calls = {
        "launch": sky.launch,
        "queue": sky.queue,
        "status": sky.status,
        "cancel": sky.cancel,
        "down": sky.down,
        "tail_logs": sky.tail_logs,
        "download_logs": sky.download_logs,
        "api_status": sky.api_status,
        "api_cancel": sky.api_cancel,
        "api_info": sky.api_info,
        "optimize": sky.optimize,
        "stream_and_get": sky.stream_and_get,
        "jobs.launch": sky.jobs.launch,
        "jobs.queue": getattr(sky.jobs, "queue_v2", None) or sky.jobs.queue,
        "jobs.cancel": sky.jobs.cancel,
        "jobs.tail_logs": sky.jobs.tail_logs,
        "jobs.download_logs": sky.jobs.download_logs,
    }
    return {name: list(inspect.signature(call).parameters) for name, call in calls.items()}


USED = {
    "launch": {
        "task",
        "cluster_name",
        "retry_until_up",
        "idle_minutes_to_autostop",
        "down",
        "dryrun",
        "fast",
    },
    "queue": {"cluster_name", "all_users"},
    "status": {"cluster_names"},
    "cancel": {"cluster_name", "job_ids"},
    "down": {"cluster_name"},
    "tail_logs": {"cluster_name", "job_id", "follow", "preload_content"},
    "download_logs": {"cluster_name", "job_ids"},
    "api_status": {"request_ids", "all_status"},
    "api_cancel": {"request_ids", "silent"},
    "optimize": {"dag"},
    "stream_and_get": {"request_id", "output_stream"},
    "jobs.launch": {"task", "name"},
    "jobs.queue": {"refresh", "all_users", "job_ids"},
    "jobs.cancel": {"job_ids"},
    "jobs.tail_logs": {"job_id", "follow", "output_stream"},
    "jobs.download_logs": {"name", "job_id", "refresh", "controller"},
}


def test_its_calls_take_what_we_give_them(answers: dict[str, Any]) -> None:
    found = answers["parameters"]
    missing = {name: used - set(found[name]) for name, used in USED.items()}
    assert {name: names for name, names in missing.items() if names} == {}


def task() -> dict[str, Any]:
    import copy

    import nemo_run as run
    from nemo_run._backends.skypilot.task import shown

    executor = run.SkypilotExecutor(
        cpus=4,
        memory=8,
        use_spot=[True, False],
        gpus="H100",
        gpus_per_node=8,
        num_nodes=2,
        setup="pip list",
        file_mounts={"/data/list": "/etc/hostname"},
        storage_mounts={"/bucket": {"source": "/etc", "name": "a-bucket", "mode": "MOUNT"}},
        cluster_config_overrides={"docker": {"run_options": ["-v /a:/b"]}},
        env_vars={"HF_TOKEN": "hf-planted", "A": "1"},
        job_dir="/tmp",
    )
    before = copy.deepcopy(executor)
    made = executor.to_task("train", ["python", "train.py"], {"B": "2"})
    assert executor == before
    return {
        "shown": shown(made),
        "plain": shown(run.SkypilotExecutor(job_dir="/tmp").to_task("train", ["true"])),
        "logins": shown(
            run.SkypilotExecutor(
                job_dir="/tmp",
                setup="pip install git+https://me:planted@host/a",
                file_mounts={"/data": "https://me:planted@host/data"},
            ).to_task("train", ["curl", "https://me:planted@host/b"])
        ),
        "image": sorted(
            run.SkypilotExecutor(
                job_dir="/tmp",
                env_vars={f"SKYPILOT_DOCKER_{n}": "x" for n in ("USERNAME", "PASSWORD", "SERVER")},
            )
            .to_task("train", ["true"])
            .secrets
        ),
        "choices": len(made.resources),
        "secret": made.secrets["HF_TOKEN"].get_secret_value()
        if hasattr(made.secrets["HF_TOKEN"], "get_secret_value")
        else made.secrets["HF_TOKEN"],
    }


def test_a_task_has_all_that_was_asked_for_and_shows_no_secret(answers: dict[str, Any]) -> None:
    found = answers["task"]
    config = found["shown"]
    assert "hf-planted" not in json.dumps(config)
    assert found["secret"] == "hf-planted"
    assert found["choices"] == 2
    assert config["num_nodes"] == 2
    assert config["setup"].endswith('/code" || exit 1\npip list\n')
    assert config["envs"] == {"A": "1", "B": "2"}
    bucket = config["file_mounts"].pop("/bucket")
    assert (bucket["source"], bucket["name"], bucket["mode"]) == ("/etc", "a-bucket", "MOUNT")
    assert config["file_mounts"] == {"/data/list": "/etc/hostname", "~/.nemo_run/train": "/tmp"}
    assert "python train.py" in config["run"]


def test_a_task_shows_nobody_who_logs_in_to_a_url(answers: dict[str, Any]) -> None:
    config = answers["task"]["logins"]
    assert "planted" not in json.dumps(config)
    assert "pip install git+https://***@host/a" in config["setup"]
    assert "https://***@host/b" in config["run"]
    assert config["file_mounts"]["/data"] == "https://***@host/data"


def test_who_logs_in_for_an_image_is_handed_over_whole(answers: dict[str, Any]) -> None:
    names = ("PASSWORD", "SERVER", "USERNAME")
    assert answers["task"]["image"] == [f"SKYPILOT_DOCKER_{name}" for name in names]


def test_a_task_without_setup_has_none_that_nodes_would_run(answers: dict[str, Any]) -> None:
    assert "setup" not in answers["task"]["plain"]


def refused() -> list[str]:
    import nemo_run as run
    from nemo_run.exceptions import ConfigError

    said = []
    for settings in (
        {"infra": "no-such-cloud"},
        {"storage_mounts": {"/bucket": {"sauce": "s3://bucket"}}},
        {"storage_mounts": {"/bucket": {"source": "s3://bucket", "mode": "GUESS"}}},
        {"env_vars": {"SKYPILOT_DOCKER_USERNAME": "me"}},
        {"storage_mounts": {"/bucket": "s3://bucket"}},
    ):
        try:
            run.SkypilotExecutor(job_dir="/tmp", **settings).to_task("train", ["true"])
        except ConfigError as err:
            said.append(str(err))
    return said


def test_what_skypilot_does_not_know_is_refused_before_anything_is_submitted(
    answers: dict[str, Any],
) -> None:
    cloud, *storage, image, text = answers["refused"]
    assert "no-such-cloud" in cloud.lower()
    for said in storage:
        assert said.startswith("SkyPilot does not accept storage_mounts['/bucket']: ")
        assert said.endswith(". Write it as in a task of SkyPilot's.")
    assert "sauce" in storage[0]
    assert "GUESS" in storage[1]
    assert "SKYPILOT_DOCKER_PASSWORD" in image
    assert image.endswith(". Change the setting that it names.")
    assert text.startswith("storage_mounts['/bucket'] is 's3://bucket', not settings of a storage.")


def raised() -> list[str]:
    from nemo_run._backends.skypilot.sdk import asking
    from nemo_run.exceptions import BackendError, BackendUnavailableError

    said = []
    away = RuntimeError("Failed to start SkyPilot API server at http://127.0.0.1:46580")
    odd = KeyError("an answer of another shape")
    defect = ZeroDivisionError("a defect")
    for err in (Exception("no zip file"), RuntimeError("no cluster"), away, odd, defect):
        try:
            with asking("download logs"):
                raise err
        except BackendUnavailableError:
            said.append("away")
        except BackendError as ours:
            said.append(ours.detail)
        except ZeroDivisionError:
            said.append("a defect")
    return said


def test_what_it_raises_and_odd_answers_are_told_from_defects(answers: dict[str, Any]) -> None:
    assert answers["raised"] == ["no zip file", "no cluster", "away", "away", "a defect"]
