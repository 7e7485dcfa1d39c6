"""From a task and an executor to a torchx application: roles with arguments and environment."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchx.specs import AppDef, Role, resource

from nemo_run._experiments.main_module import (
    MAIN,
    SCRIPT,
    SavedScript,
    names_main,
    running_script,
    script_directory,
)
from nemo_run._experiments.workspace_file import COPY, PLACE, find_workspace, names_workspace
from nemo_run._secrets.masking import mask_environment, masked_text
from nemo_run._values import (
    FILLED_IN,
    expandable_arguments,
    expandable_environment,
    is_filled_in,
)
from nemo_run.config import SCRIPTS_DIR, USE_WITH_RAY_CLUSTER_KEY, Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.launcher import FaultTolerance, Launcher, Torchrun
from nemo_run.core.packaging.base import Packager
from nemo_run.core.serialization._format import RUNNER
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import UnserializableError, UnsupportedError
from nemo_run.run.torchx_backend.components.ft_launcher import ft_launcher
from nemo_run.run.torchx_backend.components.torchrun import torchrun

log = logging.getLogger(__name__)


@dataclass
class _Command:
    """A program and its arguments, in the forms that plain roles and launchers need.

    ``filled_in`` are arguments in which a script that a launcher made has its shell fill in values.
    """

    entrypoint: str
    args: list[str]
    script: str | None = None
    module: str | None = None
    no_python: bool = False
    inline: bool = False
    program_args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    filled_in: list[str] = field(default_factory=list)


def package(
    name: str,
    fn_or_script: Partial[Any] | Script | str,
    executor: Executor,
    num_replicas: int = 1,
    cpu: int = -1,
    gpu: int = -1,
    memMB: int = 1024,
    h: str | None = None,
    env: dict[str, str] | None = None,
    mounts: list[str] | None = None,
    serialize_to_file: bool = False,
    serialize_metadata_for_scripts: bool = True,
) -> AppDef:
    """Return the application that runs a task, after writing the files it needs.

    The stored text of a function's task will do too; it is not read.

    The environment is ``env``, overlaid by the executor's and then the script's. ``mounts`` is
    accepted and has no effect.

    Raises:
        UnserializableError: something in the task cannot travel.
    """
    if isinstance(fn_or_script, Script):
        command = _script_command(name, fn_or_script, executor, serialize_metadata_for_scripts)
    else:
        command = _partial_command(name, fn_or_script, executor, serialize_to_file)

    launcher = executor.launcher_in_use()
    if executor.supports_launcher_transform():
        command = _transformed(name, command, launcher, executor)

    environment = {**(env or {}), **executor.env_vars, **command.env}
    if executor.CAPABILITIES.shell_values:
        environment = expandable_environment(environment)
    app = _application(name, command, launcher, executor, environment, cpu, gpu, memMB, h)
    role = app.roles[0]
    role.num_replicas = num_replicas
    prefix = executor.get_launcher_prefix()
    if prefix:
        profiler, last = executor.get_nsys_entrypoint()
        role.args = [*prefix, role.entrypoint, *role.args, *([last] if last else [])]
        role.entrypoint = profiler
    if command.filled_in:
        role.metadata[FILLED_IN] = command.filled_in
    app.metadata = dict(command.metadata)
    return app


def merge_executables(app_defs: Iterator[AppDef], name: str) -> AppDef:
    """Return one application with the roles of all, in order.

    Raises:
        UnsupportedError: another than the first wants to be the job of a Ray cluster.
    """
    merged = AppDef(name=name, roles=[])
    for position, app in enumerate(app_defs):
        if position and app.metadata.get(USE_WITH_RAY_CLUSTER_KEY):
            raise UnsupportedError(
                f"{USE_WITH_RAY_CLUSTER_KEY} is for the first task of a group, not for "
                f"{app.name!r}."
            )
        merged.roles += app.roles
        merged.metadata |= app.metadata
    return merged


def _partial_command(
    name: str, task: Partial[Any] | str, executor: Executor, to_file: bool
) -> _Command:
    task_text = task if isinstance(task, str) else ZlibJSONSerializer().serialize(task)
    if to_file:
        packager = ZlibJSONSerializer().serialize(executor.packager.to_config())
        packager_path, path = executor.package_configs(
            (f"{name}_packager", packager), (f"{name}_fn_or_script", task_text)
        )
        _write_copies(name, task, executor)
        setup = _setup_args(executor.packager, packager_path)
        texts = [task_text, packager] if setup else [task_text]
        if any(map(names_main, texts)):
            _write_script(executor)
        if any(map(names_workspace, texts)):
            _write_workspace(executor)
        args = [*_name_args(name), *setup, path]
    else:
        args = [*_name_args(name), task_text]
    return _Command(
        entrypoint=executor.python(),
        args=["-m", RUNNER, *args],
        module=RUNNER,
        program_args=args,
        env=_importing(executor) if executor.CAPABILITIES.local_paths else {},
    )


def _write_script(executor: Executor) -> None:
    """Put the launching script beside the task, so that it is in the job, wherever that runs."""
    script = SavedScript.find(Path(executor.job_dir).parent) or running_script()
    if script is not None:
        executor.package_configs((MAIN, script.text), (SCRIPT, script.path))


def _write_workspace(executor: Executor) -> None:
    """Put the workspace file there, too."""
    workspace = find_workspace(Path(executor.job_dir).parent)
    if workspace is not None:
        executor.package_configs((COPY, workspace.text), (PLACE, workspace.path))


def _importing(executor: Executor) -> dict[str, str]:
    return beside_the_script(executor.env_vars, Path(executor.job_dir).parent)


def _name_args(name: str) -> list[str]:
    return [f"--name={name}"] if name.startswith("-") else ["-n", name]


def _setup_args(packager: Packager, path: str) -> list[str]:
    # Loading a packager takes longer than many tasks do, and most have nothing to set up.
    return ["-p", path] if type(packager).setup is not Packager.setup else []


def beside_the_script(env: Mapping[str, str], exp_dir: Path) -> dict[str, str]:
    """Return the variable that lets a process on this machine import what the launcher could."""
    directory = script_directory(exp_dir)
    if not directory:
        return {}
    given = env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    paths = [directory, given]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _script_command(name: str, script: Script, executor: Executor, with_copies: bool) -> _Command:
    if with_copies:
        _write_copies(name, script, executor)
    if script.metadata.get(USE_WITH_RAY_CLUSTER_KEY) and executor.SCHEDULER != "slurm_tunnel":
        raise UnsupportedError(
            f"{USE_WITH_RAY_CLUSTER_KEY} needs a SlurmExecutor, not {type(executor).__name__}."
        )
    given = script.args
    script = script.resolved()
    args = script.to_command(
        filename=str(Path(executor.job_dir) / SCRIPTS_DIR / f"{name}.sh"),
        is_local=executor.CAPABILITIES.local_paths,
        substitute_rundir_path=executor.rundir(),
    )
    if executor.CAPABILITIES.shell_values and given and args[-len(given) :] == given:
        # Not the words of a command line in the path: they were split as a shell does already.
        args = [*args[: -len(given)], *expandable_arguments(given)]
    no_python = "python" not in script.entrypoint
    program, program_args = args[0], args[2:] if script.m else args[1:]
    if no_python and script.inline and len(script.entrypoint.split()) == 1:
        # Not by the file's first line: an image may have bash elsewhere, and no /usr/bin/env.
        program, program_args = script.entrypoint, args
    return _Command(
        entrypoint=script.entrypoint,
        args=args,
        script=None if script.m else program,
        module=script.path if script.m else None,
        no_python=no_python,
        inline=bool(script.inline),
        program_args=program_args,
        env=dict(script.env),
        metadata=dict(script.metadata),
    )


def _transformed(name: str, command: _Command, launcher: Launcher, executor: Executor) -> _Command:
    script = launcher.transform([command.entrypoint, *command.args])
    if script is None:
        return command
    # The text of an inline script has the file of that name already.
    file = f"{name}_launcher" if command.inline else name
    made = _script_command(file, script, executor, with_copies=False)
    made.env, made.metadata = command.env, command.metadata
    made.filled_in = [str(arg) for arg in command.args if is_filled_in(arg)]
    return made


def _application(
    name: str,
    command: _Command,
    launcher: Launcher,
    executor: Executor,
    env: dict[str, str],
    cpu: int,
    gpu: int,
    memMB: int,
    h: str | None,
) -> AppDef:
    if not isinstance(launcher, (Torchrun, FaultTolerance)):
        role = Role(
            name=name,
            image="",
            entrypoint=command.entrypoint,
            args=command.args,
            env=env,
            max_retries=executor.retries,
            resource=resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        )
        return AppDef(name=name, roles=[role])
    shared: dict[str, Any] = {
        "script": command.script,
        "m": command.module,
        "no_python": command.no_python,
        "image": "",
        "name": name,
        "h": h,
        "cpu": cpu,
        "gpu": gpu,
        "memMB": memMB,
        "j": f"{executor.nnodes()}x{executor.nproc_per_node()}",
        "env": env,
        "max_retries": executor.retries,
        "rdzv_port": launcher.rdzv_port,
        "rdzv_backend": launcher.rdzv_backend,
        "rdzv_id": launcher.rdzv_id,
        "debug": executor.packager.debug,
        "dgxc": executor.CAPABILITIES.rendezvous == "platform",
        "use_env": executor.CAPABILITIES.local_paths,
        "lepton": executor.CAPABILITIES.rendezvous == "variables",
    }
    if isinstance(launcher, Torchrun):
        return torchrun(*command.program_args, **shared)
    return ft_launcher(
        *command.program_args,
        **shared,
        workload_check_interval=launcher.workload_check_interval,
        initial_rank_heartbeat_timeout=launcher.initial_rank_heartbeat_timeout,
        rank_heartbeat_timeout=launcher.rank_heartbeat_timeout,
        rank_termination_signal=launcher.rank_termination_signal,
        log_level=launcher.log_level,
        max_restarts=launcher.max_restarts,
    )


def _write_copies(name: str, task: Partial[Any] | Script | str, executor: Executor) -> None:
    """Write YAML copies for people beside the files that count; not having them is no failure."""
    copies = []
    shown = executor.clone()
    shown.env_vars = mask_environment(shown.env_vars)
    if isinstance(task, Script):
        task = dataclasses.replace(task, env=mask_environment(task.env))
    for what, value in (("executor", shown), ("config", task)):
        if isinstance(value, str) or getattr(type(value), "is_lazy", False):
            continue  # not to be read before it runs
        try:
            text = YamlSerializer().serialize(value)
            # An address in the executor may have a login in it.
            copies.append((f"{name}_{what}.yaml", masked_text(text) if value is shown else text))
        except UnserializableError as err:
            log.warning("%s: no YAML copy of the %s: %s", name, what, err)
    executor.package_configs(*copies)


def _serialize(buildable: Any, serializer_cls: Any = ZlibJSONSerializer) -> str:
    """Return a task as text. Programs import this, in spite of its name."""
    return str(serializer_cls().serialize(buildable))
