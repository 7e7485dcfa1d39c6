"""The emulated Lepton workspace, seen through the vendor's own client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from requests.exceptions import ChunkedEncodingError, ReadTimeout
from requests.exceptions import ConnectionError as RequestsConnectionError
from tests import patience
from tests.conftest import processes_with
from tests.emulators.faults import Fault
from tests.emulators.lepton import LeptonEmulator, Pace

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
APIClient: Any = import_module("leptonai.api.v2.client").APIClient


def types(name: str) -> Any:
    try:
        return import_module(f"leptonai.api.v2.types.{name}")
    except ImportError:
        return import_module(f"leptonai.api.v1.types.{name}")


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeptonEmulator]:
    emulator = LeptonEmulator(tmp_path / "lepton")
    for name, value in emulator.environment.items():
        monkeypatch.setenv(name, value)
    yield emulator
    emulator.close()


@pytest.fixture
def storage(emulator: LeptonEmulator) -> Any:
    """The vendor's storage API."""
    client = APIClient()
    if not hasattr(client, "storage"):
        pytest.skip("newer clients have no storage API; run with the older by `make older`")
    return client.storage


def create(script: str, name: str = "job", **spec: Any) -> Any:
    body = {
        "metadata": {"id": name},
        "spec": {
            "resource_shape": "cpu.small",
            "container": {"image": "some/image", "command": ["bash", "-c", script]},
            **spec,
        },
    }
    return APIClient().job.create(types("job").LeptonJob(**body))


def state(name: str = "job") -> str:
    return str(APIClient().job.get(name).status.state.name)


def wait(name: str = "job", *, until: Callable[[str], bool] | None = None) -> list[str]:
    """Return the states a job goes through, up to its end."""
    ended = until or (lambda state: state in {"Completed", "Failed", "Stopped", "Deleted"})
    seen: list[str] = []
    deadline = patience.deadline(60)
    while not seen or not ended(seen[-1]):
        assert time.monotonic() < deadline, seen
        now = state(name)
        if not seen or seen[-1] != now:
            seen.append(now)
    return seen


def stored(name: str, replica: str) -> list[str]:
    answer = APIClient().log.get_log(name_or_job=name, replica=replica, start=1, end=time.time_ns())
    (stream,) = answer["data"]["result"]
    return [text for _, text in reversed(stream["values"])]


class TestJobs:
    def test_a_job_goes_through_the_states_of_a_real_one(self, emulator: LeptonEmulator) -> None:
        create("exit 0")
        seen = wait()
        assert seen[-1] == "Completed"
        order = ["Queueing", "Starting", "Running", "Completed"]
        assert seen == [name for name in order if name in seen]

    def test_a_job_that_fails_has_failed(self, emulator: LeptonEmulator) -> None:
        create("exit 3")
        assert wait()[-1] == "Failed"
        assert APIClient().job.get("job").status.failed == 1

    def test_a_job_is_started_again_as_often_as_it_says(self, emulator: LeptonEmulator) -> None:
        emulator.pace = Pace(retry_s=1)
        create("exit 3", max_job_failure_retry=2)
        seen = wait()
        assert seen[-1] == "Failed"
        assert "PendingRetry" in seen
        job = APIClient().job.get("job")
        assert len(job.status.job_history) == 2
        assert len(APIClient().job.get_replicas("job")) == 3

    def test_jobs_wait_in_the_queue_while_held(self, emulator: LeptonEmulator) -> None:
        with emulator.held():
            create("true")
            time.sleep(0.2)
            assert state() == "Queueing"
        assert wait()[-1] == "Completed"

    def test_a_job_is_ready_some_time_after_it_is_active(self, emulator: LeptonEmulator) -> None:
        emulator.pace = Pace(readying_s=2)
        create("sleep 5", completions=2, parallelism=2)
        wait(until=lambda state: state == "Running")
        numbers = set()
        while state() == "Running":
            status = APIClient().job.get("job").status
            numbers.add((status.ready, status.active))
        assert (0, 2) in numbers
        assert (2, 2) in numbers

    def test_a_stopped_job_stays_and_a_deleted_one_goes_to_the_archive(
        self, emulator: LeptonEmulator
    ) -> None:
        create("sleep 60", "stopped")
        create("sleep 60", "deleted")
        api = APIClient().job
        wait("deleted", until=lambda state: state == "Running")
        api.update("stopped", spec={"spec": {"stopped": True}})
        api.delete("deleted")
        assert wait("stopped")[-1] == "Stopped"
        deleted = emulator.jobs["deleted"]  # older clients cannot ask for one that is archived
        deleted.thread.join(patience.seconds(20))
        assert deleted.state == "Deleted"
        assert [job.metadata.id_ for job in api.list_all()] == ["stopped"]
        everything = api.list_all(job_query_mode="alive_and_archive")
        assert {job.metadata.id_ for job in everything} == {"stopped", "deleted"}

    def test_an_image_that_is_not_there_is_an_event(self, emulator: LeptonEmulator) -> None:
        create("true", container={"image": "missing/image", "command": ["true"]})
        deadline = patience.deadline(10)
        while not (events := APIClient().job.get_events("job")) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert [event.reason for event in events] == ["ImagePullBackOff"]
        assert state() == "Starting"

    def test_one_name_is_one_job(self, emulator: LeptonEmulator) -> None:
        create("true")
        with pytest.raises(RuntimeError, match="409"):
            create("true")

    def test_a_private_job_is_for_its_owner_only(self, emulator: LeptonEmulator) -> None:
        job = types("job").LeptonJob(
            metadata={"id": "secret", "visibility": "private"},
            spec={"resource_shape": "cpu.small", "container": {"command": ["true"]}},
        )
        APIClient().job.create(job)
        emulator.users["others-token"] = "other@example.com"
        other = APIClient(auth_token="others-token").job
        assert other.list_all(job_query_mode="alive_and_archive") == []
        with pytest.raises(RuntimeError, match="404"):
            other.get("secret")


