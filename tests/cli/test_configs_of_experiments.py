"""What functions that make experiments are given."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import nemo_run as run

class Net:
    def __init__(self, width: int = 1) -> None:
        self.width = width

def train(n: int = 1) -> None:
    pass

@run.cli.entrypoint(type="experiment")
def go(
    ctx: run.cli.RunContext,
    task: run.Partial[train] = run.Partial(train),
    nets: list[run.Config[Net]] = [run.Config(Net)],
    plain: int = 1,
) -> None:
    print(type(task).__name__, task.n, type(nets[0]).__name__, nets[0].width, plain)

if __name__ == "__main__":
    run.cli.main(go)
"""


def go(directory: Path, *words: str) -> list[str]:
    script = directory / "go.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), *words, "--yes"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1].split()


def test_configs_stay_configs_whether_changed_or_not(tmp_path: Path) -> None:
    assert go(tmp_path) == ["Partial", "1", "Config", "1", "1"]
    words = ("task.n=3", "nets[0].width=5", "plain=2")
    assert go(tmp_path, *words) == ["Partial", "3", "Config", "5", "2"]
