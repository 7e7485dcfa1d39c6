"""Which files of a Kubernetes job travel, and what its arguments call them there."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from torchx.specs import AppDef, Role

import nemo_run as run
from nemo_run._backends.kubeflow.jobs import staying
from nemo_run._backends.kubeflow.volume import merge, packed
from nemo_run.run.torchx_backend.schedulers.kubeflow import KubeflowScheduler


def executor(tmp_path: Path, **settings: Any) -> run.KubeflowExecutor:
    made = run.KubeflowExecutor(image="img:1", **settings)
    made.assign("exp_1", str(tmp_path / "exp"), "job", "job")
    made.create_job_dir()
    return made


def travelling(mine: run.KubeflowExecutor) -> list[str]:
    data = packed(Path(mine.job_dir), staying(mine))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return sorted(archive.getnames())


def planned_args(mine: run.KubeflowExecutor, *args: str) -> list[str]:
    app = AppDef("job", roles=[Role("job", image="", entrypoint="cat", args=list(args))])
    info: Any = KubeflowScheduler("test").submit_dryrun(app, mine)
    found: list[str] = info.request.app.roles[0].args
    return found


def test_files_of_the_users_travel_whatever_they_are_called(tmp_path: Path) -> None:
    mine = executor(tmp_path)
    names = ["data.tar.gz", "kubeflow", "launch.sh"]
    for name in names:
        Path(mine.job_dir, name).write_text("mine")
    assert travelling(mine) == names


def test_what_we_have_in_the_directory_of_a_job_stays(tmp_path: Path) -> None:
    mine = executor(tmp_path, env_vars={"HF_TOKEN": "t0k"})
    mine.materialize_launch_script(["true"])
    Path(mine.job_dir, "job.tar.gz").touch()
    Path(mine.job_dir, ".kubeflow").mkdir()
    assert travelling(mine) == []


class TestArguments:
    def test_the_path_of_a_local_directory_becomes_that_of_the_job(self, tmp_path: Path) -> None:
        (tmp_path / "data").mkdir()
        mine = executor(tmp_path, workdir_local_path=f"{tmp_path}/data/")
        data = f"{tmp_path}/data"
        there = {
            data: "/nemo_run",
            f"{data}/x": "/nemo_run/x",
            f"--from={data}/x": "--from=/nemo_run/x",
            f"cat '{data}/a' {data}": "cat '/nemo_run/a' /nemo_run",
            f"{data}2/x": f"{data}2/x",
            f"{data}.old": f"{data}.old",
            f"/mnt{data}/x": f"/mnt{data}/x",
            "data/x": "data/x",
        }
        assert dict(zip(there, planned_args(mine, *there), strict=True)) == there

    def test_a_relative_path_stands_for_its_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine").mkdir()
        monkeypatch.chdir(tmp_path / "mine")
        mine = executor(tmp_path, workdir_local_path=".", workdir_pvc="work")
        args = ["train.py", "--rate=0.1", f"{tmp_path}/mine/train.py"]
        assert planned_args(mine, *args) == [*args[:2], f"{mine.code_dir}/train.py"]

    def test_a_link_to_a_directory_stands_for_it_too(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        mine = executor(tmp_path, workdir_local_path=f"{tmp_path}/link")
        args = [f"{tmp_path}/link/x", f"{tmp_path}/real/x"]
        assert planned_args(mine, *args) == ["/nemo_run/x"] * 2


class TestMerging:
    def test_a_directory_with_links_is_copied_as_often_as_is_wanted(self, tmp_path: Path) -> None:
        source, target = tmp_path / "source", tmp_path / "target"
        (source / "deep").mkdir(parents=True)
        (source / "deep" / "file").write_text("first")
        (source / "link").symlink_to("deep/file")
        (source / "below").symlink_to("deep")
        merge(source, target)
        (source / "deep" / "file").write_text("second")
        merge(source, target)
        assert (target / "link").is_symlink()
        assert (target / "below" / "file").read_text() == "second"

    def test_nothing_is_written_through_a_link_that_is_there(self, tmp_path: Path) -> None:
        source, target = tmp_path / "source", tmp_path / "target"
        for directory in (source, target):
            directory.mkdir()
        (source / "file").write_text("new")
        (tmp_path / "elsewhere").write_text("old")
        (target / "file").symlink_to(tmp_path / "elsewhere")
        merge(source, target)
        assert (target / "file").read_text() == "new"
        assert (tmp_path / "elsewhere").read_text() == "old"

    def test_the_local_directory_of_an_executor_is_merged_each_time(self, tmp_path: Path) -> None:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "link").symlink_to("nowhere")
        mine = executor(tmp_path, workdir_local_path=str(tmp_path / "mine"))
        for _ in range(2):
            mine.package(run.Packager(), "job")
        assert Path(mine.job_dir, "link").is_symlink()
