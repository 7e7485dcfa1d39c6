"""A task that is written to a file and read again is the same task."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli import commands

pytestmark = pytest.mark.slow

# Words that can stand together; a process for each would take minutes.
WORDS = {
    "mappings and nulls": [
        "entries={'b': 2}",
        "net.sizes={'b': 2}",
        "unset=None",
        "several=[None, {'x': None}, {1, 2}]",
        "letters={'a', 'b'}",
        r"text=\${entries}",
        "anything='5'",
    ],
    "emptiness": ["entries={}", "several=[]", r"text=C:\\\${x}\\", "anything=none"],
    "depth": ["text=none", "anything={'a': {'b': [1.5, (1, 2)]}}"],
}


@pytest.mark.parametrize("format", ["yaml", "json", "toml"])
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_words_come_back_from_a_file(here: Path, words: list[str], format: str) -> None:
    given = commands.script("holder.py", *words, "--yes", cwd=here)
    assert given.code == 0, given.err
    wrote = commands.script("holder.py", *words, f"--to-{format}", f"it.{format}", cwd=here)
    assert wrote.code == 0, wrote.err
    read = commands.script("holder.py", "--yaml", f"it.{format}", "--yes", cwd=here)
    assert read.code == 0, read.err
    assert read.lines[-1] == given.lines[-1]
