"""Running again with the recorded code, and throwing away what nobody names any more."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.cli.commands import nemorun
from tests.contract.experiments import experiment, script, states, statuses
from tests.contract.repositories import git
from tests.unit.test_code_travels import Elsewhere

import nemo_run as run
from nemo_run._experiments.provenance.record import FILE, PATCH, ArchiveRecord
from nemo_run.exceptions import ConfigError, PackagingError, RecordError
from nemo_run.run.archives import gc, kept_archives

NOW = timedelta(0)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a file to take along."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("rate = 1\n")
    monkeypatch.chdir(tree)
    return tree


def launched() -> run.Experiment:
    with experiment(executor=Elsewhere(packager=run.SnapshotPackager())) as exp:
        exp.add(script("true"), name="job")
        exp.add([script("true"), script("true")], name="pair")
        exp.run()
    return exp


def archives(exp: run.Experiment) -> dict[str, ArchiveRecord]:
    assert exp.provenance is not None
    return dict(exp.provenance.archives)


def code_of(exp: run.Experiment, job: str) -> str:
    return (Path(exp._exp_dir) / job / "code" / "train.py").read_text()


@dataclass(kw_only=True)
class ElsewhereWithoutLinks(Elsewhere):
    """As where the home directory and the experiment are on different file systems."""

    def package(self, packager: run.Packager, job_name: str) -> None:
        super().package(packager, job_name)
        path = Path(self.job_dir) / f"{job_name}.tar.gz"
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)


class TestRecord:
    def test_names_the_archive_of_every_job(self, tree: Path, nemorun_home: Path) -> None:
        exp = launched()
        found = archives(exp)
        assert set(found) == {"job", "pair"}
        for job, archive in found.items():
            linked = Path(exp._exp_dir) / job / f"{job}.tar.gz"
            kept = nemorun_home / "archives" / f"{archive.sha256}.tar.gz"
            assert linked.read_bytes() == kept.read_bytes()
            assert archive.size_bytes == linked.stat().st_size

    def test_is_right_where_the_archive_could_only_be_copied(
        self, tree: Path, nemorun_home: Path
    ) -> None:
        with experiment(executor=ElsewhereWithoutLinks(packager=run.SnapshotPackager())) as exp:
            exp.add(script("true"), name="job")
            exp.run()
        assert (nemorun_home / "archives" / f"{archives(exp)['job'].sha256}.tar.gz").exists()

    def test_a_job_that_takes_nothing_along_has_none(self, tree: Path) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="job")
            exp.run()
        assert archives(exp) == {}
        assert statuses(exp)["job"]["archive"] == ""

    def test_status_names_the_archive(self, tree: Path) -> None:
        exp = launched()
        assert statuses(exp)["job"]["archive"] == archives(exp)["job"].sha256

    def test_show_names_the_archive_and_the_changes(self, tree: Path, nemorun_home: Path) -> None:
        git(tree, "init", "-q", "-b", "main")
        git(tree, "add", "train.py")
        git(tree, "commit", "-q", "-m", "first")
        (tree / "train.py").write_text("rate = 2\n")
        exp = launched()
        shown = nemorun("experiment", "show", exp._id, "job", cwd=tree)
        assert f"  Archive: {archives(exp)['job'].sha256}" in shown.lines
        assert f"Changes: {Path(exp._exp_dir) / PATCH}" in shown.lines


class TestRunningAgain:
    def again(self, exp: run.Experiment, code: str) -> run.Experiment:
        again = run.Experiment.from_id(exp._id).reset(code=code)  # type: ignore[arg-type]
        with again:
            again.run()
        assert states(again) == {"job": "SUCCEEDED", "pair": "SUCCEEDED"}
        return again

    def test_uses_the_code_of_today_unless_told_otherwise(self, tree: Path) -> None:
        exp = launched()
        (tree / "train.py").write_text("rate = 2\n")
        again = self.again(exp, "today")
        assert code_of(again, "job") == "rate = 2\n"
        assert archives(again)["job"] != archives(exp)["job"]

    def test_can_use_the_recorded_code(self, tree: Path) -> None:
        exp = launched()
        (tree / "train.py").write_text("rate = 2\n")
        again = self.again(exp, "recorded")
        assert code_of(again, "job") == code_of(again, "pair") == "rate = 1\n"
        assert archives(again) == archives(exp)
        assert again.provenance is not None
        assert again.provenance.code == f"as recorded by {exp._id}"

    def test_a_job_that_is_added_brings_the_code_of_today(self, tree: Path) -> None:
        exp = launched()
        (tree / "train.py").write_text("rate = 2\n")
        with exp.reset(code="recorded") as again:
            again.add(script("true"), name="new")
            again.run()
        assert code_of(again, "job") == "rate = 1\n"
        assert code_of(again, "new") == "rate = 2\n"

    def test_the_origin_of_the_code_stays_known(self, tree: Path) -> None:
        exp = launched()
        (tree / "train.py").unlink()
        third = self.again(self.again(exp, "recorded"), "recorded")
        assert third.provenance is not None
        assert third.provenance.code_from == exp._id
        assert code_of(third, "job") == "rate = 1\n"

    def test_the_state_of_the_repository_is_that_of_the_recorded_code(
        self, tree: Path, tmp_path: Path
    ) -> None:
        git(tree, "init", "-q", "-b", "main")
        git(tree, "add", "train.py")
        git(tree, "commit", "-q", "-m", "first")
        (tree / "train.py").write_text("rate = 2\n")
        exp = launched()
        git(tree, "commit", "-q", "-a", "-m", "second")
        again = self.again(exp, "recorded")
        assert exp.provenance is not None
        assert again.provenance is not None
        assert again.provenance.git == exp.provenance.git
        patches = [(Path(e._exp_dir) / PATCH).read_text() for e in (exp, again)]
        assert patches[0] == patches[1]
        assert "+rate = 2" in patches[0]

    def test_a_misspelt_choice_is_refused(self, tree: Path) -> None:
        with pytest.raises(ConfigError, match="'today' or 'recorded'"):
            launched().reset(code="yesterday")  # type: ignore[arg-type]

    def test_code_that_was_collected_is_an_error_that_says_so(self, tree: Path) -> None:
        exp = launched()
        before = exp._id
        gc(older_than=NOW, named_too=True, dry_run=False)
        with pytest.raises(PackagingError, match=r"gc has removed it.*reset\(\)"):
            exp.reset(code="recorded")
        assert exp._id == before

    def test_code_that_is_collected_in_between_is_an_error_before_anything_is_submitted(
        self, tree: Path, nemorun_home: Path
    ) -> None:
        exp = launched().reset(code="recorded")
        gc(older_than=NOW, named_too=True, dry_run=False)
        jobs = list(nemorun_home.glob("jobs/*/*"))
        with exp, pytest.raises(PackagingError, match="gc has removed it"):
            exp.run()
        assert list(nemorun_home.glob("jobs/*/*")) == jobs

    def test_a_job_without_recorded_code_is_named(self, tree: Path) -> None:
        with experiment() as exp:
            exp.add(script("true"), name="here")
            exp.run()
        with pytest.raises(ConfigError, match="'here' took none along"):
            exp.reset(code="recorded")

    def test_an_experiment_of_0_12_has_none(self, tree: Path) -> None:
        exp = launched()
        (Path(exp._exp_dir) / FILE).unlink()
        with pytest.raises(ConfigError, match="recorded none"):
            exp.reset(code="recorded")


class TestCollecting:
    def test_keeps_what_experiments_name(self, tree: Path) -> None:
        exp = launched()
        assert kept_archives() == {archive.sha256 for archive in archives(exp).values()}
        assert gc(older_than=NOW, dry_run=False) == []
        exp.reset(code="recorded")

    def test_removes_what_no_experiment_names_any_more(
        self, tree: Path, nemorun_home: Path
    ) -> None:
        exp = launched()
        shutil.rmtree(exp._exp_dir)
        found = gc(older_than=NOW)
        assert [item.path.parent for item in found] == [nemorun_home / "archives"]
        assert found[0].path.exists()
        gc(older_than=NOW, dry_run=False)
        assert list((nemorun_home / "archives").glob("*.tar.gz")) == []

    def test_leaves_what_was_used_lately(self, tree: Path, nemorun_home: Path) -> None:
        exp = launched()
        shutil.rmtree(exp._exp_dir)
        assert gc(dry_run=False) == []
        assert gc(older_than=timedelta(hours=1), dry_run=False) == []
        assert len(list((nemorun_home / "archives").glob("*.tar.gz"))) == 1

    def test_experiments_kept_elsewhere_are_asked_too(self, tree: Path, tmp_path: Path) -> None:
        executor = Elsewhere(packager=run.SnapshotPackager())
        with experiment(base_dir=str(tmp_path / "elsewhere"), executor=executor) as exp:
            exp.add(script("true"), name="job")
            exp.run()
        assert kept_archives() == {archives(exp)["job"].sha256}

    def test_removes_nothing_where_it_cannot_be_known_what_is_named(
        self, tree: Path, nemorun_home: Path
    ) -> None:
        exp = launched()
        (Path(exp._exp_dir) / FILE).write_text("{")
        with pytest.raises(RecordError, match="damaged"):
            gc(older_than=NOW, dry_run=False)
        assert len(list((nemorun_home / "archives").glob("*.tar.gz"))) == 1
