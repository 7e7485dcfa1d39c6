"""What a version is asked about a recorded home, and how its answers are made comparable."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TypedDict

HERE = Path(__file__).parent
TITLES = (
    *("finished", "failing", "group", "retried", "lazy", "planned", "detached", "half"),
    *("slurm", "docker", "lepton", "dgx_cloud", "kubeflow"),
)
NEED_A_SERVER = ("lepton", "dgx_cloud", "kubeflow")
"""What prints logs only while the service that ran the jobs answers."""
DURING = {"duration_s", "started_at", "ended_at", "created_at", "recorded_at"}
"""What differs each time that something is run."""

_ID = re.compile(r"\b([a-z_]+)_(\d{19})\b")
_TAG = re.compile(r"-nr-[0-9a-f]{20}\b")


class Answer(TypedDict):
    """What a command said, and how it ended."""

    words: list[str]
    code: int
    said: Any


STORIES: dict[str, list[list[str]]] = {
    "list": [
        ["list", "--json"],
        ["list", "--ids"],
        ["list", "--state", "FAILED", "--ids"],
        ["list", "--executor", "slurm", "--ids"],
        ["list", "--tag", "best", "--ids"],
        ["list", "--text", "warm-up", "--ids"],
        ["diff", "finished", "failing", "--json"],
    ],
    "status": [["status", title, "--json"] for title in TITLES],
    "show": [["show", title, "--json"] for title in TITLES],
    "logs": [["logs", title] for title in TITLES if title not in NEED_A_SERVER],
    "wait": [["wait", title] for title in TITLES if title not in ("half", "planned")],
    "resume": [
        ["resume", "half", "--json"],
        ["status", "half", "--json"],
        ["logs", "half"],
        ["wait", "half", "--json"],
        ["resume", "finished", "--json"],
    ],
    "resume-detached": [
        ["resume", "half", "--detach", "--json"],
        ["wait", "half", "--json"],
        ["logs", "half"],
    ],
    "rerun": [
        ["rerun", "failing", "--json"],
        ["status", "failing", "--json"],
        ["rerun", "finished", "steps=9", "--job", "train", "--json"],
        ["logs", "finished"],
        ["rerun", "failing", "--failed", "--json"],
        ["rerun", "lazy", "steps=8", "--json"],
        ["logs", "lazy"],
        ["rerun", "group", "--json"],
        ["rerun", "detached", "--json"],
        ["logs", "group"],
    ],
    "rerun-planned": [["rerun", title, "--dryrun"] for title in TITLES],
    "cancel": [
        ["cancel", "half", "--all", "--json"],
        ["status", "half", "--json"],
        ["cancel", "finished", "--all", "--json"],
        ["cancel", "slurm", "--all", "--json"],
        ["status", "slurm", "--json"],
    ],
    "rm": [
        ["rm", "half", "--yes", "--json"],
        ["rm", "finished", "slurm", "lepton", "--yes", "--json"],
        ["list", "--ids"],
        ["status", "finished", "--json"],
    ],
    "words": [
        ["tag", "finished", "more", "--json"],
        ["tag", "finished", "best", "--remove", "--json"],
        ["note", "lazy", "read when it runs", "--json"],
        ["list", "--json"],
    ],
    "python": [["looking.py"]],
    "python-again": [["again.py"]],
}
STILL = ("list", "status", "show", "logs", "wait", "python")
"""The stories in which nothing is run, so that times are those of the record."""


def ask(story: str, root: Path) -> list[Answer]:
    """Ask about the home below ``root``, one question after the other, with this python."""
    known = _known(root / "home")
    for script in (HERE / "scripts").glob("*.py"):
        shutil.copy(script, root / "project")
    return [_ask(words, root, known, still=story in STILL) for words in STORIES[story]]


def _ask(words: list[str], root: Path, known: set[str], *, still: bool) -> Answer:
    answer = root / "answer.json"
    in_python = words[0].endswith(".py")
    command = [*words, str(answer)] if in_python else ["-m", "nemo_run", "experiment", *words]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root / "project",
        env={**_environment(root), "NEMORUN_HOME": str(root / "home")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if in_python and done.returncode:
        raise RuntimeError(f"{words[0]} failed:\n{done.stderr}")
    said = comparable(answer.read_text() if in_python else done.stdout, root, known)
    if "--dryrun" in words:
        # How jobs are submitted may change; that they can be planned may not.
        said = "\n".join(re.findall(r"\[DRYRUN\] Task \S+", said))
    if "--detach" in words:
        said = ""  # how far it has come by then depends on the machine
    return Answer(words=words, code=done.returncode, said=_parsed(said, still))


def _environment(root: Path) -> dict[str, str]:
    given = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**given, "HOME": str(root), "TZ": "UTC", "LANG": "C.UTF-8", "COLUMNS": "200"}


def comparable(text: str, root: Path, known: set[str]) -> str:
    """Put words in the place of paths, and of the ids of what has been run meanwhile."""

    def named(match: re.Match[str]) -> str:
        return match[0] if match[0] in known else f"{match[1]}_NEW"

    def tagged(match: re.Match[str]) -> str:
        return match[0] if match[0] in known else "-nr-NEW"

    return _TAG.sub(tagged, _ID.sub(named, text.replace(str(root), "ROOT")))


def _known(home: Path) -> set[str]:
    """Return the ids of experiments and jobs that are recorded."""
    text = " ".join(str(path) for path in home.rglob("*"))
    return {match[0] for pattern in (_ID, _TAG) for match in pattern.finditer(text)}


def _parsed(text: str, still: bool) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text.splitlines()
    return _steady(value, still)


def _steady(value: Any, still: bool) -> Any:
    """Return ``value`` without the times in it that differ each time."""
    if isinstance(value, list):
        return [_steady(part, still) for part in value]
    if not isinstance(value, dict):
        return value
    # The duration of what has not ended grows.
    differing = {"duration_s"} if value.get("ended_at", "") is None else set()
    differing = differing if still else DURING
    return {
        key: "some" if key in differing and part is not None else _steady(part, still)
        for key, part in value.items()
    }
