"""Run things that are not Python functions, beside one that is, all at once on this machine.

Inline text, a module, a command line, a file.
"""

import os
import tempfile
from pathlib import Path

import nemo_run as run


def count(up_to: int) -> None:
    print("counted to", up_to)


def main() -> None:
    # Arguments and environment arrive as they are: nothing is pasted into shell text.
    greet = run.Script(
        inline='echo "hello, $1, from $PLACE"',
        args=["a name with  blanks; and $dollars"],
        env={"PLACE": "a script"},
    )
    python = run.Script(inline="print(sum(range(10)))", entrypoint="python")
    module = run.Script("json.tool", m=True, entrypoint="python", args=["--help"])
    command = run.Script("printf '%s\\n' one two")
    # A path is that of a file here, relative to the current directory.
    os.chdir(tempfile.mkdtemp(prefix="scripts-"))
    Path("job.sh").write_text("echo the file ran as $0\n")

    with run.Experiment(
        "scripts",
        executor=run.LocalExecutor(),
        log_level="WARN",
        check=True,
        enable_goodbye_message=False,
    ) as exp:
        exp.add(greet, name="greet")
        exp.add(python, name="python")
        exp.add(module, name="module")
        exp.add(command, name="command")
        exp.add(run.Script("./job.sh"), name="file")
        exp.add(run.Partial(count, up_to=3), name="function")
        exp.run(tail_logs=True)
    kept = Path(exp.jobs[0].executor.job_dir, "scripts", "greet.sh")
    print("written down:", kept.read_text().splitlines()[-1])


if __name__ == "__main__":
    main()
