"""What the Lepton executor works out before it asks anybody."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx.specs import AppState

from nemo_run._backends.lepton import mover
from nemo_run._backends.lepton.client import job_states
from nemo_run._backends.lepton.script import ExitMark, job_name, launch_script
from nemo_run.run.torchx_backend.schedulers import lepton

TAKEN = re.compile(r"[a-z][a-z0-9-]{0,34}[a-z0-9]")


class TestNames:
    @given(st.text(), st.text(min_size=1))
    def test_every_name_becomes_one_that_lepton_takes(self, name: str, tag: str) -> None:
        assert TAKEN.fullmatch(job_name(name, tag))
        assert not job_name(name, tag).endswith("by-lepton")

    def test_the_same_name_and_tag_give_the_same(self) -> None:
        assert job_name("train", "nr-1") == job_name("train", "nr-1")

    def test_what_is_cut_off_still_tells_apart(self) -> None:
        names = {job_name("x" * 40 + str(number), "nr-1") for number in range(100)}
        assert len(names) == 100
        assert job_name("a.b", "nr-1") != job_name("a_b", "nr-1")

    def test_people_recognise_their_name(self) -> None:
        assert job_name("Pretrain_7B.v2", "nr-1").startswith("pretrain-7b-v2-")


class TestStates:
    def test_every_state_of_the_vendor_is_mapped(self) -> None:
        assert {state.name for state in job_states()} <= lepton._STATES.keys()
        assert lepton.LEPTON_STATES.keys() == set(job_states())

    def test_the_states_of_0_12_mean_what_they_meant(self) -> None:
        meant = {
            "Starting": AppState.PENDING,
            "Running": AppState.RUNNING,
            "Failed": AppState.FAILED,
            "Completed": AppState.SUCCEEDED,
            "Deleting": AppState.RUNNING,
            "Restarting": AppState.PENDING,
            "Archived": AppState.SUCCEEDED,
            "Stopped": AppState.CANCELLED,
            "Stopping": AppState.CANCELLED,
        }
        known = {state.name: app_state for state, app_state in lepton.LEPTON_STATES.items()}
        assert {name: known[name] for name in meant} == meant

    def test_waiting_is_pending_and_not_knowing_is_not_failing(self) -> None:
        states = job_states()
        for name in ("Queueing", "Awaiting", "PendingRetry"):
            assert lepton.LEPTON_STATES[states[name]] is AppState.PENDING
        assert lepton.LEPTON_STATES[states.Unknown] is AppState.UNKNOWN
        assert lepton.LEPTON_STATES[states("a word of tomorrow")] is AppState.UNKNOWN


def run_script(
    tmp_path: Path, command: list[str], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a launch script here, with a directory instead of /nemo_run."""
    text = launch_script(command, job_id="job-1", job_dir=str(tmp_path / "job"))
    (tmp_path / "job").mkdir()
    text = text.replace("/nemo_run", str(tmp_path / "link"))
    return subprocess.run(
        ["bash", "-c", text],
        env={"PATH": os.environ["PATH"], **(env or {})},
        capture_output=True,
        text=True,
    )


class TestScript:
    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_it_ends_as_the_command_did_and_says_so(self, tmp_path: Path, code: int) -> None:
        done = run_script(tmp_path, ["bash", "-c", f"echo out; exit {code}"])
        assert done.returncode == code
        out, mark = done.stdout.splitlines()
        assert out == "out"
        assert ExitMark("job-1").end(mark) == (0, code)

    def test_it_runs_where_the_code_is(self, tmp_path: Path) -> None:
        done = run_script(tmp_path, ["pwd", "-P"])
        assert done.stdout.splitlines()[0] == str(tmp_path / "job" / "code")

    def test_several_nodes_meet_at_the_first(self, tmp_path: Path) -> None:
        done = run_script(
            tmp_path,
            ["echo", "$MASTER_ADDR:$MASTER_PORT $NODE_RANK/$NNODES"],
            {
                "LEPTON_JOB_NAME": "j",
                "LEPTON_JOB_TOTAL_WORKERS": "4",
                "LEPTON_JOB_WORKER_INDEX": "2",
                "LEPTON_SUBDOMAIN": "j-svc",
            },
        )
        assert done.stdout.splitlines()[0] == "j-0.j-svc:29400 2/4"

    def test_what_the_user_set_counts(self, tmp_path: Path) -> None:
        env = {"MASTER_PORT": "1234", "MASTER_ADDR": "mine"}
        done = run_script(tmp_path, ["echo", "$MASTER_ADDR:$MASTER_PORT"], env)
        assert done.stdout.splitlines()[0] == "mine:1234"

    def test_nothing_is_downloaded(self) -> None:
        text = launch_script(["true"], job_id="job-1", job_dir="/x")
        assert not re.search(r"wget|curl|https?://", text)


