"""Every pair of choices, on every backend, run end to end by a program of its own."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.secrets import readable_files_with
from tests.pairs.programs import MORE_TOLD, TOKEN, VARIABLES, WORDS
from tests.pairs.rows import Row, rows
from tests.pairs.sites import ENGINES, SITES, Site
from tests.pairs.users import User

pytestmark = pytest.mark.slow

ROWS = [
    pytest.param(
        row,
        id=str(row),
        marks=[pytest.mark.needs(ENGINES[row.site])] if row.site in ENGINES else [],
    )
    for row in rows()
]


class Sites:
    """Those that rows of this process have used; each is started once."""

    def __init__(self, hidden: Path) -> None:
        self.hidden = hidden
        self.marks = Path(tempfile.mkdtemp(prefix="nemo-run-pairs-"))
        self.opened: dict[str, Site] = {}
        self.ending = contextlib.ExitStack()

    def at(self, name: str, request: pytest.FixtureRequest) -> Site:
        if name not in self.opened:
            opening = SITES[name](request, self.hidden, self.marks)
            self.opened[name] = self.ending.enter_context(opening)
        return self.opened[name]


@pytest.fixture(scope="session")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    # Jobs see nothing of what is below: neither users' files nor their homes.
    found = Sites(tmp_path_factory.getbasetemp())
    with found.ending:
        yield found
    shutil.rmtree(found.marks)


@pytest.fixture
def user(
    request: pytest.FixtureRequest,
    sites: Sites,
    row: Row,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> User:
    site = sites.at(row.site, request)
    for name, value in site.variables.items():
        monkeypatch.setenv(name, value)
    return User(row, site, tmp_path, Path(tempfile.mkdtemp(dir=sites.marks)))


@pytest.mark.parametrize("row", ROWS)
def test_a_row(user: User, row: Row) -> None:
    done = user.launches()
    if row.refused:
        check_refused(user, done)
        return
    assert done.returncode == 0, said(done)
    states = user.experiment().status(return_dict=True) or {}
    assert {job: states[job]["status"].name for job in states} == dict.fromkeys(
        row.jobs, "SUCCEEDED"
    ), said(done)
    told = {job: user.told(job) for job in row.jobs}
    check_told(user, told)
    check_secret(user, done)
    check_provenance(user)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"


def check_refused(user: User, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 1, said(done)
    assert "UnsupportedError: " in done.stderr, said(done)
    assert not list(user.marks.glob("began-*"))


def check_told(user: User, told: dict[str, list[dict[str, Any]]]) -> None:
    row = user.row
    ranks = ["0", "1"] if row["launcher"] == "torchrun" else [""]
    found = [(one["name"], one["rank"]) for job in row.jobs for one in told[job]]
    wanted = [(name, rank) for name in row.names for rank in ranks]
    # A process that went well tells once more where another one has failed.
    assert sorted(set(found) if row["retries"] == "1" else found) == sorted(wanted)
    for one in (one for job in row.jobs for one in told[job]):
        assert one.pop("again", False) == fails_first(row, one)
        cwd = Path(one.pop("cwd"))
        assert one == {**expected(user), "name": one["name"], "rank": one["rank"]}
        assert (cwd == user.work) == (row.site == "local")


def fails_first(row: Row, one: dict[str, Any]) -> bool:
    return (
        row["retries"] == "1"
        and one["name"] == row.names[row.names[0] == "first"]
        and (one["rank"] in ("", "0"))
    )


def expected(user: User) -> dict[str, Any]:
    row = user.row
    plugged = row["plugin"] == "one"
    variables = dict([VARIABLES[row["variable"]]])
    known = {name: value for name, value in variables.items() if name != "HF_TOKEN"}
    travels = row.site == "local" or row["packager"] != "plain"
    return {
        "words": [*WORDS, *(["plugged"] if plugged else [])],
        "env": {**known, **({"PLUGGED": "by a plugin"} if plugged else {})},
        "token": hashlib.sha256(variables.get("HF_TOKEN", "").encode()).hexdigest(),
        "edition": user.edition if travels else "of the image",
        **MORE_TOLD.get(row["task"], {}),
    }


def check_secret(user: User, done: subprocess.CompletedProcess[str]) -> None:
    if user.row["variable"] == "secret":
        assert TOKEN not in done.stdout + done.stderr
        home = user.work.parent
        # The user's own program has it, of course.
        assert [
            path
            for path in readable_files_with(TOKEN, home / "nemorun_home", user.cluster)
            if path.read_bytes() != user.program.read_bytes()
        ] == []


def check_provenance(user: User) -> None:
    found = user.experiment().provenance
    assert found is not None
    assert found.git is not None
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=user.work, text=True)
    assert found.git.commit == head.strip()
    assert found.cwd == str(user.work)
    assert Path(found.argv[0]).name in (user.program.name, "nemorun")
    travelled = user.row.jobs if user.row.code_travels else []
    assert sorted(found.archives) == sorted(travelled)
