"""``nemorun doctor``: whether this installation works, and executors before they are used."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nemo_run._experiments.display.tables import one_line
from nemo_run._home import get_nemorun_home, working_directory
from nemo_run.cli.experiments.arguments import Parser, as_json
from nemo_run.cli.terminal.screen import DIM, GREEN, RED, YELLOW, Screen
from nemo_run.core.execution.checks import Checkable, Finding
from nemo_run.exceptions import ConfigError, NemoRunError
from nemo_run.package_info import __version__

_COLOURS = {"ok": GREEN, "unknown": DIM, "warning": YELLOW, "failed": RED}
_LOW_SPACE_BYTES = 1 << 30
# What each extra installs, by the names of distributions.
_EXTRAS = {
    "lepton": "leptonai",
    "skypilot": "skypilot",
    "kubernetes": "kubernetes",
    "docker": "docker",
    "ray": "ray",
}


def main(words: Sequence[str], program: str) -> int:
    """Print what was found, and return 1 if something failed."""
    parser = Parser(program, "check this installation, and executors", "LocalExecutor")
    parser.add_argument(
        "executors",
        metavar="EXECUTOR",
        nargs="*",
        help="as after run.executor=; otherwise all that have a factory",
    )
    parser.json()
    options = parser.read(words)
    if options is None:
        return 0
    found = {"installation": list(installation())}
    for name, executor in _executors(options.executors):
        found[name] = list(executor_findings(executor))
    screen = Screen()
    if options.json:
        screen.print(as_json({name: [vars(f) for f in items] for name, items in found.items()}))
    else:
        for name, findings in found.items():
            screen.heading(name)
            for finding in findings:
                _print(screen, finding)
    failed = any(f.verdict == "failed" for findings in found.values() for f in findings)
    return 1 if failed else 0


def _print(screen: Screen, finding: Finding) -> None:
    mark = screen.style(f"{finding.verdict:<8}", _COLOURS[finding.verdict])
    advice = f" {finding.advice}" if finding.advice else ""
    screen.print(f"  {mark}{finding.subject}: {one_line(finding.detail)}{advice}")


def installation() -> Iterator[Finding]:
    """Yield what was found about this installation, without any executor."""
    yield Finding("nemo_run", "ok", f"{__version__}, Python {sys.version.split()[0]}")
    yield from _home(Path(get_nemorun_home()))
    yield from _backends()
    yield from _sdks()
    yield _plugins()


def _home(home: Path) -> Iterator[Finding]:
    nearest = next(path for path in (home, *home.parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        advice = "Set NEMORUN_HOME to a directory of your own."
        yield Finding("home", "failed", f"{nearest} cannot be written to.", advice)
        return
    if home.exists() and home.stat().st_mode & 0o077:
        advice = f"Say: chmod 700 {home}"
        yield Finding("home", "warning", f"{home} can be entered by others.", advice)
    else:
        yield Finding("home", "ok", str(home))
    free = shutil.disk_usage(nearest).free
    shown = f"{free / (1 << 30):.1f} GB free in {nearest}"
    yield Finding("disk", "ok" if free > _LOW_SPACE_BYTES else "warning", shown)


def _backends() -> Iterator[Finding]:
    from importlib import metadata

    for point in sorted(metadata.entry_points(group="torchx.schedulers"), key=lambda p: p.name):
        try:
            point.load()
        except Exception as err:  # noqa: BLE001 - whatever a third party's module raises
            yield Finding(f"backend {point.name}", "failed", f"{type(err).__name__}: {err}")
        else:
            yield Finding(f"backend {point.name}", "ok", point.value.partition(":")[0])


def _sdks() -> Iterator[Finding]:
    from importlib import metadata

    wanted = metadata.requires("nemo_run") or []
    for extra, distribution in _EXTRAS.items():
        bounds = next((r.partition(";")[0] for r in wanted if r.startswith(distribution)), "")
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            detail = f"{distribution} is not installed; only its executors need it."
            yield Finding(f"extra {extra}", "ok", detail)
            continue
        fits = _within(version, bounds.removeprefix(distribution))
        advice = "" if fits else f"Say: pip install 'nemo_run[{extra}]'"
        detail = f"{distribution} {version}, tested with {bounds.strip()}"
        yield Finding(f"extra {extra}", "ok" if fits else "warning", detail, advice)


def _within(version: str, bounds: str) -> bool:
    """Tell whether a version is within bounds such as ``>=1.2,<2``."""
    have = _numbers(version)
    for bound in filter(None, (part.strip() for part in bounds.split(","))):
        limit = _numbers(bound.lstrip("<>=!~ "))
        if bound.startswith(">=") and have < limit:
            return False
        if bound.startswith("<") and not bound.startswith("<=") and have >= limit:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split("."):
        digits = part[: next((i for i, c in enumerate(part) if not c.isdigit()), len(part))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def _plugins() -> Finding:
    from nemo_run.cli.registry import plugins

    workspace = plugins.find_workspace(working_directory(), home=Path(get_nemorun_home()))
    try:
        plugins.load()
    except ConfigError as err:
        return Finding("workspace", "failed", str(err))
    return Finding("workspace", "ok", str(workspace) if workspace else "no workspace.py here")


def _executors(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield executors by name: those named, else all that factories make without arguments.

    One that cannot be made comes as the error.

    Raises:
        CLIException: a word names none, or has arguments that fit none.
    """
    from nemo_run.cli.commands.run_context import RunContext
    from nemo_run.cli.commands.run_options import built_executor
    from nemo_run.cli.registry.entrypoint_help import factories_for
    from nemo_run.cli.values.errors import CLIException
    from nemo_run.core.execution.local import LocalExecutor

    context = RunContext(name="doctor")
    names = list(words) or list(factories_for("core.execution.base", "Executor"))
    if not names:
        yield "LocalExecutor", LocalExecutor()
    for name in names:
        try:
            yield name, built_executor(context.parse_executor(name))
        except NemoRunError as err:
            if words and isinstance(err, CLIException):
                raise
            yield name, err


def executor_findings(executor: Any) -> Iterator[Finding]:
    """Yield what an executor says about itself; or that it says nothing, or why there is none."""
    if isinstance(executor, NemoRunError):
        from nemo_run.cli.terminal.exit_codes import message_of

        yield Finding("executor", "failed", message_of(executor))
        return
    yield Finding("executor", "ok", type(executor).__name__)
    if not isinstance(executor, Checkable):
        yield Finding("checks", "unknown", f"{type(executor).__name__} does not say more.")
        return
    try:
        yield from executor.diagnose()
    except Exception as err:  # noqa: BLE001 - a third party's executor must not stop the others
        yield Finding("checks", "failed", f"{type(err).__name__}: {err}")