class TestContainers:
    def test_environment_secrets_and_mounts_are_there(self, emulator: LeptonEmulator) -> None:
        item = types("secret").SecretItem(name="token", value="hidden")
        APIClient().secret.create([item])
        (emulator.volume("node-nfs:data") / "sets").mkdir()
        (emulator.volume("node-nfs:data") / "sets" / "file").write_text("content\n")
        create(
            'echo "$PLAIN $SECRET $LEPTON_JOB_NAME"; cat /data/file',
            envs=[
                {"name": "PLAIN", "value": "a b"},
                {"name": "SECRET", "value_from": {"secret_name_ref": "token"}},
            ],
            mounts=[{"path": "/sets", "mount_path": "/data", "from": "node-nfs:data"}],
        )
        wait()
        (replica,) = APIClient().job.get_replicas("job")
        assert stored("job", replica.metadata.id_) == ["a b hidden job", "content"]
        assert [secret.value for secret in APIClient().secret.list_all()] == [None]

    def test_workers_know_their_number_and_find_the_first(self, emulator: LeptonEmulator) -> None:
        create(
            "echo $LEPTON_JOB_WORKER_INDEX of $LEPTON_JOB_TOTAL_WORKERS;"
            " getent hosts $LEPTON_JOB_NAME-0.$LEPTON_SUBDOMAIN > /dev/null && echo found",
            completions=2,
            parallelism=2,
        )
        wait()
        replicas = APIClient().job.get_replicas("job")
        assert [stored("job", replica.metadata.id_) for replica in replicas] == [
            ["0 of 2", "found"],
            ["1 of 2", "found"],
        ]

    def test_a_log_is_streamed_while_the_container_lives(self, emulator: LeptonEmulator) -> None:
        create("for i in 1 2 3; do echo $i; sleep 1; done")
        wait(until=lambda state: state == "Running")
        (replica,) = APIClient().job.get_replicas("job")
        chunks = APIClient().job.get_log("job", replica)
        assert "".join(chunks) == "1\n2\n3\n"

    def test_the_store_is_as_late_as_it_is_told_to_be(self, emulator: LeptonEmulator) -> None:
        emulator.log_lag_s = 60
        create("echo line")
        wait()
        (replica,) = APIClient().job.get_replicas("job")
        assert stored("job", replica.metadata.id_) == []
        emulator.log_lag_s = 0
        assert stored("job", replica.metadata.id_) == ["line"]


class TestGroups:
    def test_there_are_node_groups_with_nodes(self, emulator: LeptonEmulator) -> None:
        (group,) = APIClient().nodegroup.list_all()
        assert group.metadata.name == "my-group"
        nodes = APIClient().nodegroup.list_nodes(group)
        assert [node.metadata.id_ for node in nodes] == ["node-a", "node-b"]

    def test_a_group_that_is_not_there_is_refused(self, emulator: LeptonEmulator) -> None:
        with pytest.raises(RuntimeError, match="400"):
            create("true", affinity={"allowed_dedicated_node_groups": ["nowhere"]})


class TestSecrets:
    def test_a_secret_can_be_made_and_deleted_and_is_not_shown(
        self, emulator: LeptonEmulator
    ) -> None:
        api = APIClient().secret
        api.create([types("secret").SecretItem(name="token", value="hidden")])
        assert [(item.name, item.value) for item in api.list_all()] == [("token", None)]
        api.delete("token")
        assert api.list_all() == []

    def test_a_job_with_a_secret_that_is_not_there_is_refused(
        self, emulator: LeptonEmulator
    ) -> None:
        with pytest.raises(RuntimeError, match="no-such-secret"):
            create(
                "true", envs=[{"name": "A", "value_from": {"secret_name_ref": "no-such-secret"}}]
            )


