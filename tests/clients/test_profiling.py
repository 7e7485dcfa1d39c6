"""Plugins that change what is launched: the profiler is really called, variables really arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.clients.users import PROGRAMS, ClusterUser, User

TOOLS = PROGRAMS / "tools"


def check(user: User, kind: str) -> dict[str, Any]:
    """Look at what the profiler and the job were given; return the words of the profiler."""
    trained = user.found("trained")
    experiment_id, states = user.found("states")
    assert states == {"train": "SUCCEEDED"}
    assert trained["env"]["SEED"] == "7"
    assert trained["env"]["EXPERIMENT"] == experiment_id
    if kind == "script":
        assert trained["argv"] == ["--seed", "7"]
    else:
        assert (trained["steps"], trained["seed"]) == (3, 7)
    found = user.found("nsys")
    assert isinstance(found, dict)
    words = found["argv"]
    assert words[0] == "profile"
    assert words[words.index("-t") + 1] == "nvtx,cuda,osrt"
    output = Path(words[words.index("-o") + 1])
    assert output.name == "mine_%p"
    assert output.parent.name == "nsys_profile"
    assert output.parent.is_dir()
    assert "--capture-range=cudaProfilerApi" in words
    return found


@pytest.mark.parametrize("kind", ["script", "function"])
def test_a_local_job_runs_under_the_profiler(user: User, kind: str) -> None:
    path = f"{TOOLS}:{user.environment['PATH']}"
    user.runs("profiled.py", kind, "local", "", PATH=path)
    check(user, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["script", "function"])
def test_a_job_on_the_cluster_runs_under_the_profiler(cluster_user: ClusterUser, kind: str) -> None:
    cluster_user.runs("profiled.py", kind, "cluster", "")
    assert (cluster_user.out / "setup.txt").read_text() == "ready\n"
    found = check(cluster_user, kind)
    words = found["argv"]
    # Profiles are found again below the directory of the job.
    assert Path(words[words.index("-o") + 1]).is_relative_to(cluster_user.job_dir)


@pytest.mark.slow
def test_the_profiler_is_around_the_launcher(cluster_user: ClusterUser) -> None:
    cluster_user.runs("profiled.py", "script", "cluster", "torchrun")
    found = check(cluster_user, "script")
    assert "torchrun" in found["argv"]
    assert str(PROGRAMS / "jobs" / "record.py") in cluster_user.found("torchrun")
