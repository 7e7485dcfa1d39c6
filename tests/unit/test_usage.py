"""What jobs used: processor time and memory, as the kernel counted them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script, statuses

import nemo_run as run
from nemo_run._backends.local.supervisor.records import Status
from nemo_run._experiments.display.durations import in_bytes

MIB = 1 << 20
WORK = "exec python3 -c 'x = bytearray(150 << 20); sum(range(3_000_000))'"


def test_processor_time_and_memory_of_a_job_are_in_its_status() -> None:
    with experiment() as exp:
        exp.add(script(f"echo begin; {WORK}"), name="work")
        exp.add(script("true"), name="idle")
        exp.run()
    work, idle = statuses(exp)["work"], statuses(exp)["idle"]
    assert work["peak_memory_bytes"] > 150 * MIB > idle["peak_memory_bytes"] > 0
    assert work["cpu_s"] > idle["cpu_s"] >= 0
    again = statuses(run.Experiment.from_id(exp._id))["work"]
    assert (again["cpu_s"], again["peak_memory_bytes"]) == (
        work["cpu_s"],
        work["peak_memory_bytes"],
    )
    assert json.loads(exp.status_json())["work"]["cpu_s"] == work["cpu_s"]


def test_all_attempts_count(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    executor = run.LocalExecutor(retries=1)
    with experiment(executor=executor) as exp:
        exp.add(script(f"mkdir '{flag}' && (ulimit -c 0; {WORK}) && exit 1; true"), name="job")
        exp.run()
    found = statuses(exp)["job"]
    assert found["exit_code"] == 0
    assert found["peak_memory_bytes"] > 150 * MIB, "in the first attempt"


def test_a_status_of_an_earlier_release_has_no_usage() -> None:
    status = Status(token="t", attempts=1, limit_s=None, grace_s=1.0)
    lines = [
        line for line in status.render().split(b"\n") if not line.startswith((b"cpu", b"peak"))
    ]
    old = Status.parse(b"\n".join(lines))
    assert (old.cpu_s, old.peak_kib) == (None, None)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(None, ""), (640 << 10, "640 KiB"), (3 * MIB + 1, "3.0 MiB"), (12 * MIB, "12 MiB")],
)
def test_sizes_are_written_as_people_do(size: int | None, shown: str) -> None:
    assert in_bytes(size) == shown
