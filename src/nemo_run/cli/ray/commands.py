"""The commands of ``nemorun ray``."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from nemo_run.cli.experiments.arguments import Parser, as_json, count
from nemo_run.cli.ray import COMMANDS
from nemo_run.cli.terminal.screen import Screen
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import BackendError, ConfigError, NemoRunError
from nemo_run.run.ray import _known
from nemo_run.run.ray._known import Known

HEADER = ("NAME", "KIND", "EXECUTOR", "STATE", "STARTED")
FAILED = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")
LINES = 100
DASHBOARD = 8265


def parser(name: str, program: str) -> Parser:
    """Return what reads the words of a command."""
    help, example = COMMANDS[name]
    made = Parser(f"{program} {name}", help, example)
    if name == "list":
        made.add_argument("--cached", action="store_true", help="do not ask backends")
        made.json()
        return made
    made.add_argument("name", metavar="NAME", help="of a cluster or a job")
    made.add_argument("--kind", choices=("cluster", "job"), help="where both have that name")
    if name == "status":
        made.json()
    elif name == "logs":
        made.add_argument("--follow", "-f", action="store_true", help="until the job ends")
        made.add_argument(
            "--lines", "-n", type=count, default=LINES, metavar="N", help="the last so many"
        )
    elif name == "forward":
        made.add_argument(
            "--port", "-p", type=count, default=DASHBOARD, metavar="N", help="of this machine"
        )
        made.add_argument(
            "--target-port", type=count, default=DASHBOARD, metavar="N", help="of the head"
        )
    return made


def run(name: str, options: argparse.Namespace) -> int:
    commands: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "status": _status,
        "logs": _logs,
        "stop": _stop,
        "forward": _forward,
    }
    return commands[name](options)


def _list(options: argparse.Namespace) -> int:
    found = _known.all_known()
    rows = [(known, "" if options.cached else _state_or_error(known)) for known in found]
    screen = Screen()
    if options.json:
        screen.print(as_json([_as_data(known, state) for known, state in rows]))
    elif not rows:
        screen.print("No Ray clusters and no Ray jobs.")
    else:
        screen.table(HEADER, [_row(known, state) for known, state in rows])
    return 0


def _status(options: argparse.Namespace) -> int:
    known = _find(options)
    told = _told(known)
    state = _state(told)
    screen = Screen()
    if options.json:
        screen.print(as_json({**_as_data(known, state), "details": told}))
    else:
        screen.print(f"{known.name}: {state}")
        for name, value in (told or {}).items():
            if value not in (None, "", state):
                screen.print(f"  {name}: {value}")
    return 1 if state.upper() in FAILED else 0


def _logs(options: argparse.Namespace) -> int:
    known = _find(options)
    if known.kind == "cluster":
        raise ConfigError(
            f"{known.name!r} is a cluster, and has no command whose log could be shown. Its own "
            "logs are in its directory, and in the dashboard: nemorun ray forward."
        )
    known.job().logs(follow=options.follow, lines=options.lines)
    return 0


def _stop(options: argparse.Namespace) -> int:
    known = _find(options)
    if known.kind == "cluster":
        ended = known.cluster().backend.delete(wait=True)
    else:
        ended = known.job().stop(wait=True)
    if ended is False:
        raise BackendError(
            f"{known.name} was asked to end, and is still {_state(_told(known))}. Stop it once "
            "more, or look at its status.",
            backend="ray",
            operation="stop",
        )
    Screen().print(f"{known.name}: {_state(_told(known))}")
    return 0


def _forward(options: argparse.Namespace) -> int:
    known = _find(options)
    backend = _with_dashboard(known)
    try:
        forwarding = backend.port_forward(port=options.port, target_port=options.target_port)
    except RuntimeError as err:  # not there, or the backend has no way there
        raise ConfigError(str(err)) from err
    asks_for_token = hasattr(backend, "token") and backend.token()
    screen = Screen()
    # From the moment the user reads the address, Ctrl-C is the ordinary end.
    with contextlib.suppress(KeyboardInterrupt):
        screen.print(f"http://127.0.0.1:{options.port} leads to {known.name} until Ctrl-C")
        if asks_for_token:
            screen.print("It asks for a token: .backend.token() of the cluster or job returns it.")
        screen.stream.flush()
        forwarding.wait()
    return 0


def _with_dashboard(known: Known) -> Any:
    """Return what leads to the dashboard: of a job with a cluster of its own, that of the job."""
    backend = known.job().backend if known.kind == "job" else None
    return backend if hasattr(backend, "port_forward") else known.cluster().backend


def _find(options: argparse.Namespace) -> Known:
    everything = _known.all_known()
    named = [known for known in everything if known.name == options.name]
    found = [known for known in named if options.kind in (None, known.kind)]
    if not found:
        names = sorted({known.name for known in everything})
        hint = did_you_mean(options.name, names) if names else "None was started from here."
        raise ConfigError(f"There is no Ray cluster and no Ray job {options.name!r}. {hint}")
    return found[0]


def _told(known: Known) -> dict[str, Any] | None:
    """Return what the backend says of one; None where it knows nothing of it."""
    if known.kind == "cluster":
        found = known.cluster().status(display=False)
    else:
        found = known.job().status(display=False)
    return found if found is None or isinstance(found, dict) else {"state": str(found)}


def _state(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return "NOT_FOUND"
    return str(told.get("state") or told.get("jobStatus") or "UNKNOWN")


def _state_or_error(known: Known) -> str:
    try:
        return _state(_told(known))
    except NemoRunError as err:
        return f"UNKNOWN ({err})"


def _as_data(known: Known, state: str) -> dict[str, Any]:
    started = datetime.fromtimestamp(known.started_at, timezone.utc).isoformat(timespec="seconds")
    data = {"name": known.name, "kind": known.kind, "executor": known.executor}
    return {**data, "state": state or None, "started_at": started}


def _row(known: Known, state: str) -> tuple[str, ...]:
    started = datetime.fromtimestamp(known.started_at).strftime("%Y-%m-%d %H:%M")
    return known.name, known.kind, known.executor, state or "-", started
