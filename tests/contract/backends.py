"""What the contract suite needs of a backend.

A backend joins by a class like `LocalCluster` and its line in `BACKENDS`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import entry_points
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests import patience
from tests.emulators.kubernetes import KubernetesEmulator
from tests.emulators.lepton import LeptonEmulator
from tests.emulators.runai import CLIENT_ID, CLIENT_SECRET, RunaiEmulator
from torchx.specs import AppDef, AppState, Role, is_terminal

import nemo_run as run
from nemo_run.core.execution.base import Executor
from nemo_run.run.torchx_backend.packaging import package

if TYPE_CHECKING:
    from tests.integration.docker.engine import DockerEngine
    from tests.integration.slurm.cluster import SlurmCluster

Task = str | Sequence[str]
"""A shell script, or a program with its arguments."""

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(str(Path(file).parents[1]) for file in (run.__file__, pytest.__file__))
"""Where the package that is tested is, and what it needs."""


@dataclass(frozen=True)
class End:
    """How a job ended, or how far it is."""

    state: AppState
    exit_code: int | None
    message: str
    restarts: int


class Cluster(Protocol):
    """A working backend, small enough to be started for one test.

    ``scratch`` is a directory that the test and its jobs both see. ``patience`` says how many times
    longer than a local one a job may take to get anywhere. ``outage`` makes the backend
    unreachable while entered; it is None where that cannot happen.
    """

    name: str
    scratch: Path
    patience: float
    asks_first: bool
    hides_variables: bool
    ending_s: float
    keeps_all_tries: bool
    returns_end_lines: bool
    jobs_of_a_process: int
    outage: Callable[[], AbstractContextManager[None]] | None

    def have_late_logs(self, lag_s: float) -> None: ...
    @property
    def scheduler(self) -> Any: ...
    def executor(self, **settings: Any) -> Executor: ...
    def assigned(self, name: str, **settings: Any) -> Executor: ...
    def app(
        self,
        task: Task,
        *,
        name: str = "job",
        env: Mapping[str, str] | None = None,
        executor: Executor,
    ) -> AppDef: ...
    def plan(self, task: Task, **settings: Any) -> Any: ...
    def schedule(self, task: Task, **settings: Any) -> str: ...
    def status(self, app_id: str) -> End | None: ...
    def wait(self, app_id: str, timeout_s: float = 30) -> End: ...
    def wait_for_line(self, app_id: str, line: str, timeout_s: float = 30) -> None: ...
    def wait_until_running(self, app_id: str, timeout_s: float = 30) -> None: ...
    def lines(self, app_id: str, **query: Any) -> list[str]: ...
    def cancel(self, app_id: str) -> None: ...
    def listed(self) -> dict[str, AppState]: ...
    def in_new_process(self) -> Elsewhere: ...
    def with_nemo_run(self, **settings: Any) -> Executor: ...


class SchedulerCluster:
    """Everything but `executor`, by the scheduler that the executor names."""

    name: str
    patience: float = 1.0
    poll_s: float = 0.02
    outage: Callable[[], AbstractContextManager[None]] | None = None
    asks_first: bool = True
    """Whether a job that is cancelled is asked to end before it is made to."""
    hides_variables: bool = True
    """Whether the engine keeps the variables of a job out of the arguments of processes."""
    ending_s: float = 0
    """How long processes of a job may still be there when it is said to have been cancelled."""
    keeps_all_tries: bool = True
    """Whether the log of a job that was started again has what it said before."""
    returns_end_lines: bool = False
    """Whether the backend keeps a carriage return of a log as the end of a line."""
    fixture: str = ""
    """Of pytest's, which starts what the backend needs."""
    jobs_of_a_process: int = 3
    """How many jobs each of eight processes schedules that do so at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scratch = root / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)

    def executor(self, **settings: Any) -> Executor:
        raise NotImplementedError

    def with_nemo_run(self, **settings: Any) -> Executor:
        """Return an executor whose jobs can import the package that is tested."""
        executor = self.executor(**settings)
        executor.env_vars["PYTHONPATH"] = os.pathsep.join(PACKAGES)
        return executor

    @property
    def scheduler(self) -> Any:
        """A new scheduler each time, as a new process would have it."""
        (point,) = entry_points(group="torchx.schedulers", name=type(self.executor()).SCHEDULER)
        return point.load()("nemo_run")

    def assigned(self, name: str, **settings: Any) -> Executor:
        """Return an executor that knows which job it belongs to."""
        executor = self.executor(**settings)
        directory = self.root / "experiments" / "contract"
        executor.assign("contract_1", str(directory), name, name)
        executor.create_job_dir()
        return executor

    def app(
        self,
        task: Task,
        *,
        name: str = "job",
        env: Mapping[str, str] | None = None,
        executor: Executor,
    ) -> AppDef:
        if isinstance(task, str):
            script = run.Script(inline=task, env=dict(env or {}))
            return package(name, script, executor, serialize_to_file=True)
        program, *args = task
        role = Role(
            name=name,
            image="",
            entrypoint=program,
            args=args,
            env={**executor.env_vars, **(env or {})},
            max_retries=executor.retries,
        )
        return AppDef(name=name, roles=[role])

    def plan(
        self,
        task: Task,
        *,
        name: str = "job",
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> Any:
        executor = self.assigned(name, **settings)
        app = self.app(task, name=name, env=env, executor=executor)
        return self.scheduler.submit_dryrun(app, executor)

    def schedule(self, task: Task, **settings: Any) -> str:
        app_id: str = self.scheduler.schedule(self.plan(task, **settings))
        return app_id

    def schedule_many(self, task: Task, names: Sequence[str]) -> list[str]:
        return [self.schedule(task, name=name) for name in names]

    def schedule_in_processes(self, task: Task, names: Sequence[Sequence[str]]) -> list[str]:
        """Schedule jobs in as many processes as there are lists of names, all at once."""
        context = get_context("fork")
        with context.Pool(len(names)) as pool:
            parts = pool.starmap(self.schedule_many, [(task, part) for part in names], chunksize=1)
        return [app_id for part in parts for app_id in part]

    def status(self, app_id: str) -> End | None:
        status = self.scheduler.status_of(app_id)
        if status is None:
            return None
        return End(status.state, status.exit_code, status.message, status.restarts)

    def wait(self, app_id: str, timeout_s: float = 30) -> End:
        deadline = patience.deadline(timeout_s * self.patience)
        while True:
            status = self.status(app_id)
            assert status is not None, f"{app_id} is not known"
            if is_terminal(status.state):
                return status
            if time.monotonic() > deadline:
                told = self.engine_says(app_id)
                raise TimeoutError(f"{app_id} is {status.state.name} after {timeout_s} s{told}")
            time.sleep(self.poll_s)

    def engine_says(self, app_id: str) -> str:
        """Return what the engine itself says of a job, for whoever reads why a test failed."""
        return ""

    def wait_for_line(self, app_id: str, line: str, timeout_s: float = 30) -> None:
        deadline = patience.deadline(timeout_s * self.patience)
        while True:
            described = self.scheduler.describe(app_id)
            (role,) = described.roles
            if line in self.scheduler.log_iter(app_id, role.name):
                return
            if is_terminal(described.state) or time.monotonic() > deadline:
                raise TimeoutError(f"{app_id} is {described.state} and does not say {line!r}")
            time.sleep(self.poll_s)

    def wait_until_running(self, app_id: str, timeout_s: float = 30) -> None:
        """A backend may take a moment to hear of a job whose lines can be read already."""
        deadline = patience.deadline(timeout_s * self.patience)
        while (described := self.scheduler.describe(app_id)).state is not AppState.RUNNING:
            if is_terminal(described.state) or time.monotonic() > deadline:
                raise TimeoutError(f"{app_id} is {described.state} instead of running")
            time.sleep(self.poll_s)

    def lines(self, app_id: str, **query: Any) -> list[str]:
        """Return the log lines of a job's only role; ``query`` as for ``log_iter``."""
        (role,) = self.scheduler.describe(app_id).roles
        return list(self.scheduler.log_iter(app_id, role.name, **query))

    def cancel(self, app_id: str) -> None:
        self.scheduler.cancel(app_id)

    def listed(self) -> dict[str, AppState]:
        return {entry.app_id: entry.state for entry in self.scheduler.list()}

    def seen(self, app_id: str) -> dict[str, Any]:
        """Wait for a job and return all that can be found out about it, as plain values."""
        end = self.wait(app_id)
        return {
            "state": end.state.name,
            "exit_code": end.exit_code,
            "lines": self.lines(app_id),
            "listed": list(self.listed()),
        }

    def in_new_process(self) -> Elsewhere:
        return Elsewhere(self.name, self.root)

    def have_late_logs(self, lag_s: float) -> None:
        """Let lines be readable later than they are written, where an emulator can do that."""
        emulator = getattr(self, "emulator", None)
        if emulator is not None:
            emulator.log_lag_s = lag_s

    def close(self) -> None:
        """Stop what was started for this backend."""


