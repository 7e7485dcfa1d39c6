"""A launcher that reads YAML: steps of a pipeline on this machine, and detached on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.clients.users import PROGRAMS, ClusterUser, User

# Steps call what is beside them, so that all of it must have travelled.
STEP = """\
#!/bin/bash
set -e
. common/lib.sh
note "$@"
[ "${CODE:-0}" = 0 ] || exit "$CODE"
"""
LIBRARY = f"""\
note() {{ python3 '{PROGRAMS / "jobs" / "record.py"}' "$@"; }}
"""


def write_files(user: User) -> None:
    for name, text in {
        "common/quantize.sh": STEP,
        "common/export.sh": STEP,
        "common/lib.sh": LIBRARY,
        "recipes/int8.yaml": "bits: 8\n",
        "elsewhere/large.bin": "stays at home\n",
    }.items():
        path = user.work / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def pipeline(user: User, slurm: dict[str, Any] | None, **first: Any) -> str:
    """Write the file of two steps, of which the second follows the first."""
    write_files(user)
    steps: dict[str, Any] = {
        "quantize": {"script": "common/quantize.sh", **first},
        "export": {"script": "common/export.sh", "args": [str(user.out / "export")]},
    }
    if slurm is not None:
        for step in steps.values():
            step["slurm_config"] = slurm
    path = user.work / "pipeline.yaml"
    path.write_text(yaml.safe_dump({"job_name": "optimize", "pipeline": steps}, sort_keys=False))
    return str(path)


def test_steps_run_one_after_the_other_on_this_machine(user: User) -> None:
    args = [str(user.out / "quantize"), "--calib-size", "32"]
    environment = [{"MODEL": "tiny"}, {"HF_TOKEN": "a$b"}]
    path = pipeline(user, None, args=args, environment=environment)
    user.runs("optimizer.py", path, CLUSTER="/dev/null")

    quantize, export = user.found("quantize"), user.found("export")
    assert quantize["argv"] == ["--calib-size", "32"]
    assert quantize["env"]["MODEL"] == "tiny"
    assert quantize["env"]["HF_TOKEN"] == "a$b"
    assert quantize["cwd"] == str(user.work)
    assert quantize["at"] <= export["at"]
    launched = user.found("launched")
    assert launched["states"] == {"quantize": "SUCCEEDED", "export": "SUCCEEDED"}
    assert launched["title"] == "optimize"
    assert Path(launched["directory"]).is_relative_to(user.home)


@pytest.mark.slow
class TestOnACluster:
    def test_steps_are_submitted_and_left_alone(self, cluster_user: ClusterUser) -> None:
        args = [str(cluster_user.out / "quantize"), "--calib-size 32", "--run $SLURM_JOB_ID"]
        environment = [{"MODEL": "tiny"}, {"HF_TOKEN": "a$b"}, {"WHERE": "$HOME/models"}]
        slurm = {"nodes": 1, "ntasks_per_node": 1, "time": "00:05:00"}
        path = pipeline(cluster_user, slurm, args=args, environment=environment)
        cluster_user.runs("optimizer.py", path, "--detach")
        launched = cluster_user.found("launched")
        cluster_user.runs("watch.py", launched["id"])

        states = cluster_user.found("watched")
        assert states == {"quantize": "SUCCEEDED", "export": "SUCCEEDED"}
        quantize, export = cluster_user.found("quantize"), cluster_user.found("export")
        number = quantize["env"]["SLURM_JOB_ID"]
        assert quantize["argv"] == ["--calib-size", "32", "--run", number]
        assert quantize["env"]["MODEL"] == "tiny"
        assert quantize["env"]["HF_TOKEN"] == "a$b"
        assert quantize["env"]["WHERE"] == f"{quantize['env']['HOME']}/models"
        assert quantize["at"] <= export["at"]

    def test_steps_that_nobody_waits_for_find_their_code(self, cluster_user: ClusterUser) -> None:
        path = pipeline(cluster_user, {}, args=[str(cluster_user.out / "quantize"), "word"])
        cluster_user.runs("optimizer.py", path, "--detach")
        cluster_user.runs("watch.py", cluster_user.found("launched")["id"])

        states = cluster_user.found("watched")
        assert states == {"quantize": "SUCCEEDED", "export": "SUCCEEDED"}
        assert cluster_user.found("quantize")["argv"] == ["word"]

    def test_only_the_chosen_files_travel(self, cluster_user: ClusterUser) -> None:
        path = pipeline(cluster_user, {}, args=[str(cluster_user.out / "quantize")])
        cluster_user.runs("optimizer.py", path)

        assert set(cluster_user.found("launched")["states"].values()) == {"SUCCEEDED"}
        code = Path(cluster_user.found("quantize")["cwd"])
        assert code.is_relative_to(cluster_user.job_dir)
        found = {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()}
        assert found == {
            "common/quantize.sh",
            "common/export.sh",
            "common/lib.sh",
            "recipes/int8.yaml",
        }
