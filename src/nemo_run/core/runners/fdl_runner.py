"""Run a stored task: ``python -m nemo_run.core.runners.fdl_runner [options] CONFIG``."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nemo_run
from nemo_run._callables import call

if TYPE_CHECKING:
    from types import FrameType, TracebackType


def fdl_direct_run(
    fdl_config: str, package_cfg: str | None = None, fdl_dryrun: bool = False, run_name: str = "run"
) -> None:
    """Build the task in ``fdl_config``, a file or the text itself, and call it.

    ``package_cfg`` is the packager's config, likewise; its ``setup`` runs first. With
    ``fdl_dryrun`` the task is shown and built, not called.
    """
    texts = [_text(config) for config in (package_cfg, fdl_config) if config]
    _find_main(fdl_config, texts)
    _find_workspace(fdl_config, texts)
    if package_cfg:
        _partial(texts[0])().setup()
    if fdl_dryrun:
        _show(texts[-1])
    else:
        call(_partial(texts[-1]))


def _partial(text: str) -> Any:
    """Return the call that a stored config describes, all but made."""
    from nemo_run.core.serialization.build import NeedsFiddleError, build_text

    try:
        return build_text(text, as_partial=True)
    except NeedsFiddleError:
        return _partial_with_fiddle(text)


def _partial_with_fiddle(text: str) -> Any:
    from nemo_run._config.fiddle import fdl
    from nemo_run.config import Partial

    task = _decoded(text)
    return fdl.build(task if isinstance(task, fdl.Partial) else fdl.cast(Partial, task))


def _decoded(text: str) -> Any:
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

    task = ZlibJSONSerializer().deserialize(text)
    return _resolved(task) if getattr(type(task), "is_lazy", False) else task


def _resolved(task: Any) -> Any:
    """Return what a lazy task means here, where its words are looked at for the first time."""
    from nemo_run.cli.terminal.exit_codes import message_of
    from nemo_run.exceptions import ConfigError

    try:
        return task.resolve()
    except ConfigError as err:
        raise SystemExit(f"Error: {message_of(err)}") from err


def _show(text: str) -> None:
    from nemo_run.api import dryrun_fn

    dryrun_fn(_decoded(text), build=True)


def _text(config: str) -> str:
    path = _path(config)
    return config if path is None else path.read_text()


def _path(config: str) -> Path | None:
    try:
        path = Path(config)
        return path if path.is_file() else None
    except OSError:  # a text too long to be a path
        return None


def _find_main(config: str, texts: Sequence[str]) -> None:
    """Make the saved launching script the main module where something in it is named."""
    from nemo_run._experiments.main_in_job import become_main, forget_main
    from nemo_run._experiments.main_module import names_main

    path = _path(config)
    forget_main()
    if path is not None and any(map(names_main, texts)):
        # Beside the task; earlier releases have it in the directory of the experiment only.
        become_main([path.resolve().parent, *path.resolve().parents[2:3]])


def _find_workspace(config: str, texts: Sequence[str]) -> None:
    """Make the saved workspace file module ``workspace`` where something in it is named."""
    from nemo_run._experiments import workspace_file

    path = _path(config)
    workspace_file.forget_workspace()
    if path is not None and any(map(workspace_file.names_workspace, texts)):
        workspace_file.become_workspace(path.resolve().parent)


def _show_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show an error that ends the job, from the first frame on that is the user's."""
    import traceback

    traceback.print_exception(kind, error, _without_ours(trace))


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while first is not None and _is_ours(first.tb_frame):
        first = first.tb_next
    return first or trace


def _is_ours(frame: FrameType) -> bool:
    # Not by the name of the module: the user's is the main module, which has that of this one.
    own = frame.f_code.co_filename.startswith(str(Path(nemo_run.__file__).parent))
    return own or str(frame.f_globals.get("__name__")).partition(".")[0] in ("runpy", "asyncio")


def _write_whole_lines() -> None:
    """Have each line written in one piece, since other ranks write into the same log.

    Unbuffered, as jobs and torchrun want Python to be, each word of ``print("rank", 1)`` is
    written by itself, and what else is written meanwhile comes between them.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.write_through:
            stream.reconfigure(line_buffering=True, write_through=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line; options and arguments that are not ours are left alone."""
    _write_whole_lines()
    parser = argparse.ArgumentParser(prog="fdl_runner", description=__doc__, allow_abbrev=False)
    parser.add_argument("--dryrun", action="store_true", help="show and build, do not call")
    parser.add_argument("-n", "--name", default="run", help="name of the run; informational")
    parser.add_argument("-p", "--package-cfg", help="config of the packager: a file or text")
    parser.add_argument("config", help="the task: a file or text")
    options, _ = parser.parse_known_args(arguments)
    sys.excepthook = _show_error
    fdl_direct_run(options.config, options.package_cfg, options.dryrun, options.name)


def __getattr__(name: str) -> Any:
    if name == "fdl_runner_app":
        return _typer_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _typer_app() -> Any:
    # Typer takes longer to import than many tasks take to run, so main() does without it.
    import typer

    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def fdl_runner(
        config: str = typer.Argument(help="the task: a file or text"),
        dryrun: bool = typer.Option(False, help="show and build, do not call"),
        name: str = typer.Option("run", "--name", "-n"),
        package_cfg: str = typer.Option("", "--package-cfg", "-p"),
    ) -> None:
        fdl_direct_run(config, package_cfg or None, dryrun, name)

    return app


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # In a process that the job has spawned, this module stands for the job's main module.
    from nemo_run._experiments.main_in_job import become_main_again
    from nemo_run._experiments.workspace_file import become_workspace_again

    become_workspace_again()
    globals().update(become_main_again())
