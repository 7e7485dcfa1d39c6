"""Code that was packaged for one experiment serves the jobs of later ones."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import patience
from tests.clients.users import ClusterUser

pytestmark = pytest.mark.slow

SAY = 'printf \'%s\\n\' {} "$PWD" "$(pwd -P)" > "$1"\n'


@pytest.fixture
def repository(cluster_user: ClusterUser) -> Path:
    """A tool under version control, which writes its edition and where it runs to a file."""
    tool = cluster_user.work / "tool"
    tool.mkdir()
    (tool / "say.sh").write_text(SAY.format("edition-1"))
    git(cluster_user.work, "init", "-q")
    git(cluster_user.work, "add", ".")
    git(cluster_user.work, "commit", "-qm", "one")
    return cluster_user.work


def git(where: Path, *args: str) -> None:
    who = ["-c", "user.name=u", "-c", "user.email=u@example.com"]
    subprocess.run(["git", *who, *args], cwd=where, check=True)


def words(user: ClusterUser, name: str) -> list[str]:
    patience.wait_for(lambda: (user.out / name).exists(), f"the file of {name}", within_s=60)
    patience.wait_for(lambda: (user.out / name).read_text().count("\n") == 3, "three lines")
    return (user.out / name).read_text().split()


def note(user: ClusterUser, name: str) -> dict[str, Any]:
    found = user.found(f"{name}.json")
    assert isinstance(found, dict)
    return found


def test_the_packaged_code_can_be_found_and_used_again(
    cluster_user: ClusterUser, repository: Path
) -> None:
    cluster_user.runs("reuse.py", "first")

    first = note(cluster_user, "first")
    code = Path(first["code"])
    assert code.is_relative_to(cluster_user.job_dir)
    assert (code / "tool" / "say.sh").read_text() == SAY.format("edition-1")
    edition, _, real = words(cluster_user, "one")
    assert edition == "edition-1"
    assert Path(real) == code.resolve()
    # The process that packaged it knows it too.
    assert words(cluster_user, "second")[0] == "edition-1"
    assert Path(words(cluster_user, "second")[2]) == code.resolve()
    assert note(cluster_user, "second")["states"] == {"nemo-run": "SUCCEEDED"}


def test_another_process_uses_it_although_the_code_has_changed(
    cluster_user: ClusterUser, repository: Path
) -> None:
    cluster_user.runs("reuse.py", "first")
    # Packaged anew, this would be refused: it is not committed.
    (repository / "tool" / "say.sh").write_text(SAY.format("edition-2"))
    cluster_user.runs("reuse.py", "later")

    code = Path(note(cluster_user, "first")["code"])
    for name in ("by-id", "by-title"):
        edition, _, real = words(cluster_user, name)
        assert edition == "edition-1"
        assert Path(real) == code.resolve()
        assert note(cluster_user, name)["states"] == {"nemo-run": "SUCCEEDED"}
        # What reuses code can be reused itself.
        assert Path(note(cluster_user, name)["code"]).resolve() == code.resolve()


def test_jobs_of_one_name_all_find_the_code(cluster_user: ClusterUser, repository: Path) -> None:
    cluster_user.runs("reuse.py", "shared")

    assert note(cluster_user, "shared")["states"] == {
        "nemo-run": "SUCCEEDED",
        "nemo-run_1": "SUCCEEDED",
        "nemo-run_2": "SUCCEEDED",
    }
    found = [words(cluster_user, name)[0] for name in ("one", "two", "three")]
    assert found == ["edition-1"] * 3
