"""Jobs that no process will start are shown as that, and not as if they ran."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cli import commands
from tests.cli.commands import Result
from tests.integration.launching import only_experiment, start, wait_for, write

from nemo_run._experiments.store.launcher import WAITS


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", "experiment", *words], cwd=where, timeout_s=60)


def test_an_experiment_whose_launcher_was_killed_waits_for_resume(tmp_path: Path) -> None:
    go = tmp_path / "go"
    launching = write(
        tmp_path,
        "with run.Experiment('orphan') as exp:\n"
        f"    exp.add(script(\"touch '{tmp_path}/began'; \"\n"
        f"            \"while [ ! -e '{go}' ]; do sleep 0.05; done; echo hello\"), name='first')\n"
        "    exp.add(script('echo second'), name='second', dependencies=['first'])\n"
        "    exp.run()\n",
    )
    launcher = start(launching)
    wait_for((tmp_path / "began").exists, "the first job")
    assert WAITS not in nemorun(tmp_path, "status", "orphan").out
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    # The first job goes on; the second will not be started.
    assert nemorun(tmp_path, "list", "--json").json()[0]["state"] == "RUNNING"
    go.touch()
    wait_for(lambda: "SUCCEEDED" in nemorun(tmp_path, "status", "orphan", "0").out, "the end")

    second = nemorun(tmp_path, "status", "orphan", "--json").json()["jobs"]["second"]
    assert (second["status"], second["message"]) == ("UNSUBMITTED", WAITS)
    (entry,) = nemorun(tmp_path, "list", "--json").json()
    assert (entry["state"], entry["waits_for_resume"]) == ("UNSUBMITTED", True)
    (later,) = nemorun(tmp_path, "list", "--json").json()
    assert later["duration_s"] == entry["duration_s"]  # the clock stands still
    assert WAITS in nemorun(tmp_path, "list").lines[-1]
    assert f"  Message: {WAITS}" in nemorun(tmp_path, "show", "orphan", "second").lines

    followed = nemorun(tmp_path, "logs", "-f", "orphan")
    assert (followed.code, followed.out) == (1, "first hello\n")
    assert f"second {WAITS}" in followed.err

    refused = nemorun(tmp_path, "rm", "--yes", "orphan")
    assert refused.code == 2
    assert "resume" in refused.err
    assert "cancel --all" in refused.err
    assert Path(os.environ["NEMORUN_HOME"], "experiments", "orphan").is_dir()

    only_experiment("orphan").resume()
    (ended,) = nemorun(tmp_path, "list", "--json").json()
    assert ended["state"] == "SUCCEEDED"
    assert "waits_for_resume" not in ended
    assert nemorun(tmp_path, "rm", "--yes", "orphan").code == 0
