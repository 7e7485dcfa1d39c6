"""Plugins that turn the profiler on: ``executor.get_launcher().nsys_profile = True``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.integration.launching import launch, lines, write

import nemo_run as run

LAUNCH = """\
from dataclasses import dataclass
from nemo_run.core.execution.base import Executor

@dataclass(kw_only=True)
class Profile(run.Plugin):
    trace: str = "osrt"

    def setup(self, task, executor: Executor):
        launcher = executor.get_launcher()
        launcher.nsys_profile = True
        launcher.nsys_trace = [self.trace]
        executor.env_vars["PROFILED"] = "1"

def main(how):
    executor = run.LocalExecutor()
    with run.Experiment("profiled", executor=executor) as exp:
        if how == "group":
            exp.add([script("echo $PROFILED"), script("echo $PROFILED")], name="job",
                    executor=[executor, executor], plugins=[Profile()])
        else:
            exp.add(script("echo $PROFILED"), name="job", plugins=[Profile()])
        exp.run(detach=how == "detached")
    assert executor.launcher is None, "the user's own is left alone"

if __name__ == "__main__":
    main(sys.argv[1])
"""

AGAIN = """\
with run.Experiment.from_title("profiled").reset() as exp:
    exp.run()
"""

NSYS = """\
#!/bin/bash
echo "$@" >> {calls}
while [ "$1" != bash ]; do shift; done
exec "$@"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each call of the profiler."""
    calls, program = tmp_path / "calls", tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(NSYS.format(calls=calls))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return calls


@pytest.mark.parametrize(("how", "jobs"), [("single", 1), ("group", 2), ("detached", 1)])
def test_the_profiler_is_called_also_when_the_experiment_is_run_again(
    tmp_path: Path, calls: Path, how: str, jobs: int
) -> None:
    done = launch(write(tmp_path, LAUNCH), how)
    assert done.returncode == 0, done.stderr
    exp = run.Experiment.from_title("profiled")
    exp.wait()
    exp.raise_if_failed()
    assert len(lines(calls)) == jobs
    for call in lines(calls):
        assert call.startswith("profile -s none -t osrt -o ")
    done = launch(write(tmp_path, AGAIN, "again.py"))
    assert done.returncode == 0, done.stderr
    assert len(lines(calls)) == 2 * jobs
