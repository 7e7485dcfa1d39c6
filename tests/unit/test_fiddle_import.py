"""Fiddle is imported without the parser that it rarely needs, and has it when it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_file(directory: Path, code: str) -> list[str]:
    """Run a script, warnings as errors, and return the lines that it printed."""
    path = directory / "script.py"
    path.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_the_config_module_does_not_load_libcst(tmp_path: Path) -> None:
    code = "import sys, nemo_run.config\nprint([n for n in sys.modules if n.startswith('libcst')])"
    assert run_file(tmp_path, code) == ["[]"]


def test_libcst_is_itself_afterwards(tmp_path: Path) -> None:
    code = (
        "import nemo_run.config\n"
        "import libcst\n"
        "print(libcst.parse_module('x = 1').code)\n"
        "print(libcst.metadata.PositionProvider.__module__.partition('.')[0])\n"
    )
    assert run_file(tmp_path, code) == ["x = 1", "libcst"]


def test_a_lambda_in_a_file_can_be_converted(tmp_path: Path) -> None:
    code = (
        "import nemo_run as run\n"
        "class Model:\n"
        "    def __init__(self, width=1):\n"
        "        self.width = width\n"
        "recipe = run.autoconvert(lambda width: Model(width=width))\n"
        "config = recipe(7)\n"
        "print(type(config).__name__, config.__fn_or_cls__.__name__, config.width)\n"
        "import libcst\n"
        "print(hasattr(libcst, 'parse_module'))\n"
    )
    assert run_file(tmp_path, code) == ["Config Model 7", "True"]
