"""Three groups of two scripts each; the third starts when the first two have ended well.

    python examples/group_order.py

The groups are the same on every executor that has them; this one is this machine.
"""

import tempfile
from pathlib import Path

import nemo_run as run


def pair(name: str) -> list[run.Script]:
    return [run.Script(inline=f"echo {name} {side}") for side in ("left", "right")]


def main() -> None:
    with run.Experiment("group-order", executor=run.LocalExecutor(), check=True) as exp:
        data = exp.add(pair("data"), name="data", tail_logs=True)
        model = exp.add(pair("model"), name="model", tail_logs=True)
        exp.add(pair("train"), name="train", tail_logs=True, dependencies=[data, model])
        exp.run()


if __name__ == "__main__":
    # An example has no business in your home directory; leave this line out in your own.
    run.config.set_nemorun_home(Path(tempfile.mkdtemp(prefix="group-order-")))
    main()
