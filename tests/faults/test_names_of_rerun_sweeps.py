"""Jobs of a sweep that is run again with a change are called after the values that they have."""

from __future__ import annotations

from pathlib import Path

from tests.cli import commands
from tests.cli.commands import Result
from tests.integration.launching import launch, write

PROGRAM = """
from nemo_run.run.sweep import add_sweep, grid
def work(rate: float, width: int):
    print(f"rate={rate},width={width}")
if __name__ == "__main__":
    with run.Experiment("grid", executor=run.LocalExecutor()) as exp:
        ids = add_sweep(exp, run.Partial(work), grid({"rate": [0.1], "width": [4, 8]}))
        exp.add(run.Partial(work, rate=1.5, width=1), name="last", dependencies=ids)
        exp.run()
"""


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", "experiment", *words], cwd=where, timeout_s=90)


def test_a_sweep_that_is_run_again_says_its_new_values(tmp_path: Path) -> None:
    done = launch(write(tmp_path, PROGRAM))
    assert done.returncode == 0, done.stderr
    again = nemorun(tmp_path, "rerun", "grid", "rate=0.7", "--json")
    assert again.code == 0, again.err
    states = dict.fromkeys(["rate=0.7,width=4", "rate=0.7,width=8", "last"], "SUCCEEDED")
    assert again.json()["jobs"] == states
    logs = nemorun(tmp_path, "logs", "latest", "rate=0.7,width=8")
    assert logs.out == "rate=0.7,width=8\n"

    same = nemorun(tmp_path, "rerun", "latest", "width*=2", "--dryrun", "--json").json()["jobs"]
    assert list(same) == ["rate=0.7,width=8", "rate=0.7,width=16", "last"]
    equal = nemorun(tmp_path, "rerun", "latest", "width=3", "--dryrun", "--json").json()["jobs"]
    first, second, _ = equal
    assert (first, second.startswith("rate=0.7,width=3_")) == ("rate=0.7,width=3", True)
