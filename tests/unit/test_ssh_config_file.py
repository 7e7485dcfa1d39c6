"""Entries of ours in the user's ssh config."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nemo_run.core.tunnel.client import SSHConfigFile

USERS = "# mine\nHost login\n    User me\n\nMatch host x\n  Port 3\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dot ssh" / "config"


def entry(name: str, port: int = 22) -> str:
    return f"Host tunnel.{name}\n    User me\n    HostName h\n    Port {port}\n"


def test_an_entry_is_written_into_a_file_for_its_owner_only(path: Path) -> None:
    SSHConfigFile(str(path)).add_entry("me", "h", 22, "a.a")
    assert path.read_text() == entry("a.a")
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_the_user_wrote_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(USERS)
    file = SSHConfigFile(str(path))
    file.add_entry("me", "h", 22, "a")
    assert path.read_text() == f"{USERS}\n{entry('a')}"
    file.remove_entry("a")
    assert path.read_text().rstrip() == USERS.rstrip()


def test_an_entry_of_the_same_name_is_replaced(path: Path) -> None:
    file = SSHConfigFile(str(path))
    for name, port in (("a", 1), ("ab", 2), ("a", 3)):
        file.add_entry("me", "h", port, name)
    assert path.read_text() == f"{entry('a', 3)}\n{entry('ab', 2)}"


EVERYWHERE = "Host *\n  User everybody\n  Port 99\n"


def leads_to(path: Path, name: str) -> tuple[str, str]:
    """Ask ssh itself: whom, and to which port."""
    said = subprocess.check_output(["ssh", "-G", "-F", str(path), f"tunnel.{name}"], text=True)
    found = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
    return found["user"], found["port"]


@pytest.mark.parametrize("between", ["\n", ""])
def test_an_entry_stays_before_what_is_for_all_hosts(path: Path, between: str) -> None:
    path.parent.mkdir()
    path.write_text(f"{entry('a', 1)}{between}{EVERYWHERE}")
    SSHConfigFile(str(path)).add_entry("me", "h", 3, "a")
    assert path.read_text() == f"{entry('a', 3)}{between}{EVERYWHERE}"
    assert leads_to(path, "a") == ("me", "3")


@pytest.mark.parametrize("everywhere", [EVERYWHERE, EVERYWHERE.replace("Host *", "Match all")])
@pytest.mark.parametrize("users", ["", USERS])
def test_a_new_entry_is_heeded(path: Path, users: str, everywhere: str) -> None:
    path.parent.mkdir()
    path.write_text(users + everywhere)
    SSHConfigFile(str(path)).add_entry("me", "h", 3, "a")
    assert leads_to(path, "a") == ("me", "3")
    assert path.read_text().endswith(everywhere)
    SSHConfigFile(str(path)).remove_entry("a")
    assert path.read_text().split() == (users + everywhere).split()


def test_what_is_for_many_hosts_is_not_for_all(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("Host *.cluster login*\n  Port 4\n")
    SSHConfigFile(str(path)).add_entry("me", "h", 3, "a")
    assert path.read_text() == f"Host *.cluster login*\n  Port 4\n\n{entry('a', 3)}"


def test_what_is_between_entries_stays(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(f"{entry('a')}Host other\n  Port 1\n")
    SSHConfigFile(str(path)).remove_entry("a")
    assert path.read_text() == "Host other\n  Port 1\n"


def test_an_entry_that_is_not_there_can_be_removed(path: Path) -> None:
    SSHConfigFile(str(path)).remove_entry("a")
    assert not path.exists()


def test_a_linked_file_stays_linked(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "dotfiles")
    SSHConfigFile(str(path)).add_entry("me", "h", 22, "a")
    assert path.is_symlink()
    assert (tmp_path / "dotfiles").read_text() == entry("a")


def test_the_users_own_file_is_meant_by_default() -> None:
    assert SSHConfigFile().config_path == str(Path("~/.ssh/config").expanduser())
