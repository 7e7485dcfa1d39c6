"""A home directory written by NeMo Run 0.11.1 can be used here."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from pathlib import Path

import pytest
from tests.contract.experiments import states, statuses
from tests.integration.launching import launch, log_of_handle, write

import nemo_run as run

DATA = Path(__file__).parent / "data" / "home_0_11_1"
WRITTEN_AT = "/home/ada/.nemo_run"
ID = "oldtimes_1794775169631942114"

_PACKED = re.compile(r"eJ[\w\-]{20,}={0,2}")


def _moved(text: str, home: Path) -> str:
    """Return ``text``, packed configs inside it too, as it would have been written at ``home``."""

    def repack(match: re.Match[str]) -> str:
        plain = zlib.decompress(base64.urlsafe_b64decode(match[0])).decode()
        packed = zlib.compress(_moved(plain, home).encode())
        return base64.urlsafe_b64encode(packed).decode()

    return _PACKED.sub(repack, text.replace(WRITTEN_AT, str(home)))


@pytest.fixture
def old(nemorun_home: Path) -> Path:
    """A copy of the old home, as if it had been written where it is now."""
    shutil.copytree(DATA, nemorun_home)
    (nemorun_home / "local_jobs.json").rename(nemorun_home / ".local_jobs.json")
    for path in list(nemorun_home.rglob("*")):
        if path.is_file():
            path.write_text(_moved(path.read_text(), nemorun_home))
            if path.suffix == ".txt":
                path.rename(path.with_suffix(""))
    return nemorun_home


def test_it_is_in_the_catalogue(old: Path) -> None:
    assert run.Experiment.catalog() == ["oldtimes"]
    assert run.Experiment.catalog("oldtimes") == [ID]
    assert run.Experiment.from_title("oldtimes")._id == ID


def test_its_status_is_known(old: Path) -> None:
    exp = run.Experiment.from_id(ID)
    assert states(exp) == {
        "one": "SUCCEEDED",
        "fit": "SUCCEEDED",
        "pair": "SUCCEEDED",
        "bad": "FAILED",
    }
    assert statuses(exp)["one"]["local_dir"] == str(old / "experiments" / "oldtimes" / ID / "one")


def test_its_jobs_are_those_that_were_added(old: Path) -> None:
    exp = run.Experiment.from_id(ID)
    assert [job.id for job in exp.jobs] == ["one", "fit", "pair", "bad"]
    assert [job.dependencies for job in exp.jobs] == [[], ["one"], ["fit"], []]
    assert exp.jobs[0].executor.env_vars == {"COLOUR": "blue"}


def test_its_logs_can_be_read(old: Path, capfd: pytest.CaptureFixture[str]) -> None:
    exp = run.Experiment.from_id(ID)
    exp.logs("one")
    exp.logs("fit")
    exp.logs("pair")
    err = capfd.readouterr().err
    assert "one blue\n" in err
    assert "width 4 steps 3\n" in err
    assert "pair-0/0 left" in err
    assert "pair-1/0 right" in err


def test_cancelling_what_ended_long_ago_is_fine(old: Path) -> None:
    exp = run.Experiment.from_id(ID)
    exp.cancel("one")
    assert states(exp)["one"] == "SUCCEEDED"


def test_looking_does_not_change_the_old_directory(old: Path) -> None:
    directory = old / "experiments"
    before = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    exp = run.Experiment.from_id(ID)
    exp.status(return_dict=True)
    exp.logs("one")
    index = (old / ".local_jobs.json").read_bytes()
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == before
    assert (old / ".local_jobs.json").read_bytes() == index


@pytest.mark.slow
def test_its_tasks_can_be_seen_and_it_can_be_run_again(old: Path, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "old = run.Experiment.from_id(sys.argv[1])\n"
        "again = old.reset()\n"
        "with again:\n"
        "    again.tasks[1].steps = 7\n"
        "    again.run()\n"
        "print(again.status_json())\n",
    )
    done = launch(path, ID)
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout[done.stdout.index("{\n") : done.stdout.rindex("}") + 1])
    assert {job: entry["status"] for job, entry in status.items()} == {
        "one": "SUCCEEDED",
        "fit": "SUCCEEDED",
        "pair": "SUCCEEDED",
        "bad": "FAILED",
    }
    assert log_of_handle(status["fit"]["handle"]) == ["width 4 steps 7\n"]
    assert log_of_handle(status["one"]["handle"]) == ["one blue\n"]
    assert len(run.Experiment.catalog("oldtimes")) == 2


def test_a_home_that_was_moved_is_still_understood(nemorun_home: Path) -> None:
    shutil.copytree(DATA / "experiments", nemorun_home / "experiments")
    exp = run.Experiment.from_id(ID)
    assert [job.id for job in exp.jobs] == ["one", "fit", "pair", "bad"]
    assert set(states(exp)) == {"one", "fit", "pair", "bad"}


@pytest.mark.slow
def test_the_example_looks_at_it_and_runs_it_again(old: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "old_directory.py"
    done = launch(script, "oldtimes")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for line in ("one blue", "width 4 steps 3", "runs: 2"):
        assert f"{line}\n" in said
    assert len(re.findall(r"^\d+ .* SUCCEEDED ", said, re.MULTILINE)) == 6, (
        "three of the old jobs, and of the new ones"
    )
