"""The launchers that are compared, each installed into a virtual environment of its own."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks._errors import CommandError

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"

# Later releases of the SDK lack a module that NeMo Run 0.11.1 imports.
RELEASED = ("nemo_run==0.11.1", "leptonai<0.28", "submitit")
# Apart from NeMo Run: whose entry points replace torchx's own schedulers.
TORCHX = ("torchx==0.7.0",)


@dataclass(frozen=True)
class Candidate:
    """A launcher: what to call it, and the virtual environment it is in."""

    name: str
    venv: Path

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    def command(self, name: str) -> str:
        return str(self.venv / "bin" / name)

    def environment(self, home: Path) -> dict[str, str]:
        """Return an environment in which the candidate keeps everything under ``home``."""
        home.mkdir(parents=True, exist_ok=True)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV", "NEMO", "TORCHX", "SLURM"))
        }
        # The width and colours of the terminal must not make one run differ from another.
        return {
            **kept,
            "HOME": str(home),
            "NEMORUN_HOME": str(home / "nemo_run"),
            "PATH": f"{self.venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": str(ROOT),
            "TERM": "dumb",
            "COLUMNS": "100",
        }


def this_tree() -> Candidate:
    """Return what `pip install .` gives, without extras, of the sources as they are now."""
    stamp = _digest([ROOT / "pyproject.toml", *sorted((ROOT / "src").rglob("*.py"))])
    pins = ROOT / "constraints.txt"
    requirement = [*(["-c", str(pins)] if pins.is_file() else []), str(ROOT)]
    return _installed("nemo_run", BENCH / "core", requirement, stamp)


def released() -> Candidate:
    """Return NeMo Run 0.11.1 from the package registry, with submitit beside it."""
    return _installed("NeMo Run 0.11.1", BENCH / "peers", RELEASED, repr(RELEASED))


def torchx() -> Candidate:
    return _installed("torchx 0.7.0", BENCH / "torchx", TORCHX, repr(TORCHX))


def _installed(name: str, venv: Path, requirements: Sequence[str], stamp: str) -> Candidate:
    stamp_file = venv / "installed"
    if not stamp_file.is_file() or stamp_file.read_text() != stamp:
        print(f"installing {name} into {venv.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
        # From nothing: what an earlier version needed must not be counted.
        shutil.rmtree(venv, ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(venv)])
        _call([str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements])
        stamp_file.write_text(stamp)
    return Candidate(name, venv)


def _call(argv: Sequence[str]) -> None:
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise CommandError(argv, done.returncode, done.stdout + done.stderr)


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
