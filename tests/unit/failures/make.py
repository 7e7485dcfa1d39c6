"""Make the corpus of failures anew: ``python -m tests.unit.failures.make python|torch|mpi``.

Each program is run as a job of this package, and what is known of it then is written to a file: the
class it belongs to, the state, the exit code, what the backend says, and the last lines of its log.
A third of the programs, chosen by their names, is kept apart in ``unseen``: rules are not written
after those. Programs of ``slurm`` and ``docker`` run where `MAKE_EXECUTOR` says, see below.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import tempfile
from pathlib import Path

from tests.unit.failures import elsewhere, scenarios
from tests.unit.failures.scenarios import Scenario

import nemo_run as run
from nemo_run._experiments.conductor import reasons

HERE = Path(__file__).parent
LINES = 200
AT_ONCE = 8

SUITES: dict[str, dict[str, Scenario]] = {
    "python": scenarios.PYTHON,
    "torch": scenarios.TORCH,
    "mpi": scenarios.MPI,
    "slurm": elsewhere.SLURM,
    "docker": elsewhere.DOCKER,
    "local": elsewhere.LOCAL,
}


def main(suite: str) -> None:
    chosen = list(SUITES[suite].items())
    at_once = 2 if suite == "torch" else AT_ONCE
    for begin in range(0, len(chosen), at_once):
        make(suite, dict(chosen[begin : begin + at_once]))


def make(suite: str, chosen: dict[str, Scenario]) -> None:
    """Run some programs and write down how they failed."""
    with run.Experiment("failing", check=False, skip_status_at_exit=True) as experiment:
        for name, scenario in chosen.items():
            where = tempfile.mkdtemp(prefix="failing-")
            executor = elsewhere.executor(suite, name)
            inside = f"cd {where}\n" if suite not in ("docker",) else "cd /tmp\n"
            task = run.Script(inline=inside + scenario.script)
            experiment.add(task, executor=executor, name=name)
        experiment.run(sequential=False)
        elsewhere.meddle(suite, experiment)
    watch = experiment._watch
    for job, state in zip(experiment.jobs, watch.states(), strict=True):
        member = state.members[0]
        lines = reasons.last_lines(member, watch._runner, LINES)
        label = chosen[job.id].label
        head = [
            f"label: {label}",
            f"state: {member.state.name}",
            f"exit_code: {'' if member.exit_code is None else member.exit_code}",
            f"message: {' '.join(member.message.split())}",
        ]
        name = f"{suite}-{job.id}"
        held_back = hashlib.sha256(name.encode()).digest()[0] % 3 == 0
        path = HERE / ("unseen" if held_back else "seen") / f"{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(neutral("\n".join([*head, "", *(line.rstrip("\n") for line in lines), ""])))
        print(name, label, member.state.name, member.exit_code, len(lines), flush=True)


def neutral(text: str) -> str:
    """Return a text without what names the machine it was made on."""
    for name, word in (
        (str(Path(sys.prefix).resolve()), "/opt/venv"),
        (str(Path(sys.base_prefix).resolve()), "/usr"),
        (os.environ.get("PY", "/not-set").partition("/bin/")[0], "/opt/venv"),
        (os.environ.get("MPIPY", "/not-set").partition("/bin/")[0], "/opt/mpi"),
        (os.environ.get("REMOTE_DIR", "/not-set"), "/lustre/ada"),
        (os.environ.get("NEMORUN_HOME", "/not-set"), "/home/ada/.nemo_run"),
        (socket.gethostname(), "node1"),
    ):
        text = text.replace(name, word)
    text = re.sub(r"/tmp/failing-[a-z0-9_]+", "/home/ada/work", text)
    return re.sub(r"/tmp/torchelastic_[a-z0-9_]+", "/tmp/torchelastic", text)


if __name__ == "__main__":
    main(sys.argv[1])