MARK = "[nemo_run job-1 ended attempt 2 with exit code 3]"


class TestMark:
    def test_it_says_which_attempt_ended_and_how(self) -> None:
        assert ExitMark("job-1").end(MARK) == (2, 3)
        assert ExitMark("job-1").words in MARK

    def test_it_is_taken_out_of_the_log(self) -> None:
        mark = ExitMark("job-1")
        assert mark.strip(MARK + "\n") == ""
        assert mark.strip("no newline" + MARK + "\n") == "no newline"

    def test_what_others_print_is_left_alone(self) -> None:
        mark = ExitMark("job-1")
        for line in (MARK.replace("job-1", "job-2") + "\n", MARK + " quoted\n"):
            assert mark.end(line) is None
            assert mark.strip(line) == line


class TestParts:
    @given(st.binary(max_size=3 * mover.PART_BYTES + 5))
    def test_parts_make_the_archive_again(self, archive: bytes) -> None:
        joined = b"".join(
            base64.b64decode("".join(environment.values())) for environment in mover.parts(archive)
        )
        assert joined == archive

    def test_no_part_is_too_large_for_a_job_or_a_process(self) -> None:
        for environment in mover.parts(os.urandom(2 * mover.PART_BYTES + 17)):
            assert len(environment) <= mover.VARIABLES
            assert all(len(value) < 128 * 1024 for value in environment.values())
            assert sum(map(len, environment.values())) < 600_000

    def test_the_archive_holds_the_directory_and_not_who_owned_it(self, tmp_path: Path) -> None:
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "a b.py").write_text("x")
        (tmp_path / "code" / "link").symlink_to("a b.py")
        (tmp_path / "job.tar.gz").write_text("left out")
        packed = mover.pack(tmp_path, without=["job.tar.gz"])
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            entries = archive.getmembers()
        assert [entry.name for entry in entries] == ["code", "code/a b.py", "code/link"]
        assert {(entry.uid, entry.uname) for entry in entries} == {(0, "")}

    def test_the_same_files_make_the_same_archive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a").write_text("x")
        first = mover.pack(tmp_path)
        monkeypatch.setattr(time, "time", lambda: 12345.0)
        assert mover.pack(tmp_path) == first


BROKEN = {
    "is missing": {
        "__init__": "raise ModuleNotFoundError(\"No module named 'leptonai'\", name='leptonai')"
    },
    "does not find what it needs": {"__init__": "import no_such_package"},
    "has lost a name": {"__init__": "raise ImportError('cannot import name x')"},
    "does not get along with what it needs": {"__init__": "raise TypeError('metaclass conflict')"},
    "has lost a module": {"__init__": ""},
    "has a broken module": {
        "__init__": "",
        "api/__init__": "",
        "api/v2/__init__": "",
        "api/v2/client": "",
        "api/v2/types/__init__": "",
        "api/v2/types/job": "raise AttributeError('broken here')",
    },
}

WITHOUT_LEPTON = """
from importlib.metadata import entry_points
import nemo_run as run
from nemo_run.exceptions import MissingDependencyError
from nemo_run.run.torchx_backend.schedulers import lepton

for name in run.__all__:
    getattr(run, name)
for point in entry_points(group="torchx.schedulers"):
    point.load()("nemo_run")
lepton.LEPTON_JOB_DIRS
run.run(run.Script(inline="true"), executor=run.LocalExecutor())
run.LeptonExecutor(container_image="i", nemo_run_dir="/d")
try:
    lepton.LEPTON_STATES
except MissingDependencyError as err:
    print(err)
"""


@pytest.mark.slow
@pytest.mark.parametrize("files", BROKEN.values(), ids=BROKEN)
def test_without_the_vendors_client_only_lepton_does_not_work(
    tmp_path: Path, files: dict[str, str]
) -> None:
    for name, text in files.items():
        path = tmp_path / "leptonai" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LEPTON],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert "pip install 'nemo_run[lepton]'" in said
    if "broken here" in str(files):
        assert "broken here" in said
