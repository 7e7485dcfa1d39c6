"""What a core install puts on the disk, without pip and setuptools."""

from __future__ import annotations

from pathlib import Path

from benchmarks._bench import Bench
from benchmarks._candidates import Candidate
from benchmarks._report import Fact, Limit, Row

# Belong to the virtual environment, not to what was installed into it.
NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")


def run(bench: Bench) -> list[Row | Fact]:
    ours, released = (_entries(candidate) for candidate in (bench.ours, bench.released))
    name = f"{bench.released.name} (and submitit)"
    return [
        Row("packages", _packages(ours), "", limit=Limit("<=", 45)),
        Row("size", _size_mb(ours), "MB", limit=Limit("<=", 90)),
        Row("packages", _packages(ours), "", name, _packages(released)),
        Row("size", _size_mb(ours), "MB", name, _size_mb(released)),
    ]


def _entries(candidate: Candidate) -> list[Path]:
    (site,) = candidate.venv.glob("lib/python*/site-packages")
    return [path for path in site.iterdir() if not path.name.startswith(NOT_OURS)]


def _packages(entries: list[Path]) -> int:
    return sum(path.name.endswith(".dist-info") for path in entries)


def _size_mb(entries: list[Path]) -> float:
    files = [file for path in entries for file in (path, *path.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6
