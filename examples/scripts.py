"""Run things that are not Python functions: inline text, a module, a command line, a file."""

import tempfile
from pathlib import Path

import nemo_run as run


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
    file = Path(tempfile.mkdtemp(prefix="scripts-")) / "job.sh"
    file.write_text("echo the file ran as $0\n")

    with run.Experiment("scripts", check=True, enable_goodbye_message=False) as exp:
        exp.add(greet, name="greet")
        exp.add(python, name="python")
        exp.add(module, name="module")
        exp.add(command, name="command")
        exp.add(run.Script(str(file)), name="file")
        exp.run(tail_logs=True)


if __name__ == "__main__":
    main()
