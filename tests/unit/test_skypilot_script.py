"""What a SkyPilot job runs on its nodes, run by a real shell."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.contract.test_schedulers import AWKWARD

import nemo_run
from nemo_run._backends.skypilot.task import run_script, setup_script, task_name

SHOW = ["python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home directory of somebody who cannot write to the root of this machine."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def run(script: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "SKYPILOT_NODE_IPS": "10.0.0.1", **env},
        user=65534 if os.geteuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
    )


def test_literals_arrive_letter_by_letter(home: Path) -> None:
    texts = [*AWKWARD, "/nemo_run/x", "--a=/nemo_run/x", "$num_nodes", "$nemo_run_dir"]
    literals = [nemo_run.literal(text) for text in texts]
    done = run(run_script("job", [*SHOW, *literals], retries=0), home)
    assert json.loads(done.stdout) == texts


def test_arguments_arrive_unchanged(home: Path) -> None:
    done = run(run_script("job", [*SHOW, *AWKWARD], retries=0), home)
    assert json.loads(done.stdout) == AWKWARD


def test_variables_of_the_cluster_are_filled_in(home: Path) -> None:
    wanted = ["$head_node_ip:29500", "${num_nodes}", "$SKYPILOT_NODE_RANK", "$HOME"]
    script = run_script("job", [*SHOW, *wanted], retries=0)
    done = run(script, home, SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2", SKYPILOT_NODE_RANK="1")
    assert json.loads(done.stdout) == ["10.0.0.1:29500", "2", "1", "$HOME"]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("/nemo_run/configs/a", "{}/configs/a"),
        ("--config=/nemo_run/configs/a", "--config={}/configs/a"),
        ("/nemo_run", "{}"),
        ("/nemo_runner/a", "/nemo_runner/a"),
        ("/data/nemo_run/a", "/data/nemo_run/a"),
    ],
)
def test_paths_in_the_job_directory_lead_to_that_of_the_job(
    home: Path, given: str, seen: str
) -> None:
    done = run(run_script("job-1", [*SHOW, given], retries=0), home)
    assert json.loads(done.stdout) == [seen.format(home / ".nemo_run" / "job-1")]


def test_the_command_starts_in_the_code(home: Path) -> None:
    done = run(run_script("job-1", ["pwd"], retries=0), home)
    assert done.stdout == f"{home}/.nemo_run/job-1/code\n"


def test_the_setup_finds_the_code_and_ends_as_its_last_command_does(home: Path) -> None:
    code = home / ".nemo_run" / "job-1" / "code"
    code.mkdir(parents=True)
    (code / "requirements.txt").write_text("numpy\n")
    done = run(setup_script("job-1", 'cat requirements.txt "$nemo_run_dir/code/none"'), home)
    assert (done.stdout, done.returncode) == ("numpy\n", 1)


@pytest.mark.parametrize("retries", [0, 1])
def test_the_exit_code_is_that_of_the_command(home: Path, retries: int) -> None:
    assert run(run_script("job", ["bash", "-c", "exit 7"], retries=retries), home).returncode == 7


def test_a_command_that_fails_is_started_again_and_says_so(home: Path) -> None:
    command = ["bash", "-c", "echo started; test -e mark || { touch mark; exit 3; }"]
    done = run(run_script("job", command, retries=5), home)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "started",
        "nemo_run: try 2 of 6, after exit code 3",
        "started",
    ]


def test_a_node_without_conda_says_nothing_about_it(home: Path) -> None:
    assert run(run_script("job", ["true"], retries=0), home).stderr == ""


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("train", "train"),
        ("a___b", "a-b"),
        ("___", "job"),
        ("Mixed.Case-and_more", "Mixed.Case-and_more"),
        ("naïve it's", "na-ve-it-s"),
        ("x" * 60, "x" * 60),
        ("x" * 61, f"{'x' * 49}-{sha256(b'x' * 61).hexdigest()[:10]}"),
        ("a/b..c", "a-b-c"),
        ("1234", "1234"),
    ],
)
def test_names_become_what_skypilot_takes(name: str, taken: str) -> None:
    assert task_name(name) == taken
