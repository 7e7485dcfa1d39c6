"""How a task gets into its container: options of srun, or a program that srun starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from nemo_run import _shell
from nemo_run._config.scripts import RUNDIR_PATH
from nemo_run._values import like, literal
from nemo_run.config import RUNDIR_NAME, RUNDIR_SPECIAL_NAME
from nemo_run.exceptions import ConfigError

Runtime = Literal["pyxis", "apptainer", "singularity", "podman", "docker"]

RUNTIMES: tuple[Runtime, ...] = ("pyxis", "apptainer", "singularity", "podman", "docker")

RUNDIR = f"/{RUNDIR_NAME}"


def in_place_of_rundir(text: str, directory: str | None) -> str:
    """Return ``text`` with ``/nemo_run``, where a path starts with it, replaced."""
    if directory is None or isinstance(text, literal):
        return text
    return like(text, RUNDIR_PATH.sub(lambda _: directory, text))


# What a task wants to know of its place in the job; other runtimes pass the environment on.
_SLURM_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_NNODES",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
    "SLURM_ARRAY_TASK_ID",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONUNBUFFERED",
    "TORCHX_MAX_RETRIES",
    "HEAD_NODE_ADDR",
)


# Podman accepts Docker's option, too, but does nothing with it before 5.0.
_GPUS = {"docker": ("--gpus", "all"), "podman": ("--device", "nvidia.com/gpu=all")}


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container of one step; ``image`` is None for a step without one.

    Attributes:
        job_dir: on the cluster; the task sees it as ``/nemo_run``.
        variables: names of environment variables that the task needs.
        env: names whose values replace those that the image sets.
    """

    image: str | None
    runtime: Runtime | None
    mounts: Sequence[str]
    env: Sequence[str] | None
    job_dir: str
    gpus: bool = False
    variables: Collection[str] = ()

    def srun_options(self) -> list[str]:
        """Return what srun itself has to know."""
        if not self.image:
            return ["--chdir", f"{self.job_dir}/code"]
        if self._runtime != "pyxis":
            return []
        options = [
            "--container-image",
            self.image,
            "--container-mounts",
            ",".join(self._mounts()),
            "--container-workdir",
            f"{RUNDIR}/code",
        ]
        if self.env:
            options += ["--container-env", ",".join(self.env)]
        return options

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        """Return the command that srun starts to have ``argv`` run inside."""
        if not self.image or self._runtime == "pyxis":
            return list(argv)
        if self._runtime in ("apptainer", "singularity"):
            binds = [part for mount in self._mounts() for part in ("--bind", mount)]
            gpus = ["--nv"] if self.gpus else []
            return [
                *self._winning(),
                self._runtime,
                "exec",
                *gpus,
                *binds,
                "--pwd",
                f"{RUNDIR}/code",
                self.image,
                *argv,
            ]
        volumes = [part for mount in self._mounts() for part in ("--volume", mount)]
        # Names only: the values are in the environment, and not in the process list.
        names = [*_SLURM_VARIABLES, *self.variables, *(self.env or [])]
        env = [part for name in dict.fromkeys(names) for part in ("--env", name)]
        return [
            self._runtime,
            "run",
            "--rm",
            "--network=host",
            "--ipc=host",
            *(_GPUS[self._runtime] if self.gpus else ()),
            *volumes,
            *env,
            "--workdir",
            f"{RUNDIR}/code",
            self.image,
            *argv,
        ]

    def _winning(self) -> list[str]:
        """Return what has a command's variables win over those of its image, by Apptainer's way."""
        if not self.env:
            return []
        _shell.check_names(self.env)
        prefix = f"{self._runtime.upper()}ENV_"
        exports = [f'[ -z "${{{n}+x}}" ] || export {prefix}{n}="${n}"' for n in self.env]
        return ["sh", "-c", "; ".join([*exports, 'exec "$@"']), "sh"]

    @property
    def _runtime(self) -> Runtime:
        return self.runtime or "pyxis"

    def _mounts(self) -> list[str]:
        given = [
            self.job_dir + mount.removeprefix(RUNDIR_SPECIAL_NAME)
            if mount.startswith(RUNDIR_SPECIAL_NAME)
            else mount
            for mount in self.mounts
        ]
        return [*given, f"{self.job_dir}:{RUNDIR}"]


def check_runtime(runtime: str | None) -> None:
    """Raise ConfigError unless ``runtime`` is one that we know."""
    if runtime is not None and runtime not in RUNTIMES:
        raise ConfigError(
            f"container_runtime={runtime!r} is not known. Use one of {', '.join(RUNTIMES)}."
        )
