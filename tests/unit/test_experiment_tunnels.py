"""The tunnels of an experiment: where its code is on the cluster, also for later processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script

import nemo_run as run
from nemo_run._experiments.store import tunnels
from nemo_run._experiments.store.directory import TUNNELS
from nemo_run.core.execution.slurm import get_packaging_job_key
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel.client import PackagingJob

KEY = "me@login"


def prepared(exp: run.Experiment) -> None:
    """Collect the code of the jobs, without submitting anything."""
    exp._create()
    exp._prepare_jobs()


def executor(packager: run.Packager) -> run.SlurmExecutor:
    tunnel = run.SSHTunnel(host="login", user="me", job_dir="/jobs")
    return run.SlurmExecutor(account="a", packager=packager, tunnel=tunnel)


@pytest.fixture
def packager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> run.PatternPackager:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.sh").write_text("true\n")
    monkeypatch.chdir(tmp_path / "work")
    return run.PatternPackager(include_pattern="*", relative_path=str(tmp_path / "work"))


def test_code_that_travels_is_named_by_experiment_and_job(packager: run.Packager) -> None:
    with experiment("net", executor=executor(packager)) as exp:
        exp.add(script("true"), name="train")
        exp.add(script("true"), name="train")
        exp.add(script("true"), executor=executor(run.Packager()), name="plain")
        exp.add([script("true"), script("true")], name="pair")
        exp.add(script("true"), executor=run.LocalExecutor(), name="here")
        prepared(exp)
    found = tunnels.of_jobs(exp.jobs)
    assert list(found) == [KEY]
    jobs = found[KEY].packaging_jobs
    base = f"/jobs/net/{exp._id}"
    assert {key: job.dst_path for key, job in jobs.items()} == {
        f"{exp._id}:train": f"{base}/train/code",
        f"{exp._id}:train_1": f"{base}/train_1/code",
        f"{exp._id}:plain": None,
        f"{exp._id}:pair": f"{base}/pair/code",
    }
    assert not any(job.symlink for job in jobs.values())


def test_code_that_is_linked_is_named_too(packager: run.Packager) -> None:
    packager.symlink_from_remote_dir = "/jobs/old/code"
    with experiment("net", executor=executor(packager)) as exp:
        exp.add(script("true"), name="train")
        prepared(exp)
    (job,) = tunnels.of_jobs(exp.jobs)[KEY].packaging_jobs.values()
    assert job == PackagingJob(
        symlink=True, src_path="/jobs/old/code", dst_path=f"/jobs/net/{exp._id}/train/code"
    )


def test_the_tunnel_that_the_user_made_is_left_alone(packager: run.Packager) -> None:
    mine = executor(packager)
    with experiment("net", executor=mine) as exp:
        exp.add(script("true"), name="train")
        prepared(exp)
    assert mine.tunnel.packaging_jobs == {}


def test_a_run_again_has_none_of_the_first(packager: run.Packager) -> None:
    with experiment("net", executor=executor(packager)) as exp:
        exp.add(script("true"), name="train")
        prepared(exp)
    first = exp._id
    again = run.Experiment.from_id(first).reset()
    assert again.tunnels == {}
    with again:
        prepared(again)
    keys = list(tunnels.of_jobs(again.jobs)[KEY].packaging_jobs)
    assert keys == [get_packaging_job_key(again._id, "train")]
    assert first != again._id


def test_what_0_12_wrote_is_read(packager: run.Packager) -> None:
    """Its form: by key, the text of the tunnel's config."""
    tunnel = run.SSHTunnel(host="login", user="me", job_dir="/jobs/net/net_1", port=2222)
    tunnel.packaging_jobs["net_1:train"] = PackagingJob(dst_path="/jobs/net/net_1/train/code")
    text = json.dumps({KEY: ZlibJSONSerializer().serialize(tunnel.to_config())})
    with experiment("net", executor=executor(packager)) as exp:
        exp.add(script("true"), name="train")
        prepared(exp)
    assert run.Experiment.from_id(exp._id).tunnels == {}, "it may not be there"
    Path(exp._exp_dir, TUNNELS).write_text(text)
    assert run.Experiment.from_id(exp._id).tunnels == {KEY: tunnel}
    assert run.Experiment.from_title("net").tunnels[KEY].key == KEY


def test_what_is_written_is_what_0_12_reads() -> None:
    tunnel = run.SSHTunnel(host="login", user="me", job_dir="/jobs")
    texts = json.loads(tunnels.to_text({KEY: tunnel}))
    assert ZlibJSONSerializer().deserialize(texts[KEY]) == tunnel.to_config()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": "nothing"}', "null"])
def test_a_damaged_file_does_not_keep_an_experiment_from_being_read(
    text: str, packager: run.Packager
) -> None:
    with experiment("net", executor=executor(packager)) as exp:
        exp.add(script("true"), name="train")
        prepared(exp)
    Path(exp._exp_dir, TUNNELS).write_text(text)
    assert run.Experiment.from_id(exp._id).tunnels == {}
