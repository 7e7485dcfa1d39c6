"""Code travels with a job: collected once, before anything is submitted, and never for a look."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, states

import nemo_run as run
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.launcher import Launcher
from nemo_run.exceptions import ConfigError, PackagingError


@dataclass(kw_only=True)
class Elsewhere(run.LocalExecutor):
    """Runs here, but has its code brought along as for a machine far away."""

    def package(self, packager: run.Packager, job_name: str) -> None:
        Executor.package(self, packager, job_name)


@dataclass(kw_only=True)
class OneFile(run.Packager):
    """Packs one file of the current directory, and counts how often."""

    file: str = "train.py"

    def package(self, path: Path, job_dir: str, name: str) -> str:
        if not (path / self.file).exists():
            raise PackagingError(f"There is no {self.file} in {path}.")
        with (path / "packed").open("a") as count:
            count.write("x")
        archive = Path(job_dir) / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(path / self.file, arcname=self.file)
        return str(archive)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a file to take along."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print('first')\n")
    (tree / "other.py").write_text("print('other')\n")
    monkeypatch.chdir(tree)
    return tree


def packed(tree: Path) -> int:
    file = tree / "packed"
    return len(file.read_text()) if file.exists() else 0


def test_the_archive_and_its_content_are_in_the_job_directory(tree: Path) -> None:
    with experiment(executor=Elsewhere(packager=OneFile())) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    job_dir = Path(exp._exp_dir) / "job"
    assert (job_dir / "code" / "train.py").read_text() == "print('first')\n"
    with tarfile.open(job_dir / "job.tar.gz") as tar:
        assert tar.extractfile("train.py").read() == b"print('first')\n"  # type: ignore[union-attr]
    assert packed(tree) == 1


def test_a_packager_that_takes_nothing_leaves_an_empty_directory(tree: Path) -> None:
    with experiment(executor=Elsewhere()) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    job_dir = Path(exp._exp_dir) / "job"
    assert list((job_dir / "code").iterdir()) == []
    assert not (job_dir / "job.tar.gz").exists()


def test_there_is_a_folder_for_profiles(tree: Path) -> None:
    launcher = Launcher(nsys_profile=True, nsys_folder="profiles")
    executor = Elsewhere(launcher=launcher, job_dir=str(tree.parent / "job"))
    executor.package(executor.packager, "job")
    assert (tree.parent / "job" / "profiles").is_dir()


def test_on_this_machine_nothing_is_collected(tree: Path) -> None:
    with experiment(executor=run.LocalExecutor(packager=OneFile())) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    assert packed(tree) == 0
    assert not (Path(exp._exp_dir) / "job" / "code").exists()


@pytest.mark.parametrize("how", ["dryrun", "direct"])
def test_nothing_is_collected_where_nothing_travels(tree: Path, how: str) -> None:
    with experiment(executor=Elsewhere(packager=OneFile())) as exp:
        exp.add(script("true"), name="job")
        exp.add([script("true"), script("true")], name="pair") if how == "dryrun" else None
        exp.dryrun(log=False) if how == "dryrun" else exp.run(direct=True)
    assert packed(tree) == 0


def test_code_that_cannot_be_collected_keeps_every_job_from_being_submitted(
    tree: Path, nemorun_home: Path
) -> None:
    with experiment() as exp:
        exp.add(script(f"touch '{tree}/ran'"), name="first")
        exp.add(script("true"), executor=Elsewhere(packager=OneFile()), name="second")
        (tree / "train.py").rename(tree / "moved.py")
        with pytest.raises(PackagingError, match=r"train\.py"):
            exp.run()
        assert not Path(exp._exp_dir).exists()
        assert list(nemorun_home.glob("jobs/*/*")) == []
        (tree / "moved.py").rename(tree / "train.py")
        exp.run()
    assert states(exp) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}


@dataclass(kw_only=True)
class EditedMeanwhile(Elsewhere):
    """Finds the tree changed by its owner each time something was packaged."""

    def package(self, packager: run.Packager, job_name: str) -> None:
        super().package(packager, job_name)
        Path("train.py").write_text(f"# edited after {job_name} was packaged\n")


def test_all_jobs_travel_with_the_same_code(tree: Path) -> None:
    with experiment(executor=EditedMeanwhile(packager=run.SnapshotPackager())) as exp:
        for name in ("first", "second"):
            exp.add(script("true"), name=name)
        exp.run()
    for name in ("first", "second"):
        code = Path(exp._exp_dir) / name / "code" / "train.py"
        assert code.read_text() == "print('first')\n"


class TestGroups:
    def test_share_what_is_collected_once(self, tree: Path) -> None:
        with experiment(executor=Elsewhere(packager=OneFile())) as exp:
            exp.add([script("true")] * 3, name="trio")
            exp.run()
        job_dir = Path(exp._exp_dir) / "trio"
        assert packed(tree) == 1
        assert (job_dir / "trio.tar.gz").exists()
        assert (job_dir / "code" / "train.py").exists()

    def test_cannot_have_two_kinds_of_code(self, tree: Path, nemorun_home: Path) -> None:
        files = ["train.py", "other.py"]
        with experiment() as exp:
            exp.add(
                [script("true")] * 2,
                executor=[Elsewhere(packager=OneFile(file=file)) for file in files],
                name="pair",
            )
            with pytest.raises(ConfigError, match="'pair' share their code"):
                exp.run()
        assert list(nemorun_home.glob("jobs/*/*")) == []

    def test_need_one_packager_among_those_that_take_nothing(self, tree: Path) -> None:
        packagers = [run.Packager(), OneFile(), run.Packager(debug=True)]
        with experiment() as exp:
            exp.add(
                [script("true")] * 3,
                executor=[Elsewhere(packager=packager) for packager in packagers],
                name="trio",
            )
            exp.run()
        assert (Path(exp._exp_dir) / "trio" / "code" / "train.py").exists()
