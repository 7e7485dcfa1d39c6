"""What ``nemorun doctor`` says of an executor for Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands
from tests.integration.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WORKSPACE = """
import nemo_run as run

@run.cli.factory
def slurm(
    host: str = "loop", partition: str = "", nodes: int = 1, job_dir: str = {job_dir!r},
    image: str = "", runtime: str = "apptainer", mount: str = "/tmp:/tmp",
) -> run.Config[run.SlurmExecutor]:
    return run.Config(
        run.SlurmExecutor,
        account="root",
        partition=partition or None,
        nodes=nodes,
        mem="100M",
        tunnel=run.Config(run.SSHTunnel, host=host, user="root", job_dir=job_dir),
        container_image=image or None,
        container_runtime=runtime,
        container_mounts=[mount],
    )
"""


def doctor(tmp_path: Path, words: str = "") -> dict[str, str]:
    """Return what the command found, by subject: its verdict and what it saw."""
    (tmp_path / "workspace.py").write_text(WORKSPACE.format(job_dir=str(tmp_path / "a" / "b")))
    done = commands.nemorun("doctor", f"slurm({words})", "--json", cwd=tmp_path)
    installation, findings = done.json().values()
    verdicts = {finding["verdict"] for finding in (*installation, *findings)}
    assert done.code == (1 if "failed" in verdicts else 0)
    return {f["subject"]: f"{f['verdict']}: {f['detail']}" for f in findings}


def test_all_is_well_and_nothing_is_submitted(slurm: SlurmCluster, tmp_path: Path) -> None:
    found = doctor(tmp_path)
    assert found["connection"] == "ok: root@loop"
    assert found["slurm"].startswith("ok: slurm")
    assert found["job"].startswith("ok: Job ")
    assert found["job_dir"] == f"ok: {tmp_path / 'a' / 'b'}"
    assert not (tmp_path / "a").exists(), "nothing is made"


@pytest.mark.parametrize(
    ("words", "subject", "said"),
    [
        ("partition='nowhere'", "job", "failed: invalid partition specified: nowhere; "),
        ("nodes=99", "job", "failed: "),
        ("job_dir='/proc/1/jobs'", "job_dir", "failed: /proc/1/jobs cannot be written to."),
        ("host='gone.invalid'", "connection", "failed: "),
        (
            "image='/no/such.sif', mount='/none:/data'",
            "image",
            "failed: /no/such.sif cannot be read.",
        ),
        ("image='/no/such.sif', mount='/none:/data'", "mount", "failed: /none is not there."),
        ("image='nvcr.io/x:1', runtime='pyxis'", "container runtime", "failed: pyxis is not"),
        ("image='nvcr.io/x:1'", "image", "unknown: nvcr.io/x:1 is pulled when a job starts."),
    ],
)
def test_what_is_wrong_is_named(
    slurm: SlurmCluster, tmp_path: Path, words: str, subject: str, said: str
) -> None:
    assert doctor(tmp_path, words)[subject].startswith(said)
