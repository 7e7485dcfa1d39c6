"""From a planned job to what is sent to a Slurm cluster."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from torchx.specs import AppDef, Role

from nemo_run._backends.slurm.containers import in_place_of_rundir
from nemo_run._backends.slurm.directives import check_dependency_type, further_options
from nemo_run._backends.slurm.files import File
from nemo_run._backends.slurm.interactive import nsys_argv
from nemo_run._backends.slurm.submission import Submission
from nemo_run._jobs.records import TAG, JobRef
from nemo_run._values import FILLED_IN, names_in, same
from nemo_run.core.execution.launcher import FaultTolerance
from nemo_run.core.execution.slurm import SlurmBatchRequest, SlurmExecutor
from nemo_run.exceptions import ConfigError, UnsupportedError

# What the executor puts into a job's directory, and the job needs.
_SENT = ("configs", "scripts")
_SCRIPT = "sbatch.sh"


def plan(app: AppDef, executor: SlurmExecutor) -> SlurmBatchRequest:
    """Return the request for an application of one role for each task.

    Raises:
        ConfigError: it is not known where on the cluster the job would live, or a setting is wrong.
        UnsupportedError: a task wants to be started again where that is forbidden.
    """
    if executor.remote_dir and not executor.remote_dir.startswith("/"):
        raise ConfigError(
            f"job_dir={executor.tunnel._base_dir()!r} of the tunnel is no place on the cluster. "
            "Give the whole path, such as '/scratch/me/jobs': what ~ or a relative path means "
            "there is not known here."
        )
    check_dependency_type(executor.dependency_type)
    max_retries = min(role.max_retries for role in app.roles)
    if max_retries > 0 and further_options(executor).get("no_requeue"):
        raise UnsupportedError(
            f"retries={max_retries} needs a job that Slurm may put into its queue again, and "
            "no_requeue forbids that. Leave one of the two out."
        )
    common = _common([role.env for role in app.roles])
    own = [
        {name: value for name, value in role.env.items() if name not in common}
        for role in app.roles
    ]
    request = SlurmBatchRequest(
        launch_cmd=["sbatch", *_requeue(executor), "--parsable"],
        jobs=[role.name for role in app.roles],
        command_groups=[_argv(role) for role in app.roles],
        executor=executor,
        max_retries=max_retries,
        extra_env=common,
        launcher=executor.launcher_in_use(),
        task_env=own,
        tag=app.metadata[TAG],
        code_of=app.name,
        filled_in=[text for role in app.roles for text in role.metadata.get(FILLED_IN, [])],
    )
    return _without_rundir(request)


def _requeue(executor: SlurmExecutor) -> list[str]:
    # On the command line it would win over what the user put into the script.
    return [] if further_options(executor).get("no_requeue") else ["--requeue"]


def _argv(role: Role) -> list[str]:
    return nsys_argv([role.entrypoint, *role.args])


def _common(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that all tasks have; what needs one that they do not is none of them."""
    first, *others = environments
    common = {
        name: value
        for name, value in first.items()
        if all(same(other.get(name), value) for other in others)
    }
    own = {name for env in environments for name in env if name not in common}
    while needs := {name for name, value in common.items() if names_in(value) & own}:
        own |= needs
        common = {name: value for name, value in common.items() if name not in needs}
    return common


def _without_rundir(request: SlurmBatchRequest) -> SlurmBatchRequest:
    """Put the job directory in place of ``/nemo_run`` for tasks that have no container."""
    bare = [
        not request.container_of(position).image for position in range(len(request.command_groups))
    ]
    directory = request.remote_dir
    groups = [
        [in_place_of_rundir(arg, directory) for arg in argv] if is_bare else argv
        for argv, is_bare in zip(request.command_groups, bare, strict=True)
    ]
    own = [
        {name: in_place_of_rundir(value, directory) for name, value in env.items()}
        if is_bare
        else env
        for env, is_bare in zip(request.task_env, bare, strict=True)
    ]
    if not all(bare):
        return dataclasses.replace(request, command_groups=groups, task_env=own)
    env = {name: in_place_of_rundir(value, directory) for name, value in request.extra_env.items()}
    launcher = request.launcher
    if isinstance(launcher, FaultTolerance):
        flag = in_place_of_rundir(launcher.finished_flag_file, directory)
        launcher = dataclasses.replace(launcher, finished_flag_file=flag)
    return dataclasses.replace(
        request, command_groups=groups, task_env=own, extra_env=env, launcher=launcher
    )