class LocalCluster(SchedulerCluster):
    name = "local"

    def executor(self, **settings: Any) -> Executor:
        return run.LocalExecutor(**settings)


class SlurmOverSsh(SchedulerCluster):
    """A Slurm cluster that the fixture has started and put on the ``PATH`` as host ``loop``."""

    name = "slurm"
    fixture = "slurm_with_accounting"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._remote = root / "cluster"
        self.outage = self._outage

    def executor(self, **settings: Any) -> Executor:
        settings = {"mem": "100M", "time": "00:10:00", "packager": run.Packager(), **settings}
        tunnel = run.SSHTunnel(host="loop", user="root", job_dir=str(self._remote))
        return run.SlurmExecutor(account="root", **{"tunnel": tunnel, **settings})

    def engine_says(self, app_id: str) -> str:
        return _running_slurm(Path(os.environ["NEMO_RUN_TEST_SLURM"])).told(app_id)

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        with _running_slurm(Path(os.environ["NEMO_RUN_TEST_SLURM"])).sshd.down():
            yield


@functools.cache  # a server that is started again belongs to this process, and to nobody else
def _running_slurm(directory: Path) -> SlurmCluster:
    from tests.integration.slurm.cluster import SlurmCluster

    return SlurmCluster.at(directory)


class SlurmWithoutAccounting(SlurmOverSsh):
    name = "slurm-without-accounting"
    fixture = "slurm_without_accounting"


