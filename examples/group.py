"""A group: tasks that start together, and end together when one of them fails.

A server is tested by a client that finds a mistake; the server ends with the group.
"""

import sys
import tempfile
import time
from pathlib import Path

import nemo_run as run


def serve(mailbox: str) -> None:
    print("serving", flush=True)
    Path(mailbox, "ready").touch()
    time.sleep(3600)


def client(mailbox: str) -> None:
    while not Path(mailbox, "ready").exists():
        time.sleep(0.05)
    sys.exit("the client is not happy")


def main() -> None:
    mailbox = tempfile.mkdtemp(prefix="group-")
    with run.Experiment("group", enable_goodbye_message=False) as exp:
        # The list is one job; its tasks are called pair-0 and pair-1.
        exp.add(
            [run.Partial(serve, mailbox=mailbox), run.Partial(client, mailbox=mailbox)],
            name="pair",
        )
        exp.run(tail_logs=True)
    statuses = exp.status(return_dict=True) or {}
    print("the group:", statuses["pair"]["status"].name)


if __name__ == "__main__":
    main()
