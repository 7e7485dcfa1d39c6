"""What the suites promise those who run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests import needs, patience

ROOT = Path(__file__).parents[2]


def test_a_test_that_does_not_say_what_it_needs_is_stopped(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(needs.NotOnAFreshMachine, match="mark the test with `needs`"):
        subprocess.run([program])
    with pytest.raises(FileNotFoundError):
        subprocess.run([tmp_path / "nowhere" / "busybox"])


@pytest.mark.needs("anything")
def test_one_that_says_so_is_not(tmp_path: Path) -> None:
    program = tmp_path / "busybox"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    subprocess.run([program], check=True)


def test_nothing_is_installed_unless_somebody_says_yes(tmp_path: Path) -> None:
    """Whether the user is root or not, and whatever is missing."""
    for name in ("bash", "id"):
        found = Path("/usr/bin") / name
        (tmp_path / name).symlink_to(found)
    (tmp_path / "apt-get").write_text(f"#!/bin/bash\n: >{tmp_path}/called\n")
    (tmp_path / "apt-get").chmod(0o755)
    script = (ROOT / "scripts" / "system-packages.sh").read_text()
    only_these = script.replace("PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n", "")
    assert only_these != script
    env = {"PATH": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", "-c", only_these],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert not (tmp_path / "called").exists()
    if os.getuid() == 0:
        assert "slurmctld" in done.stdout
        assert "YES=1" in done.stderr
        subprocess.run(["/bin/bash", "-c", only_these], env={**env, "YES": "1"}, check=True)
        assert (tmp_path / "called").exists()
    else:
        assert "make test" in done.stderr


def test_deadlines_grow_with_the_slowness_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setenv("NEMO_RUN_TEST_SLOWNESS", "1.5")
    assert patience.seconds(10) == 15
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0 * (os.cpu_count() or 1), 0.0, 0.0))
    assert patience.seconds(10) == 30
