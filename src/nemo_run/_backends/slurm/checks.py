"""Whether a `SlurmExecutor` could be used: what ``nemorun doctor`` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nemo_run._backends.slurm.directives import further_options, of_executor
from nemo_run.config import RUNDIR_SPECIAL_NAME
from nemo_run.core.execution.checks import Finding, Verdict
from nemo_run.exceptions import NemoRunError

if TYPE_CHECKING:
    from nemo_run._transport.ssh.result import Result
    from nemo_run.core.execution.slurm import SlurmExecutor

_TIMEOUT_S = 60

# The nearest directory that is there says whether one below it can be made.
_CAN_WRITE = """\
there=$1
while [ ! -e "$there" ]; do there=$(dirname -- "$there"); done
[ -d "$there" ] && [ -w "$there" ]
"""
_PYXIS = "srun --help 2>&1 | grep -q -- --container-image"


def diagnose(executor: SlurmExecutor) -> Iterator[Finding]:
    """Yield a finding for each thing that a job needs, up to the first it cannot do without."""
    cluster = _Cluster(executor)
    try:
        options = _options(executor)
    except NemoRunError as err:
        yield Finding("settings", "failed", str(err))
        return
    where = executor.tunnel.key.strip("@")
    try:
        executor.tunnel.connect()
        version = cluster.run(["sbatch", "--version"])
    except NemoRunError as err:
        yield Finding("connection", "failed", str(err))
        return
    yield Finding("connection", "ok", where)
    if not version.ok:
        advice = "Name a login node: tunnel=run.SSHTunnel(host=..., user=..., job_dir=...)."
        yield Finding("slurm", "failed", f"There is no sbatch on {where}.", advice)
        return
    yield Finding("slurm", "ok", version.stdout.strip())
    yield cluster.would_take_a_job(options)
    yield cluster.job_dir()
    if executor.container_image:
        yield cluster.runtime()
        yield cluster.image(executor.container_image)
        for mount in executor.container_mounts:
            yield cluster.mount(mount)


class _Cluster:
    """The machine that jobs are submitted from, asked one thing at a time."""

    def __init__(self, executor: SlurmExecutor) -> None:
        self._executor = executor

    def run(self, argv: list[str]) -> Result:
        return self._executor.tunnel.run(argv, warn=True, timeout=_TIMEOUT_S)

    def _shell(self, program: str, *words: str) -> bool:
        return self.run(["sh", "-c", program, "sh", *words]).ok

    def would_take_a_job(self, options: Sequence[str]) -> Finding:
        """Let Slurm itself judge account, partition, QOS, limits and sizes; submits nothing."""
        said = self.run(["sbatch", "--test-only", *options, "--wrap", "true"])
        lines = [line.removeprefix("sbatch: ") for line in said.stderr.splitlines() if line]
        if said.ok:
            return Finding("job", "ok", lines[-1] if lines else "Slurm would take it.")
        errors = [line.removeprefix("error: ") for line in lines]
        return Finding("job", "failed", "; ".join(errors) or "Slurm would not take it.")

    def job_dir(self) -> Finding:
        path = self._executor.tunnel._base_dir()
        if not path:
            return Finding("job_dir", "failed", "The tunnel has no job_dir. Give it one.")
        if not path.startswith("/"):
            advice = "Give the whole path."
            return Finding("job_dir", "failed", f"{path} is no absolute path.", advice)
        if self._shell(_CAN_WRITE, path):
            return Finding("job_dir", "ok", path)
        return Finding("job_dir", "failed", f"{path} cannot be written to.")

    def runtime(self) -> Finding:
        name = self._executor.container_runtime or "pyxis"
        found = self._shell(_PYXIS if name == "pyxis" else f"command -v {name}")
        if found:
            return Finding("container runtime", "ok", name)
        # Nodes may have what the login node has not, but Pyxis is a part of srun.
        verdict: Verdict = "failed" if name == "pyxis" else "warning"
        advice = "Choose another with container_runtime."
        return Finding("container runtime", verdict, f"{name} is not there.", advice)

    def image(self, image: str) -> Finding:
        if not image.startswith("/"):
            return Finding("image", "unknown", f"{image} is pulled when a job starts.")
        if self._shell('[ -r "$1" ]', image):
            return Finding("image", "ok", image)
        return Finding("image", "failed", f"{image} cannot be read.")

    def mount(self, mount: str) -> Finding:
        source = mount.partition(":")[0]
        if source.startswith(RUNDIR_SPECIAL_NAME):
            return Finding("mount", "ok", mount)
        if self._shell('[ -e "$1" ]', source):
            return Finding("mount", "ok", mount)
        return Finding("mount", "failed", f"{source} is not there.")


def _options(executor: SlurmExecutor) -> list[str]:
    """Return what ``sbatch`` is told, as far as it does not depend on the job."""
    wanted = {**of_executor(executor), "ntasks_per_node": executor.tasks_per_node()}
    given = {**wanted, **further_options(executor)}
    return [
        f"--{key.replace('_', '-')}" + ("" if value is True else f"={value}")
        for key, value in given.items()
        if value is not None and value is not False
    ]