def submission(request: SlurmBatchRequest, script: bytes) -> Submission:
    """Return what has to get to the cluster, and how ``script`` is submitted there."""
    state_dir = request.state_dir
    path = f"{state_dir}/{_SCRIPT}"
    linked = request.executor.linked_code
    files = [
        # Only the owner may look at what holds an environment, arguments or a script.
        *([File(path=f"{request.remote_dir}/", mode=0o700)] if request.remote_dir else ()),
        File(path=f"{request.remote_dir}/code", link=linked)
        if linked
        else File(path=f"{request.remote_dir}/code/", mode=0o700),
        File(path=f"{state_dir}/", mode=0o700),
        *(File(path=f"{folder}/", mode=0o700) for folder in request.folders()),
        *_job_files(request.executor),
        File(path=path, data=script, mode=0o700),
        *(
            File(path=f"{state_dir}/{name}", data=text.encode(), mode=0o600)
            for name, text in request.environment_files().items()
        ),
    ]
    local_archive, archive = _archive(request)
    return Submission(
        state_dir=state_dir,
        argv=[*request.launch_cmd, *_tag(request), path],
        files=files,
        archive=archive,
        local_archive=local_archive,
        array=request.executor.array or "",
    )


def _archive(request: SlurmBatchRequest) -> tuple[Path, str]:
    """Return the archive of the job's code, and where the cluster keeps it; empty for none."""
    executor = request.executor
    archive = Path(executor.job_dir) / f"{request.code_of}.tar.gz"
    if executor.linked_code or not archive.is_file():
        return archive, ""
    if Path(executor.job_dir) == Path(executor.remote_dir):
        return archive, str(archive)
    from nemo_run.core.packaging._store import hash_of

    # By its hash: the next job with the same code finds it there.
    base = PurePosixPath(executor.tunnel.job_dir).parent.parent
    return archive, str(base / ".archives" / f"{hash_of(archive)}.tar.gz")


def _tag(request: SlurmBatchRequest) -> list[str]:
    """Return the option that makes the job known by its tag, unless the user has a comment."""
    if request.executor.comment or further_options(request.executor).get("comment"):
        return []
    return [f"--comment={request.tag}"]


def _job_files(executor: SlurmExecutor) -> Iterator[File]:
    here, there = Path(executor.job_dir), executor.remote_dir
    if here == Path(there):
        return
    main = here.parent / "__main__.py"
    if main.is_file():
        yield File(path=f"{executor.tunnel.job_dir}/__main__.py", data=main.read_bytes())
    folder = executor.launcher_in_use().nsys_folder
    if (here / folder).is_dir():
        yield File(path=f"{there}/{folder}/", mode=0o700)
    for path in sorted(path for name in _SENT for path in (here / name).rglob("*")):
        if path.is_file():
            yield File(
                path=f"{there}/{path.relative_to(here).as_posix()}",
                data=path.read_bytes(),
                mode=path.stat().st_mode & 0o777,
            )


def reference(request: SlurmBatchRequest, app_id: str, job_id: str) -> JobRef:
    """Return how to find the job again, from any process."""
    executor = request.executor
    tunnel = {
        item.name: getattr(executor.tunnel, item.name)
        for item in dataclasses.fields(executor.tunnel)
        if item.name != "packaging_jobs"
    }
    logs = {name: str(request.log_of(n)) for n, name in enumerate(request.jobs)}
    errors = {name: str(request.errors_of(n)) for n, name in enumerate(request.jobs)}
    return JobRef(
        native_id=app_id,
        where={
            "job_id": job_id,
            "tunnel": json.dumps(tunnel),
            "state_dir": request.state_dir,
            "job_dir": executor.job_dir,
            "logs": json.dumps(logs),
            "errors": json.dumps({} if executor.stderr_to_stdout else errors),
            "batch_log": str(request.batch_log),
            "folder": request.remote_dir,
            "array": executor.array or "",
            "tasks": str(max(request.tasks_of(n) for n in range(len(request.jobs)))),
            "rank_logs": "1" if executor.rank_logs else "",
        },
    )
