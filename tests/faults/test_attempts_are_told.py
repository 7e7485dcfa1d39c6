"""A job that was tried again says when each attempt was, how it ended and where its log begins."""

from __future__ import annotations

from pathlib import Path

from tests.cli import commands
from tests.cli.commands import Result
from tests.integration.launching import launch, write

PROGRAM = """
executor = run.LocalExecutor(retries=2)
with run.Experiment("stubborn", executor=executor, check=False) as exp:
    text = "echo this is $NEMO_RUN_ATTEMPT; sleep 0.3; exit $((3 - NEMO_RUN_ATTEMPT))"
    exp.add(script(text), name="job")
    exp.add(script("true"), name="easy")
    exp.run()
"""


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", "experiment", *words], cwd=where, timeout_s=60)


def test_each_attempt_has_its_times_its_exit_code_and_its_log(tmp_path: Path) -> None:
    shown = launch(write(tmp_path, PROGRAM))
    assert shown.returncode == 0, shown.stderr
    lines = [line for line in shown.stdout.splitlines() if line.startswith("job: Attempt ")]
    assert [line.split(":")[1] for line in lines] == [f" Attempt {n}" for n in (1, 2, 3)]

    jobs = nemorun(tmp_path, "status", "stubborn", "--json").json()["jobs"]
    attempts = jobs["job"]["attempts"]
    assert [(a["number"], a["exit_code"]) for a in attempts] == [(1, 2), (2, 1), (3, 0)]
    for attempt in attempts:
        assert 0.3 <= attempt["ended_at"] - attempt["started_at"] < 60
        ((path, begin),) = attempt["logs"]
        assert Path(path).read_text()[begin:].startswith(f"this is {attempt['number']}\n")
    assert attempts[0]["ended_at"] < attempts[1]["started_at"]
    # The whole of it took as long as all attempts and the pauses between them.
    took_s = attempts[2]["ended_at"] - attempts[0]["started_at"]
    assert abs(jobs["job"]["duration_s"] - took_s) < 0.01
    assert [a["exit_code"] for a in jobs["easy"]["attempts"]] == [0]

    told = [line for line in nemorun(tmp_path, "status", "stubborn").lines if "Attempt" in line]
    assert ["exit code 2 after" in told[0], "exit code 1 after" in told[1]] == [True, True]
    assert len(told) == 3