class TestStorage:
    def test_files_can_be_put_listed_read_and_deleted(self, storage: Any, tmp_path: Path) -> None:
        content = b"\r\n--\0" + bytes(range(256)) * 40
        (tmp_path / "here").write_bytes(content)
        storage.create_dir("/models")
        storage.create_file(str(tmp_path / "here"), "/models/a b.bin")
        assert [(entry.type, entry.name) for entry in storage.get_dir("/")] == [("dir", "models")]
        assert storage.get_file_type("/models/a b.bin") == "file"
        assert storage.check_exists("/models/a b.bin")
        assert not storage.check_exists("/models/other")
        storage.get_file("/models/a b.bin", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == content
        assert storage.total_file_system_usage_bytes().status.total_usage_bytes == len(content)
        assert [system.metadata.name for system in storage.list_storage()] == ["default"]
        with pytest.raises(RuntimeError, match="not empty"):
            storage.delete_file_or_dir("/models")
        storage.delete_file_or_dir("/models", removeall=True)
        assert storage.get_dir("/") == []

    def test_it_reaches_no_volume_of_a_node_group(
        self, storage: Any, emulator: LeptonEmulator
    ) -> None:
        (emulator.volume("node-nfs:data") / "file").touch()
        assert storage.get_dir("/") == []
        with pytest.raises(RuntimeError, match="404"):
            storage.get_dir("/", "node-nfs:data")


class TestTrouble:
    @pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
    def test_it_answers_as_it_is_told(self, emulator: LeptonEmulator, status: int) -> None:
        create("true")
        with (
            emulator.faults.on(Fault(method="GET", path="/jobs/job", status=status)),
            pytest.raises(RuntimeError, match=str(status)),
        ):
            state()

    def test_it_answers_slowly_as_it_is_told(self, emulator: LeptonEmulator) -> None:
        create("true")
        client = APIClient()
        client._timeout = 0.2
        emulator.faults.add(Fault(method="GET", path="/jobs/job", delay_s=60))
        with pytest.raises(ReadTimeout):
            client.job.get("job")
        emulator.faults.clear()
        assert wait()[-1] == "Completed"

    def test_it_cuts_a_stream_as_it_is_told(self, emulator: LeptonEmulator) -> None:
        create("seq 6; sleep 60")
        wait(until=lambda state: state == "Running")
        (replica,) = APIClient().job.get_replicas("job")
        emulator.faults.add(Fault(path="/log$", cut_after=5))
        got: list[str] = []
        with pytest.raises(ChunkedEncodingError):
            got.extend(APIClient().job.get_log("job", replica))
        assert "".join(got) == "1\n2\n3"

    def test_it_can_be_away_and_come_back_with_its_jobs(self, emulator: LeptonEmulator) -> None:
        create("sleep 60")
        with emulator.unreachable(), pytest.raises(RequestsConnectionError):
            state()
        assert wait(until=lambda state: state == "Running")[-1] == "Running"

    def test_a_token_it_does_not_know_is_refused(self, emulator: LeptonEmulator) -> None:
        with pytest.raises(RuntimeError, match="401"):
            APIClient(auth_token="expired").job.list_all()

    def test_a_description_that_is_too_large_is_refused(self, emulator: LeptonEmulator) -> None:
        with pytest.raises(RuntimeError, match="413"):
            create("true", envs=[{"name": "A", "value": "x" * 2_000_000}])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_started_by_hand_and_ends_with_its_jobs(
    tmp_path: Path, number: signal.Signals
) -> None:
    name = f"by-hand-{os.getpid()}-{number.value}"
    start = [sys.executable, "-m", "tests.emulators.lepton", "--directory", str(tmp_path)]
    process = subprocess.Popen(
        # As what a script starts in its background has it.
        ["bash", "-c", 'trap "" INT; exec "$@"', "bash", *start],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        exports = _exports(process)
        code = """
import sys
from tests.emulators.test_lepton import create, wait
create("sleep 600", sys.argv[1])
print(wait(sys.argv[1], until=lambda state: state == "Running")[-1])
"""
        done = subprocess.run(
            [sys.executable, "-c", code, name],
            cwd=ROOT,
            env={**os.environ, **exports},
            capture_output=True,
            text=True,
            check=True,
        )
        process.send_signal(number)
        assert process.wait(patience.seconds(60)) == 0
    finally:
        process.kill()
        process.communicate()
    assert done.stdout == "Running\n"
    assert processes_with(f"LEPTON_JOB_NAME={name}") == []


def _exports(process: subprocess.Popen[str]) -> dict[str, str]:
    """Return the variables that it tells to set, once it is up."""
    assert process.stdout is not None
    exports = {}
    for line in process.stdout:
        if line.startswith("export "):
            variable, _, value = line.removeprefix("export ").strip().partition("=")
            exports[variable] = value
        elif line.startswith("# Volumes"):
            return exports
    raise AssertionError(f"it has ended with {process.wait()}")