class LeptonCluster(SchedulerCluster):
    """An emulated workspace; jobs see its volumes and neither our home nor our experiments."""

    name = "lepton"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.emulator: LeptonEmulator | None = None
        self._before = dict(os.environ)
        found = root / "lepton" / "environment.json"
        if not found.exists():
            found.parent.mkdir(parents=True)
            hidden = (root / "experiments", Path(os.environ["NEMORUN_HOME"]))
            self.emulator = LeptonEmulator(found.parent, hidden=hidden)
            self.outage = self.emulator.unreachable
            found.write_text(json.dumps(self.emulator.environment))
        os.environ.update(json.loads(found.read_text()))

    def executor(self, **settings: Any) -> Executor:
        return run.LeptonExecutor(
            container_image="some/image",
            nemo_run_dir="/volume/nemo_run",
            resource_shape="cpu.small",
            node_group="my-group",
            mounts=[{"path": "/", "mount_path": "/volume", "from": "node-nfs:shared"}],
            **settings,
        )

    def close(self) -> None:
        if self.emulator is not None:
            self.emulator.close()
            os.environ.clear()
            os.environ.update(self._before)


class DGXCloudCluster(SchedulerCluster):
    """An emulated Run:ai; jobs see its volumes and neither our home nor our experiments."""

    name = "dgx_cloud"
    patience = 3.0  # a job takes some dozen answers of a server that runs beside it

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.emulator: RunaiEmulator | None = None
        self._before = dict(os.environ)
        found = root / "runai" / "settings.json"
        if not found.exists():
            found.parent.mkdir(parents=True)
            hidden = (root / "experiments", Path(os.environ["NEMORUN_HOME"]))
            self.emulator = RunaiEmulator(found.parent, hidden=hidden)
            self.outage = self.emulator.unreachable
            urls = {
                "base_url": self.emulator.base_url,
                "kube_apiserver_url": self.emulator.kube_url,
            }
            found.write_text(json.dumps(urls))
        self._urls = json.loads(found.read_text())
        os.environ["RUNAI_SECRET"] = CLIENT_SECRET

    def executor(self, **settings: Any) -> Executor:
        volume = {"name": "work", "path": "/workspace", "existingPvc": True, "claimName": "work"}
        defaults = {
            **self._urls,
            "client_id": CLIENT_ID,
            "client_secret": "env:RUNAI_SECRET",
            "project_name": "team-a",
            "container_image": "some/image:1",
            "pvcs": [volume],
            "pvc_nemo_run_dir": "/workspace/nemo_run",
        }
        return run.DGXCloudExecutor(**{**defaults, **settings})

    def close(self) -> None:
        if self.emulator is not None:
            self.emulator.close()
            os.environ.clear()
            os.environ.update(self._before)


