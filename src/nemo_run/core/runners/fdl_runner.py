"""Run a stored task: ``python -m nemo_run.core.runners.fdl_runner [options] CONFIG``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def fdl_direct_run(
    fdl_config: str, package_cfg: str | None = None, fdl_dryrun: bool = False, run_name: str = "run"
) -> None:
    """Build the task in ``fdl_config``, a file or the text itself, and call it.

    ``package_cfg`` is the packager's config, likewise; its ``setup`` runs first. With
    ``fdl_dryrun`` the task is shown and built, not called.
    """
    texts = [_text(config) for config in (package_cfg, fdl_config) if config]
    _find_main(fdl_config, texts)
    if package_cfg:
        _partial(texts[0])().setup()
    if fdl_dryrun:
        _show(texts[-1])
    else:
        _partial(texts[-1])()


def _partial(text: str) -> Any:
    """Return the call that a stored config describes, all but made."""
    from nemo_run.core.serialization.build import NeedsFiddleError, build_text

    try:
        return build_text(text, as_partial=True)
    except NeedsFiddleError:
        return _partial_with_fiddle(text)


def _partial_with_fiddle(text: str) -> Any:
    from nemo_run._fiddle import fdl
    from nemo_run.config import Partial

    task = _decoded(text)
    return fdl.build(task if isinstance(task, fdl.Partial) else fdl.cast(Partial, task))


def _decoded(text: str) -> Any:
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

    task = ZlibJSONSerializer().deserialize(text)
    return _resolved(task) if getattr(type(task), "is_lazy", False) else task


def _resolved(task: Any) -> Any:
    """Return what a lazy task means here, where its words are looked at for the first time."""
    from nemo_run.cli._exit_codes import message_of
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
    """Load the saved launching script where something in it is named."""
    from nemo_run.run._main_module import merge_saved_main, names_main

    path = _path(config)
    if path is None or not any(map(names_main, texts)):
        return
    try:
        merge_saved_main(path.resolve().parents[2], replace=True)
    except Exception:  # the task may not need what failed
        log.warning("the saved launching script could not be loaded", exc_info=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line; options and arguments that are not ours are left alone."""
    parser = argparse.ArgumentParser(prog="fdl_runner", description=__doc__, allow_abbrev=False)
    parser.add_argument("--dryrun", action="store_true", help="show and build, do not call")
    parser.add_argument("-n", "--name", default="run", help="name of the run; informational")
    parser.add_argument("-p", "--package-cfg", help="config of the packager: a file or text")
    parser.add_argument("config", help="the task: a file or text")
    options, _ = parser.parse_known_args(arguments)
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
