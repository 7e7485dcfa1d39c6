"""The command ``nemorun``, also as ``nemo`` and ``python -m nemo_run``."""

from __future__ import annotations

import sys


def app() -> None:
    """Run the command line of this process and exit with its outcome."""
    from nemo_run.cli.commands.application import main, program_name

    sys.exit(main(sys.argv[1:], program_name(sys.argv[0])))


if __name__ == "__main__":
    app()
