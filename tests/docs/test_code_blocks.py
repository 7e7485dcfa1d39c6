"""The Python in the documentation runs.

All blocks that start with three backticks and ``python`` on one page are one program, in order;
``python no-run`` marks one that is only to be read.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import patience

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "apidocs" not in path.parts and "_build" not in path.parts
)
BLOCK = re.compile(r"^```python *(?P<mark>\S*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the mark and the code of every Python block of a page."""
    return [(found["mark"], found["code"]) for found in BLOCK.finditer(page.read_text())]


def program(page: Path) -> str:
    """Return what runs of a page, every line where it is on the page."""
    lines: list[str] = []
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if not found["mark"]:
            lines += [""] * (text.count("\n", 0, found.start("code")) - len(lines))
            lines += found["code"].splitlines()
    return "\n".join(lines) + "\n"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


RUNNABLE = [page for page in PAGES if program(page).strip()]


def test_the_pages_that_show_most_have_something_to_run() -> None:
    assert {"README.md", "docs/index.md", "docs/getting-started.md"} <= set(map(name, RUNNABLE))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_are_python_and_their_marks_are_known(page: Path) -> None:
    for mark, code in blocks(page):
        assert mark in ("", "no-run")
        ast.parse(code, filename=name(page))


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    script = tmp_path / f"{page.stem.lower().replace('-', '_')}.py"
    script.write_text(program(page))

    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "NEMORUN_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience.seconds(100),
    )

    assert done.returncode == 0, done.stdout
