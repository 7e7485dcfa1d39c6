"""A home in which another person has put links, FIFOs and files without end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script

import nemo_run as run
from nemo_run._backends.docker.legacy import find_docker_job
from nemo_run._backends.kubernetes.notes import Notes
from nemo_run._backends.ray.request import NOTES
from nemo_run._backends.ray.slurm_jobs import parse_info
from nemo_run._experiments.store import listing
from nemo_run._experiments.store.places import experiments_root
from nemo_run._files import read_whole
from nemo_run._jobs.records import JobRecord
from nemo_run.cli.config import ConfigSerializer
from nemo_run.cli.experiments.finding import find
from nemo_run.cli.experiments.rm import remove
from nemo_run.cli.values.config_files import load_config_from_path
from nemo_run.core.tunnel.server import TunnelMetadata
from nemo_run.exceptions import ConfigError, NemoRunError, RecordError
from nemo_run.run.torchx_backend.schedulers.ray import create_scheduler


def make(base_dir: Path | None = None) -> run.Experiment:
    with experiment("demo", base_dir=str(base_dir) if base_dir else None) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    return exp


def test_a_planted_link_is_removed_and_nothing_behind_it(tmp_path: Path) -> None:
    own = Path(make()._exp_dir)
    victim = tmp_path / "documents"
    shutil.copytree(own, victim)  # so that it looks like an experiment
    (victim / "thesis").write_text("mine")
    link = own.with_name("demo_1000000000000000000")
    link.symlink_to(victim)

    remove(find(link.name).entry())

    assert (victim / "thesis").read_text() == "mine"
    assert (victim / "_CONFIG").exists()
    assert not link.is_symlink()


def test_an_experiment_kept_elsewhere_is_removed_there(tmp_path: Path) -> None:
    made = make(tmp_path / "other")
    assert (experiments_root() / "demo" / made._id).is_symlink()
    remove(find(made._id).entry())
    assert not Path(made._exp_dir).exists()


def _fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def _huge(path: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(200 << 30)


ODD: dict[str, Callable[[Path], None]] = {"fifo": _fifo, "device": _endless, "huge": _huge}
odd = pytest.mark.parametrize("put", ODD.values(), ids=ODD)


@odd
@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_values_come_from_files_alone(
    put: Callable[[Path], None], suffix: str, tmp_path: Path
) -> None:
    file = tmp_path / f"values.{suffix}"
    put(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config_from_path(f"@{file}")
    with pytest.raises(OSError, match=r"regular file|more than"):
        ConfigSerializer().load_json(file)


@odd
def test_what_is_read_whole_is_a_file(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path / "record")
    with pytest.raises(OSError, match=r"regular file|more than"):
        read_whole(tmp_path / "record")


@odd
@pytest.mark.parametrize(
    "name", ["_CONFIG", "_TASKS", "_TUNNELS", "_VERSION", ".nemo_run/0.json", "provenance.json"]
)
def test_an_experiment_with_odd_files_is_looked_at(put: Callable[[Path], None], name: str) -> None:
    """It says what is wrong, or goes without; it neither hangs nor dies of it."""
    made = make()
    file = Path(made._exp_dir) / name
    file.parent.mkdir(exist_ok=True)
    put(file)
    listing.read_entry(0.0, "demo", made._exp_dir)
    try:
        run.Experiment.from_id(made._id).status(return_dict=True)
    except NemoRunError:
        return


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"a"', "7"])
def test_a_note_of_a_job_that_was_changed_is_said_to_be_damaged(tmp_path: Path, text: str) -> None:
    notes = Notes(folder="notes", what="TrainJob", backend="kubeflow")
    file = notes.of(str(tmp_path), "job")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    with pytest.raises(RecordError, match="damaged"):
        notes.read(str(tmp_path), "job")


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000, '{"a"', "7"])
def test_a_note_of_a_ray_job_that_was_changed_is_said_to_be_damaged(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / NOTES / "job.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    record = JobRecord(
        app_id="exp___job",
        scheduler="ray",
        job_dir=str(tmp_path),
        submitted_at=1.0,
        last_seen_at=1.0,
    )
    with pytest.raises(RecordError, match="damaged"):
        create_scheduler("nemo_run")._planned_ref(record)


def test_an_old_index_that_is_a_fifo_is_left_out(tmp_path: Path) -> None:
    _fifo(tmp_path / "index")
    assert find_docker_job(tmp_path / "index", "job") is None


def test_what_a_server_of_a_job_leaves_may_be_nested_without_end(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text("[" * 100_000)
    with pytest.raises(RecordError):
        TunnelMetadata.restore(tmp_path)
    assert parse_info(b"[" * 100_000) is None
