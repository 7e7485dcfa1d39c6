"""Packing a tree of 5,000 files and 200 MB, for the first time and again, in turns with git."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks._bench import Bench, Turn, in_turns, median_by_key, medians
from benchmarks._candidates import Candidate
from benchmarks._errors import CommandError
from benchmarks._report import Fact, Limit, Row

FILES = 5_000
FILE_BYTES = 40_000
PACKAGERS = ("git", "pattern", "hybrid", "snapshot")
RELEASED = ("git", "pattern", "hybrid")
BASELINE = "git archive | gzip -1"
# A file that was just written could be written once more, so nothing is remembered of it.
SETTLED_S = 3.0


def run(bench: Bench) -> list[Row | Fact]:
    tree = bench.directory() / "tree"
    _make(tree, FILES // 10 if bench.quick else FILES)
    time.sleep(SETTLED_S)
    turns = {BASELINE: Turn(functools.partial(_baseline, tree, bench.directory()))}
    for name in PACKAGERS:
        turns[name] = Turn(functools.partial(_pack, bench, bench.ours, tree, name))
    for name in RELEASED:
        turns[f"released {name}"] = Turn(
            functools.partial(_pack, bench, bench.released, tree, name), every=3
        )
    found = in_turns(bench.times(3), turns)
    baseline = medians({BASELINE: found[BASELINE]})[BASELINE]
    rows: list[Row | Fact] = []
    for name in PACKAGERS:
        ours = median_by_key(found[name])
        rows.append(Row(name, ours["first"], "s", BASELINE, baseline, Limit("<=", 1.1)))
        rows.append(
            Row(f"{name}, again", ours["second"], "s", BASELINE, baseline, Limit("<=", 0.1))
        )
        if name in RELEASED:
            theirs = median_by_key(found[f"released {name}"])
            released = bench.released.name
            rows.append(Row(name, ours["first"], "s", released, theirs["first"]))
            rows.append(Row(f"{name}, again", ours["second"], "s", released, theirs["second"]))
    return rows


def _pack(bench: Bench, candidate: Candidate, tree: Path, name: str) -> dict[str, Any]:
    # Each time a new home, in which nothing is known of the tree.
    return bench.ask(candidate, "packing", tree, name, home=bench.directory())


def _baseline(tree: Path, scratch: Path) -> float:
    begin = time.perf_counter()
    with (scratch / "baseline.tar.gz").open("wb") as output:
        archive = ["git", "-C", str(tree), "archive", "HEAD"]
        with subprocess.Popen(archive, stdout=subprocess.PIPE) as git:
            subprocess.run(["gzip", "-1"], stdin=git.stdout, stdout=output, check=True)
    if git.returncode:
        raise CommandError(archive, git.returncode, "")
    return time.perf_counter() - begin


def _make(tree: Path, files: int) -> None:
    """Commit files that look like code: words, signs and numbers."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz_", k=7)) for _ in range(3000)]
    for number in range(files):
        file = tree / f"package_{number % 50}" / f"part_{number % 7}" / f"module_{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines, size_bytes = [], 0
        while size_bytes < FILE_BYTES:
            line = f"{' '.join(chance.choices(words, k=10))} = {chance.random()}\n"
            lines.append(line)
            size_bytes += len(line)
        file.write_text("".join(lines))
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_CONFIG_GLOBAL": os.devnull}
    who |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        command = ["git", "-C", str(tree), *argv]
        done = subprocess.run(command, env={**os.environ, **who}, capture_output=True, check=False)
        if done.returncode:
            raise CommandError(command, done.returncode, os.fsdecode(done.stderr))
