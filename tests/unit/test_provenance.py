"""Every experiment records where it came from, whatever state the code is in."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.contract.experiments import experiment, script, states, statuses

import nemo_run as run
from nemo_run._experiments.provenance.git_state import git_state, without_credentials
from nemo_run._experiments.provenance.record import FILE, PATCH, GitState, Provenance
from nemo_run._experiments.provenance.recording import installed_packages
from nemo_run.exceptions import RecordError

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Run git in a repository without commits, which is the current directory."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)

    def call(*argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *argv], cwd=cwd or repository, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    call("init", "-q", "-b", "main")
    return call


@pytest.fixture
def committed(git: Git) -> Git:
    """The same with one commit of two files."""
    Path("train.py").write_text("rate = 1\n")
    Path("keep.py").write_text("")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return git


def launched(**settings: Any) -> run.Experiment:
    with experiment(**settings) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    return exp


def provenance_of(exp: run.Experiment) -> Provenance:
    found = exp.provenance
    assert found is not None
    return found


def state_here(tmp_path: Path, **limits: Any) -> GitState:
    found = tmp_path / "found"
    found.mkdir(exist_ok=True)
    return git_state(Path.cwd(), found, **limits)


class TestCode:
    def test_commit_branch_and_changes_are_recorded(self, committed: Git) -> None:
        Path("train.py").write_text("rate = 2\n")
        Path("new.py").write_text("")
        exp = launched()
        found = provenance_of(exp).git
        assert found == GitState(
            root=str(Path.cwd()),
            commit=committed("rev-parse", "HEAD"),
            branch="main",
            changed=("train.py",),
            untracked=("new.py",),
            patch=PATCH,
        )

    def test_the_patch_brings_the_changes_back(self, committed: Git, tmp_path: Path) -> None:
        Path("train.py").write_text("rate = 2\n")
        Path("blob").write_bytes(bytes(range(256)))
        committed("add", "blob")
        exp = launched()
        clone = tmp_path / "clone"
        committed("clone", "-q", ".", str(clone))
        committed("apply", str(Path(exp._exp_dir) / PATCH), cwd=clone)
        assert (clone / "train.py").read_text() == "rate = 2\n"
        assert (clone / "blob").read_bytes() == bytes(range(256))

    def test_a_clean_tree_has_no_patch(self, committed: Git) -> None:
        exp = launched()
        assert not (Path(exp._exp_dir) / PATCH).exists()
        assert provenance_of(exp).git.patch == ""  # type: ignore[union-attr]

    def test_it_is_asked_from_a_directory_below(
        self, committed: Git, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        top = Path.cwd()
        (top / "sub").mkdir()
        (top / "train.py").write_text("rate = 3\n")
        monkeypatch.chdir(top / "sub")
        found = provenance_of(launched()).git
        assert found is not None
        assert (found.root, found.changed) == (str(top), ("train.py",))

    @pytest.mark.parametrize(
        "name", ["a b", 'say "hi"', "x\ny", "naïve", b"\xff".decode("utf-8", "surrogateescape")]
    )
    def test_names_of_files_are_kept_as_they_are(self, committed: Git, name: str) -> None:
        Path(name).write_text("")
        committed("add", ".")
        exp = launched()
        assert provenance_of(exp).git.changed == (name,)  # type: ignore[union-attr]

    def test_settings_of_the_user_do_not_change_the_patch(
        self, committed: Git, tmp_path: Path
    ) -> None:
        for setting in ("diff.noprefix=true", "color.ui=always", "diff.external=false"):
            committed("config", *setting.split("="))
        committed("config", "status.showUntrackedFiles", "no")
        Path("train.py").write_text("rate = 2\n")
        Path("new.py").write_text("")
        exp = launched()
        patch = (Path(exp._exp_dir) / PATCH).read_text()
        assert patch.startswith("diff --git a/train.py b/train.py\n")
        assert provenance_of(exp).git.untracked == ("new.py",)  # type: ignore[union-attr]

    def test_the_repository_is_left_as_it_was(self, committed: Git) -> None:
        os.utime("train.py", (1, 1))  # what git would note in its index
        before = Path(".git/index").read_bytes()
        launched()
        assert Path(".git/index").read_bytes() == before

    def test_it_is_recorded_once_for_many_jobs(self, committed: Git, tmp_path: Path) -> None:
        counter = tmp_path / "bin" / "git"
        counter.parent.mkdir()
        counter.write_text(f'#!/bin/sh\necho x >> "{tmp_path}/calls"\nexec /usr/bin/git "$@"\n')
        counter.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{counter.parent}:{os.environ['PATH']}")
            with experiment() as exp:
                for number in range(5):
                    exp.add(script("true"), name=f"job{number}")
                exp.run()
        assert len((tmp_path / "calls").read_text().split()) <= 3


class TestUnusualRepositories:
    def test_one_without_commits(self, git: Git, tmp_path: Path) -> None:
        Path("new.py").write_text("")
        git("add", ".")
        found = state_here(tmp_path)
        assert (found.commit, found.branch, found.changed) == ("", "main", ("new.py",))
        assert (found.note, found.patch) == ("", "")
        assert str(found) == "no commit yet on main, 1 file changed"

    def test_no_branch_checked_out(self, committed: Git, tmp_path: Path) -> None:
        committed("checkout", "-q", "--detach")
        found = state_here(tmp_path)
        assert (found.commit, found.branch) == (committed("rev-parse", "HEAD"), "")
        assert str(found) == f"{found.commit[:7]}, detached"

    def test_a_work_tree_of_another(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        committed("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
        monkeypatch.chdir(tmp_path / "side")
        found = provenance_of(launched()).git
        assert found is not None
        assert (found.branch, found.root) == ("side", str(tmp_path / "side"))

    def test_a_submodule_that_was_changed(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        committed("clone", "-q", ".", str(tmp_path / "library"))
        committed(
            "-c",
            "protocol.file.allow=always",
            "submodule",
            "add",
            "-q",
            str(tmp_path / "library"),
            "lib",
        )
        committed("commit", "-q", "-m", "with a library")
        Path("lib/train.py").write_text("rate = 9\n")
        assert state_here(tmp_path).changed == ("lib",)
        monkeypatch.chdir("lib")
        found = provenance_of(launched()).git
        assert found is not None
        assert found.root == str(Path.cwd())
        assert found.changed == ("train.py",)

    def test_one_that_belongs_to_somebody_else(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        found = state_here(tmp_path)
        assert "dubious ownership" in found.note
        assert str(found).startswith("not known: detected dubious ownership")

    def test_git_that_is_not_installed(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        found = state_here(tmp_path)
        assert "git cannot be asked" in found.note

    def test_a_damaged_one(self, committed: Git) -> None:
        Path(".git/HEAD").write_text("nonsense")
        exp = launched()
        assert states(exp) == {"job": "SUCCEEDED"}
        assert "not a git repository" in provenance_of(exp).git.note  # type: ignore[union-attr]

    def test_a_hook_that_launches_means_its_own(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
        assert state_here(tmp_path).branch == "main"

    def test_changes_too_large_to_keep_are_said(self, committed: Git, tmp_path: Path) -> None:
        Path("train.py").write_bytes(os.urandom(3 << 20))
        found = state_here(tmp_path, patch_limit_bytes=1 << 20)
        assert (found.changed, found.patch) == (("train.py",), "")
        assert "more than 1 MiB" in found.note
        assert not (tmp_path / "found" / PATCH).exists()

    def test_git_that_never_answers_is_given_up(
        self, committed: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck = tmp_path / "bin" / "git"
        stuck.parent.mkdir()
        stuck.write_text("#!/bin/sh\nexec sleep 600\n")
        stuck.chmod(0o755)
        monkeypatch.setenv("PATH", f"{stuck.parent}:{os.environ['PATH']}")
        started = time.monotonic()
        found = state_here(tmp_path, patience_s=0.3)
        assert time.monotonic() - started < patience.seconds(20)
        assert "longer than" in found.note

    def test_no_repository_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = provenance_of(launched())
        assert (found.git, found.code) == (None, "")


class TestMachineAndCall:
    def test_who_launched_what_where_is_recorded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["train.py", "rate=2"])
        before = time.time()
        found = provenance_of(launched())
        assert before <= found.recorded_at <= time.time()
        assert found.nemo_run == run.__version__
        assert found.python == ".".join(map(str, sys.version_info[:3]))
        assert (found.executable, found.host) == (sys.executable, os.uname().nodename)
        assert (found.argv, found.cwd) == (("train.py", "rate=2"), str(tmp_path))
        assert found.user

    def test_installed_packages_are_recorded(self) -> None:
        from importlib.metadata import version

        packages = provenance_of(launched()).packages
        for name in ("torchx", "fiddle", "rich"):
            assert packages[name] == version(name)

    def test_the_first_of_two_versions_on_the_path_counts(self, tmp_path: Path) -> None:
        for place, version in (("one", "2.0"), ("two", "1.0")):
            (tmp_path / place / f"some_name-{version}.dist-info").mkdir(parents=True)
        path = [str(tmp_path / place) for place in ("one", "missing", "two")]
        assert installed_packages(path) == {"some_name": "2.0"}

    def test_only_the_owner_can_read_it(self, committed: Git) -> None:
        Path("train.py").write_text("rate = 2\n")
        exp = launched()
        for name in (FILE, PATCH):
            mode = (Path(exp._exp_dir) / name).stat().st_mode
            assert stat.S_IMODE(mode) == 0o600

    def test_direct_runs_are_recorded_and_dry_runs_are_not(self) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="job")
            exp.dryrun(log=False, delete_exp_dir=False)
            assert exp.provenance is None
        with experiment() as exp:
            exp.add(script("true"), name="job")
            exp.run(direct=True)
        assert exp.provenance is not None


class TestShowing:
    def test_status_says_which_code_ran(
        self, committed: Git, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Path("train.py").write_text("rate = 2\n")
        exp = launched(clean_mode=False)
        line = f"{committed('rev-parse', 'HEAD')[:7]} on main, 1 file changed"
        capsys.readouterr()
        run.Experiment.from_id(exp._id).status()
        assert f"Code: {line}\n" in capsys.readouterr().out
        assert statuses(exp)["job"]["code"] == line
        assert json.loads(exp.status_json())["job"]["code"] == line
        assert line in repr(exp)

    def test_one_of_0_12_has_none(self, capsys: pytest.CaptureFixture[str]) -> None:
        exp = launched(clean_mode=False)
        (Path(exp._exp_dir) / FILE).unlink()
        again = run.Experiment.from_id(exp._id)
        assert again.provenance is None
        capsys.readouterr()
        again.status()
        assert "Code:" not in capsys.readouterr().out
        assert statuses(again)["job"]["code"] == ""

    def test_a_damaged_record_is_an_error_only_for_those_who_ask_for_it(self) -> None:
        exp = launched()
        (Path(exp._exp_dir) / FILE).write_text('{"format": 1, "git": 3}')
        with pytest.raises(RecordError, match="damaged"):
            _ = exp.provenance
        assert states(exp) == {"job": "SUCCEEDED"}
        assert "demo" in repr(exp)

    def test_what_a_later_release_adds_is_left_out(self) -> None:
        exp = launched()
        path = Path(exp._exp_dir) / FILE
        path.write_text(json.dumps({**json.loads(path.read_text()), "weather": "fine"}))
        assert exp.provenance is not None

    def test_one_of_a_later_format_is_refused(self) -> None:
        exp = launched()
        path = Path(exp._exp_dir) / FILE
        path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
        with pytest.raises(RecordError, match="Upgrade"):
            _ = exp.provenance


TOKEN = "ghp_" + "t0kenT0KEN" * 4


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://ann:t0ken@example.org/r.git", "https://example.org/r.git"),
        ("https://t0ken@example.org/r.git", "https://example.org/r.git"),
        ("https://example.org/r.git?token=t0ken", "https://example.org/r.git"),
        ("ssh://git@example.org/r.git", "ssh://git@example.org/r.git"),
        ("ssh://git:t0ken@example.org/r.git", "ssh://example.org/r.git"),
        ("git@example.org:r.git", "git@example.org:r.git"),
        ("https://ann:t0/ken@example.org/r.git", "https://example.org/r.git"),
        ("https://ann:t0@ken@example.org/r.git", "https://example.org/r.git"),
        ("https://ann:t0#k?en@example.org/r.git", "https://example.org/r.git"),
        ("https://example.org/r.git#t0ken", "https://example.org/r.git"),
        ("ann:t0ken@example.org:r.git", "example.org:r.git"),
        ("helper::https://ann:t0ken@example.org/r.git", "helper::https://example.org/r.git"),
        ("HTTPS://ann:t0ken@example.org/r.git", "HTTPS://example.org/r.git"),
        ("https:/ann:t0ken@example.org/r.git", "https:/example.org/r.git"),
        (f"ssh://{TOKEN}@example.org/r.git", "ssh://example.org/r.git"),
        (f"{TOKEN}@example.org:r.git", "example.org:r.git"),
        ("https://example.org:8443/a@b.git", "https://example.org:8443/a@b.git"),
        ("https://ann:t0ken@example.org/@team/r.git", "https://example.org/@team/r.git"),
        ("example.org:/srv/r@2.git", "example.org:/srv/r@2.git"),
        ("/srv/git/r@2.git", "/srv/git/r@2.git"),
        ("", ""),
    ],
)
def test_credentials_are_taken_out_of_addresses(url: str, kept: str) -> None:
    assert without_credentials(url) == kept


def test_the_remote_is_recorded_without_credentials(committed: Git, tmp_path: Path) -> None:
    committed("remote", "add", "backup", "https://example.org/backup.git")
    assert state_here(tmp_path).remote == "https://example.org/backup.git"
    committed("remote", "add", "origin", "https://ann:t0ken@example.org/r.git")
    assert state_here(tmp_path).remote == "https://example.org/r.git"
