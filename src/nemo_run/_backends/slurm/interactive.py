"""Command lines for using a cluster by hand: ``salloc``, ``srun``, profiling."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from nemo_run import _shell
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel

if TYPE_CHECKING:
    from nemo_run.core.execution.slurm import SlurmExecutor
    from nemo_run.core.tunnel.client import Tunnel

SRUN_ARGS = [
    "account",
    "partition",
    "job-name",
    "time",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "gpus-per-node",
    "gpus-per-task",
    "qos",
    "mem",
    "mem-per-gpu",
    "mem-per-cpu",
    "comment",
    "constraint",
    "exclude",
    "gres",
    "exclusive",
    "array",
    "additional-parameters",
    "container-image",
    "container-mounts",
    "container-workdir",
]

ALLOC_ARGS = [
    "account",
    "partition",
    "job-name",
    "time",
    "nodes",
    "ntasks-per-node",
    "qos",
    "mem",
    "mem-per-gpu",
    "mem-per-cpu",
]

NSYS_WITH_GPU_METRICS = (
    "bash -c 'GPU_METRICS_FLAG=; "
    'if [[ " ${GPU_METRICS_NODES} " == *" ${SLURM_NODEID} "* ]]; then '
    'GPU_METRICS_FLAG="--gpu-metrics-devices=${SLURM_LOCALID}"; fi; nsys'
)


_NSYS = (
    'flag=; case " $GPU_METRICS_NODES " in *" $SLURM_NODEID "*) '
    "flag=--gpu-metrics-devices=$SLURM_LOCALID ;; esac; "
    'first=$1; shift; exec nsys "$first" $flag "$@"'
)


def nsys_argv(argv: Sequence[str]) -> list[str]:
    """Return ``argv``, with the profiler's wrapper for GPU metrics as words of its own."""
    if argv[0] != NSYS_WITH_GPU_METRICS:
        return list(argv)
    *rest, _ = argv[1:]
    words = [word for word in rest if word != "$GPU_METRICS_FLAG"]
    return ["sh", "-c", _NSYS, "nsys", *words]


class ByHand:
    """What `SlurmExecutor` offers to a user at a terminal: a shell or a command on nodes."""

    tunnel: SSHTunnel | LocalTunnel

    @property
    def local(self) -> LocalTunnel:
        return LocalTunnel(job_dir="")

    @property
    def local_is_slurm(self) -> bool:
        """Whether this machine has Slurm's commands."""
        return shutil.which("srun") is not None

    @property
    def slurm(self) -> SSHTunnel | LocalTunnel:
        """The way to Slurm's commands, connected."""
        if self.local_is_slurm:
            return self.local
        self.tunnel.connect()
        return self.tunnel

    def alloc(self, job_name: str = "interactive") -> None:
        """Open a shell with nodes of our own."""
        self.slurm.run(
            salloc(cast("SlurmExecutor", self), job_name), pty=True, hide=False, warn=True
        )

    def srun(
        self,
        cmd: str,
        job_name: str = "interactive",
        flags: list[str] | None = None,
        env_vars: dict[str, str] | None = None,
        arg_dict: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a command line on nodes of its own, and wait for it.

        ``arg_dict`` wins over our own fields; ``kwargs`` go to the tunnel's ``run``.
        """
        line = srun(cast("SlurmExecutor", self), cmd, job_name, flags, env_vars, arg_dict)
        slurm = self.slurm
        if env_vars:
            line = _with_variables(slurm, env_vars, line)
        return slurm.run(line, **{"pty": True, "hide": False, **kwargs})

    def bash(self, job_name: str = "interactive") -> None:
        """Open a shell on a node."""
        self.srun("bash", job_name=job_name)


def salloc(executor: SlurmExecutor, job_name: str) -> str:
    """Return the command line that gets nodes and opens a shell."""
    options = _options(executor, job_name, ALLOC_ARGS)
    words = ["salloc", *(_option(key, value) for key, value in options.items())]
    if not executor.tunnel.job_dir:
        return _shell.render(words)
    return f"{_shell.render(['cd', executor.tunnel.job_dir])} && {_shell.render(words)}"


def srun(
    executor: SlurmExecutor,
    cmd: str,
    job_name: str,
    flags: Sequence[str] | None,
    env_vars: Collection[str] | None,
    arg_dict: Mapping[str, Any] | None,
) -> str:
    """Return the command line that runs ``cmd``, a command line itself, on nodes of its own.

    ``env_vars`` are the names of variables that a container is to take over, too.
    """
    options = _options(executor, job_name, SRUN_ARGS)
    options["container-mounts"] = ",".join(executor.container_mounts) or None
    if env_vars and executor.container_image:
        options["container-env"] = ",".join(env_vars)
    options.update(arg_dict or {})
    words = [_option(key, value) for key, value in options.items() if value not in (None, False)]
    return f"{_shell.render(['srun', *words, *(flags or [])])} {cmd}"


def _with_variables(tunnel: Tunnel, env_vars: Mapping[str, str], line: str) -> str:
    """Return a command line that runs ``line`` with variables, whose values no other user sees.

    They go through a file that is gone before the command runs.
    """
    _shell.check_names(env_vars)
    path = f"/tmp/nemo_run-{secrets.token_hex(16)}"
    exports = [_shell.export(name, value) for name, value in env_vars.items()]
    tunnel.write(path, "\n".join([*exports, ""]))
    return f". {path}; rm -f {path}; {line}"


def _options(executor: SlurmExecutor, job_name: str, names: Sequence[str]) -> dict[str, Any]:
    values = {**vars(executor), "job_name": (executor.job_name_prefix or "") + job_name}
    options = {name: values.get(name.replace("-", "_")) for name in names}
    extra = options.pop("additional-parameters", None) or {}
    options.update({key.replace("_", "-"): value for key, value in extra.items()})
    return {key: value for key, value in options.items() if value not in (None, False)}


def _option(key: str, value: Any) -> str:
    return f"--{key}" if value is True else f"--{key}={value}"
