"""What `rm`, `cancel` and `gc` say is what they did."""

from __future__ import annotations

from pathlib import Path

from tests.cli import commands
from tests.cli.commands import Result
from tests.contract.experiments import experiment, script


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", "experiment", *words], cwd=where)


def test_words_about_jobs_that_have_ended(tmp_path: Path) -> None:
    with experiment("over") as exp:
        for name in ("one", "two", "three"):
            exp.add(script("true"), name=name)
        exp.run()
    assert nemorun(tmp_path, "cancel", "over", "one").lines == [
        "one: SUCCEEDED (had ended before)",
        "Others had ended: 2 jobs: 2 SUCCEEDED.",
    ]
    assert nemorun(tmp_path, "rm", "--dryrun", "over").out == f"Would remove {exp._id}\n"
    assert nemorun(tmp_path, "gc").lines == ["Nothing that has ended is older than 30d."]


def test_words_about_jobs_of_which_some_go_on(tmp_path: Path) -> None:
    with experiment("mixed") as exp:
        exp.add(script("true"), name="short")
        exp.add(script("sleep 600"), name="long")
        exp.add(script("sleep 600"), name="longer")
        exp.run(detach=True)
    try:
        nemorun(tmp_path, "logs", "-f", "mixed", "short")  # returns when it has ended
        assert nemorun(tmp_path, "cancel", "mixed", "long").lines == [
            "long: CANCELLED",
            "Others go on as they are: 1 job: 1 RUNNING. See --all.",
            "Others had ended: 1 job: 1 SUCCEEDED.",
        ]
    finally:
        exp.cancel("longer")
