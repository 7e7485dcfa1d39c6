"""Whatever is typed: an answer and an exit code, no traceback, and no file where none belongs."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli import commands

LINES = int(os.environ.get("NEMO_RUN_FUZZ_LINES", "250"))
SEED = int(os.environ.get("NEMO_RUN_FUZZ_SEED", "20"))

NAMES = ["net", "net.width", "nets[0].width", "nets[9]", "steps", "tags", "default.depth", "data",
         "run.name", "run.executor", "run.executor.nodes", "run.plugins", "run.plugins[0].by",
         "run", "run.", "_target_", "_factory_", "a.b.c", "[0]", "", "ünï", "path"]  # fmt: skip
OPERATORS = ["=", "=", "=", "+=", "-=", "*=", "/=", "|=", "&=", "==", ":=", "//=", " = ", ""]
VALUES = ["1", "-1", "1e400", "nan", "small_net", "small_net(width=2)", "small_net(", "[1, 2]",
          "[", "{'a': 1}", "Config", "Config[fit.Net]", "Config[os.system]", "None", "null", "",
          "'", '"', "@gone.yaml", "@/etc/passwd", "@../x.yaml:y", "os.getcwd", "os.system('true')",
          "__import__('os').mkdir('made')", "lambda: 1", "(" * 60, "9" * 5000, "\x1b[31m", "日本",
          "local", "double", "1,2", "1..3", "${x}", "???", "*" * 50, "\udc80", "a=b=c"]  # fmt: skip
FLAGS = ["--yes", "--dryrun", "--direct", "--detach", "--sweep", "--factory", "recipe", "--yaml",
         "gone.yaml", "--sweep-file", "--help", "--docs", "--verbos", "--", "-", "-x", "--name",
         "--no-yes", "--repl", "--lazy", "--rich-exceptions", "--tail-logs"]  # fmt: skip
COMMANDS = ["experiment", "plan", "doctor", "completion", "__complete", "bash", "list", "show",
            "status", "logs", "wait", "cancel", "resume", "rerun", "diff", "tag", "note", "rm",
            "gc", "export", "latest", "hello", "0", "-1", "--json", "--all", "--since", "2d",
            "--state", "FAILED", "--text", "--limit", "--grep", "--older-than", "--format", "csv",
            "-f", "--timeout", "1s", "--yes", "--help", "--lazy", "--version", "--tail", "--job",
            "--until", "--executor", "--tag", "--keep-tagged", "--ids", "--failed", "--dryrun",
            "--code", "recorded", "--remove", "x=1", "run.executor.nodes=x", "9" * 400 + "d",
            "job", "1", "--detach"]  # fmt: skip

# So that there is something to look at, follow, end and repeat.
HELLO = """
import nemo_run as run
with run.Experiment("hello", executor=run.LocalExecutor()) as experiment:
    experiment.add(run.Script(inline="echo hello"), name="job")
    experiment.add(run.Script(inline="exit 3"), name="other")
    experiment.run()
"""


def overrides(random: random.Random) -> list[str]:
    words = []
    for _ in range(random.randint(0, 5)):
        if random.random() < 0.4:
            words.append(random.choice(FLAGS))
        else:
            parts = (random.choice(NAMES), random.choice(OPERATORS), random.choice(VALUES))
            words.append("".join(parts))
    return words


def command(random: random.Random) -> list[str]:
    if random.random() < 0.2:
        return ["plan", str(commands.SCRIPTS / "fit.py"), *overrides(random)]
    start = random.choice([["experiment"], ["experiment"], ["doctor"], ["completion"], []])
    words = [random.choice(COMMANDS) for _ in range(random.randint(0, 4))]
    return [*start, *words, *(overrides(random) if random.random() < 0.3 else [])]


def outcomes(program: str, lines: Sequence[Sequence[str]], directory: Path) -> list[list[object]]:
    elsewhere = [directory / name for name in ("work", "user", "tmp")]
    for place in elsewhere:
        place.mkdir()
    work, user, tmp = elsewhere
    env = {"NEMORUN_HOME": str(directory / "home"), "INCLUDE_WORKSPACE_FILE": "false"}
    env |= {"HOME": str(user), "TMPDIR": str(tmp)}
    commands.run([sys.executable, "-c", HELLO], cwd=work, env=env)
    done = commands.run(
        [sys.executable, commands.SCRIPTS / program],
        cwd=work,
        env=env,
        input="".join(json.dumps(words) + "\n" for words in lines),
        timeout_s=280,
    )
    assert done.code == 0, done.err
    left = [path for place in elsewhere for path in place.rglob("*")]
    assert left == [], "nothing is written outside of the home directory"
    return [json.loads(line) for line in done.lines]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "make"), [("several.py", overrides), ("several_commands.py", command)]
)
def test_any_command_line_gets_an_answer(program, make, tmp_path: Path) -> None:
    generator = random.Random(SEED)
    lines = [make(generator) for _ in range(LINES)]
    for words, (code, _, err) in zip(lines, outcomes(program, lines, tmp_path), strict=True):
        assert code in (0, 1, 2), words
        assert "Traceback" not in str(err), words
        assert "nemo_run/" not in str(err), words
