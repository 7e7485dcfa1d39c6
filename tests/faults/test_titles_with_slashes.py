"""Titles with slashes: printed commands work, directories are not shared, older ones are found."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from tests.cli import commands
from tests.cli.commands import Result
from tests.integration.launching import launch, write

import nemo_run as run
from nemo_run.core.tunnel.client import SSHTunnel

PROGRAM = """
for title in sys.argv[1:]:
    with run.Experiment(title) as exp:
        exp.add(script(f"echo this is {title}"), name="job")
        exp.run(detach=True)
    exp.wait()
"""


def nemorun(where: Path, *words: str) -> Result:
    return commands.run([commands.BIN / "nemorun", *words], cwd=where, timeout_s=90)


def test_an_experiment_whose_title_begins_with_a_dot_is_listed_and_found(tmp_path: Path) -> None:
    titles = ("../net", ".net")
    shown = launch(write(tmp_path, PROGRAM), *titles)
    assert shown.returncode == 0, shown.stderr
    printed = re.findall(r"^nemorun (experiment logs .*)$", shown.stdout, re.MULTILINE)
    said = [nemorun(tmp_path, *shlex.split(words)).out for words in printed]
    assert said == [f"this is {title}\n" for title in titles]
    assert len(nemorun(tmp_path, "experiment", "list", "--ids").lines) == 2
    assert nemorun(tmp_path, "experiment", "rm", "--yes", *titles).code == 0
    assert run.Experiment.catalog() == []


def test_the_printed_commands_find_the_experiment(tmp_path: Path) -> None:
    shown = launch(write(tmp_path, PROGRAM), "team/net", "team_net")
    assert shown.returncode == 0, shown.stderr
    printed = re.findall(r"^nemorun (experiment logs .*)$", shown.stdout, re.MULTILINE)
    assert len(printed) == 2
    said = [nemorun(tmp_path, *shlex.split(words)).out for words in printed]
    assert said == ["this is team/net\n", "this is team_net\n"]
    for title in ("team/net", "team_net"):
        assert nemorun(tmp_path, "experiment", "logs", title).out == f"this is {title}\n"
        assert len(nemorun(tmp_path, "experiment", "list", title, "--ids").lines) == 1
        assert len(run.Experiment.catalog(title)) == 1


def test_one_that_an_earlier_release_kept_beside_another_title_is_found(tmp_path: Path) -> None:
    assert launch(write(tmp_path, PROGRAM), "team/net", "team_net").returncode == 0
    home = Path(os.environ["NEMORUN_HOME"], "experiments")
    made = Path(run.Experiment.from_title("team/net")._exp_dir)
    made.rename(home / "team_net" / made.name)
    for title in ("team/net", "team_net"):
        assert run.Experiment.from_title(title)._title == title
    for word in ("team/net", made.name, f"team/net_{made.name.rpartition('_')[2]}"):
        found = nemorun(tmp_path, "experiment", "status", word, "--json")
        assert found.json()["id"] == made.name


def test_the_directory_on_a_cluster_is_named_as_left_over() -> None:
    tunnel = SSHTunnel(host="login", user="me", job_dir="/cluster")
    executor = run.SlurmExecutor(account="us", tunnel=tunnel)
    executor.assign("team/net_17", "/home/exp", "job", "job")
    assert executor.tunnel.job_dir == "/cluster/team/net/team/net_17"
    # As it is when it was stored and read again.
    executor.tunnel._set_job_dir("team/net_17")
    stored = SSHTunnel(host="login", user="me", job_dir=executor.tunnel.job_dir)
    stored._set_job_dir("team/net_17")
    assert stored.job_dir == "/cluster/team/net/team/net_17"
    (left,) = executor.leftovers("slurm_tunnel://nemo_run/team/net_17___job___1")
    assert "/cluster/team/net/team/net_17" in left.what
