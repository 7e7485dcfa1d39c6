"""A Python shell with a task in it, to be looked at, changed and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nemo_run.config import Partial

_BANNER = "The task is in `task`; change it as you like, and call `run_task()` to run it."


def open_shell(task: Partial[Any], run_task: Callable[[], None]) -> None:
    """Open a shell, IPython's if it is installed, with ``task`` and ``run_task`` in scope."""
    names = {"task": task, "run_task": run_task}
    try:
        from IPython import start_ipython  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        import code

        code.interact(banner=_BANNER, local=names, exitmsg="")
        return
    print(_BANNER)
    start_ipython(argv=["--no-banner"], user_ns=names)