class DockerCluster(SchedulerCluster):
    """A real engine, which the fixture has started; containers share this machine's processes."""

    name = "docker"
    fixture = "docker_engine"
    patience = 3.0

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.outage = self._outage

    def executor(self, **settings: Any) -> Executor:
        from tests.integration.docker.images import PYTHON

        defaults = {
            "container_image": PYTHON,
            "pull": "missing",
            "packager": run.Packager(),
            "volumes": [f"{self.scratch}:{self.scratch}"],
            # So that the numbers of processes, which jobs print, are those that tests know.
            "additional_kwargs": {"pid_mode": "host"},
        }
        return run.DockerExecutor(**{**defaults, **settings})

    def with_nemo_run(self, **settings: Any) -> Executor:
        volumes = [f"{path}:{path}:ro" for path in PACKAGES]
        return super().with_nemo_run(**settings, volumes=volumes)

    @property
    def _engine(self) -> DockerEngine:
        from tests.integration.docker.engine import DockerEngine

        return DockerEngine.at(Path(os.environ["DOCKER_HOST"].removeprefix("unix://")).parent)

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        with self._engine.down():
            yield

    def close(self) -> None:
        self._engine.clear()


class KubeflowCluster(SchedulerCluster):
    """An emulated Kubernetes; jobs see its volumes and neither our home nor our experiments."""

    name = "kubeflow"
    patience = 3.0  # a job takes some dozen answers of a server that runs beside it
    volume: dict[str, Any] = {"workdir_pvc": "work", "workdir_pvc_path": "/workspace"}

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.emulator: KubernetesEmulator | None = None
        self._before = dict(os.environ)
        directory = root / "kubernetes"
        if not directory.exists():
            hidden = (root / "experiments", Path(os.environ["NEMORUN_HOME"]))
            self.emulator = KubernetesEmulator(directory, hidden=hidden)
            self.outage = self.emulator.unreachable
        os.environ["KUBECONFIG"] = str(directory / "kubeconfig")

    def executor(self, **settings: Any) -> Executor:
        return run.KubeflowExecutor(**{"image": "some/image:1", **self.volume, **settings})

    def told(self, app_id: str) -> list[str]:
        """Return state and message of a job, as plain values."""
        status = self.status(app_id)
        assert status is not None
        return [status.state.name, status.message]

    def close(self) -> None:
        if self.emulator is not None:
            self.emulator.close()
            os.environ.clear()
            os.environ.update(self._before)


class KubeflowWithoutVolume(KubeflowCluster):
    """The same, but a job has no files and no log that outlive its pods."""

    name = "kubeflow-without-volume"
    volume: dict[str, Any] = {}


