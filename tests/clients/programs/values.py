"""Launch one job with all the kinds of values that tools put into variables and arguments."""

import json
import sys
from pathlib import Path

from clusters import executor, out, record  # type: ignore[import-not-found]

import nemo_run as run

FIRST_NODE = "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)"
PLAIN = {
    "BLANKS": "  two  words ",
    "QUOTES": 'it\'s "quoted"',
    "SEMICOLON": "a; touch started & echo > started | cat",
    "NEWLINE": "first\nsecond",
    "BACKSLASH": "a\\b\\",
    "STAR": "*",
    "UMLAUT": "naïve ☃",
    "EMPTY": "",
}


def expansions() -> None:
    """What the shell of the job replaces."""
    launch(
        executor(
            env_vars={
                "MASTER": FIRST_NODE,
                "PYTHONPATH": "/x:$PYTHONPATH",
                "BRACES": "${SLURM_JOB_ID}.log",
                "MANY": "$(printf 'a  b; c')",
            }
        ),
        record("expansions", env={"FROM_SCRIPT": "job-$SLURM_JOB_ID", "HOST_TOO": FIRST_NODE}),
    )


def search_path() -> None:
    """The one variable without which the job does not even find its interpreter."""
    launch(executor(env_vars={"PATH": "/x:$PATH"}), record("search_path"))


def plain() -> None:
    """What holds signs of a shell and must arrive as it is."""
    settings = {f"E_{name}": value for name, value in PLAIN.items()}
    env = {f"S_{name}": value for name, value in PLAIN.items()}
    launch(executor(env_vars=settings), record("plain", env=env))


def arguments() -> None:
    launch(
        executor(env_vars={"SPACED": "a  b; c"}),
        record(
            "arguments",
            "--calib-size 32",
            "--id",
            "$SLURM_JOB_ID",
            "--log ${SLURM_JOB_ID}.log",
            "--spaced",
            "$SPACED",
            "--stop",
            "a;b",
            "--who",
            "it's",
            "--json",
            '{"a": [1, 2]}',
            "--text",
            "hello world",
            "*",
        ),
    )


def elements() -> None:
    """Each element of an array has a file of its own."""
    launch(executor(array="0-1"), record("element-$SLURM_ARRAY_TASK_ID"))


def secrets() -> None:
    """Tokens are whatever their makers chose, dollar signs included."""
    launch(
        executor(env_vars={"HF_TOKEN": "a$b", "WANDB_API_KEY": "x$(id)y"}),
        record("secrets", env={"OPENAI_API_KEY": "k${HOME}k"}),
    )


def literal() -> None:
    launch(
        executor(env_vars={"KEPT": run.literal("$HOME/$(id)")}),
        record("literal", run.literal("$HOME"), env={"KEPT_TOO": run.literal("${HOME}")}),
    )


def nothing() -> None:
    """None, where a tool has no value for a setting."""
    launch(
        executor(dependencies=None, retries=None, additional_parameters=None),
        run.Script(inline=f"echo ran > '{out('nothing.txt')}'", args=None, env=None, metadata=None),  # type: ignore[arg-type]  # as 0.12 takes it
    )


def launch(where: run.SlurmExecutor, task: run.Script) -> None:
    title = sys.argv[1]
    with run.Experiment(title, executor=where) as experiment:
        experiment.add(task, name="main")
        experiment.run()
    (found,) = (experiment.status(return_dict=True) or {}).values()
    shown = {**found, "status": found["status"].name}
    Path(out(f"{title}.status")).write_text(json.dumps(shown, default=str))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
