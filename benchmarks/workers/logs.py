"""Arguments: ANSWER LINES REPEATS."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import nemo_run as run
from benchmarks.workers._answer import answer
from nemo_run.run.logs import get_logs

# 99 characters and a newline.
LINE = "%08.0f " + "x" * 90


def main() -> None:
    count, repeats = int(sys.argv[2]), int(sys.argv[3])
    script = run.Script(inline=f"seq -f '{LINE}' {count}")
    with run.Experiment("logs", executor=run.LocalExecutor()) as experiment:
        experiment.add(script, name="writer")
        experiment.run()
    handle = experiment.jobs[0].handle
    files = {
        path.stat().st_ino: path for path in Path(experiment._exp_dir).rglob("*") if path.is_file()
    }
    log = max(files.values(), key=lambda path: path.stat().st_size)
    seconds: dict[str, list[float]] = {"follow": [], "cat": []}
    whole = True
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        followed, copied = Path(directory, "followed"), Path(directory, "copied")
        for _ in range(repeats):
            begin = perf_counter()
            with copied.open("wb") as output:
                subprocess.run(["cat", str(log)], stdout=output, check=True)
            seconds["cat"].append(perf_counter() - begin)
            begin = perf_counter()
            with followed.open("w") as text:
                get_logs(file=text, identifier=handle, regex=None, should_tail=True)
            seconds["follow"].append(perf_counter() - begin)
            whole = whole and _is_whole(followed, count)
            copied.unlink()
            followed.unlink()
    stored = sum(path.stat().st_blocks * 512 for path in files.values())
    answer({**seconds, "stored": stored, "written": count * 100, "whole": whole})


def _is_whole(path: Path, count: int) -> bool:
    number = 0
    with path.open() as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(LINE % number + "\n"):
                return False
    return number == count


if __name__ == "__main__":
    main()