class RayBackend(SchedulerCluster):
    """A real Ray cluster of one node, which the fixture has started; a relay leads to it."""

    name = "ray"
    fixture = "ray_bed"
    # Each job is an actor of Ray's, a Python process that takes seconds to come up.
    patience = 4.0
    poll_s = 0.1
    ending_s = 5.0  # Ray says that a job has stopped when its processes were sent the last signal
    jobs_of_a_process = 1

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.outage = self._outage

    def executor(self, **settings: Any) -> Executor:
        defaults = {
            "address": os.environ["NEMO_RUN_TEST_RAY"],
            "token": "env:NEMO_RUN_TEST_RAY_TOKEN",
            "packager": run.Packager(),
        }
        return run.RayExecutor(**{**defaults, **settings})

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        from tests.integration.ray.bed import RayBed

        with RayBed.here().relay.down():
            yield


class SkypilotCluster(SchedulerCluster):
    """One cluster that all tests share, made by a real SkyPilot on a real Slurm."""

    name = "skypilot"
    # A launch takes ten seconds where nothing else is going on, and all tests share two processors.
    patience = 20.0
    poll_s = 3.0
    # On Slurm SkyPilot ends its srun, which kills the job.
    asks_first = False
    jobs_of_a_process = 1  # a launch takes seconds of a processor
    # There it hands the script of a task, with all its variables, to srun as an argument.
    hides_variables = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.outage = self._outage

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        """Lead SkyPilot's client to a remote API server that is not there."""
        from sky.server.common import get_server_url, is_api_server_local

        def forget() -> None:
            for remembered in (get_server_url, is_api_server_local):
                remembered.cache_clear()

        name = "SKYPILOT_API_SERVER_ENDPOINT"
        before = os.environ.get(name)
        os.environ[name] = "http://127.0.0.1:9"
        forget()
        try:
            yield
        finally:
            del os.environ[name]
            if before is not None:
                os.environ[name] = before
            forget()

    def executor(self, **settings: Any) -> Executor:
        return run.SkypilotExecutor(
            **{
                "cluster_name": os.environ["NEMO_RUN_TEST_SKYPILOT_CLUSTER"],
                "infra": "slurm/loop",
                "packager": run.Packager(),
                **settings,
            }
        )


class SkypilotJobs(SkypilotCluster):
    """Jobs that the same SkyPilot manages, each on a cluster of its own."""

    name = "skypilot_jobs"
    poll_s = 5.0
    # SkyPilot asks Slurm to end the cluster, and does not wait until all processes are killed.
    ending_s = 60.0
    keeps_all_tries = False  # each has a cluster of its own
    returns_end_lines = True

    def executor(self, **settings: Any) -> Executor:
        return run.SkypilotJobsExecutor(
            **{
                "infra": "slurm/loop",
                "cpus": 1,
                "memory": 1,
                "packager": run.Packager(),
                **settings,
            }
        )


BACKENDS: dict[str, Callable[[Path], SchedulerCluster]] = {
    "dgx_cloud": DGXCloudCluster,
    "docker": DockerCluster,
    "kubeflow": KubeflowCluster,
    "kubeflow-without-volume": KubeflowWithoutVolume,
    "lepton": LeptonCluster,
    "local": LocalCluster,
    "ray": RayBackend,
    "skypilot": SkypilotCluster,
    "skypilot_jobs": SkypilotJobs,
    "slurm": SlurmOverSsh,
    "slurm-without-accounting": SlurmWithoutAccounting,
}


class Elsewhere:
    """The same backend, each call in a process of its own."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root

    def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        request = json.dumps([self.name, str(self.root), verb, args, kwargs])
        done = subprocess.run(
            [sys.executable, "-m", "tests.contract.backends", request],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=patience.seconds(1200),
        )
        return json.loads(done.stdout)

    def schedule(self, task: Task, **settings: Any) -> str:
        app_id: str = self.call("schedule", task, **settings)
        return app_id

    def cancel(self, app_id: str) -> None:
        self.call("cancel", app_id)


def main(request: str) -> None:
    name, root, verb, args, kwargs = json.loads(request)
    answer = getattr(BACKENDS[name](Path(root)), verb)(*args, **kwargs)
    print(json.dumps(answer))


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main(sys.argv[1])
