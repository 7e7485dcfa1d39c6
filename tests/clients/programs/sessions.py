"""Use the way to a cluster directly: commands, questions and answers, files."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusters import executor, out, record, states, tunnel  # type: ignore[import-not-found]

import nemo_run as run


def shown(result: Any) -> dict[str, Any]:
    return {
        "stdout": result.stdout,
        "stderr": result.stderr,
        "exited": result.exited,
        "ok": result.ok,
        "return_code": result.return_code,
    }


def commands() -> dict[str, Any]:
    way = tunnel()
    good = way.run("echo fine", hide=True, warn=True)
    bad = way.run("echo out; echo err >&2; exit 3", hide=True, warn=True)
    try:
        way.run("exit 4", hide=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, tools show it
        raised = [type(error).__name__, str(error)]
    way.run("echo seen; echo complaint >&2", hide=False, warn=True)
    return {"good": shown(good), "bad": shown(bad), "raised": raised}


def watched() -> dict[str, Any]:
    """Answer a question that a command asks on the way."""
    from invoke import StreamWatcher

    class Password(StreamWatcher):
        def __init__(self) -> None:
            super().__init__()
            self.answered = False

        def submit(self, stream: str) -> Iterator[str]:
            if "Password:" in stream and not self.answered:
                self.answered = True
                yield "open sesame\n"

    asks = 'printf "Password: "; read -r word; echo; echo "got <$word>"'
    found = {}
    for pty in (False, True):
        result = tunnel().run(asks, hide=True, warn=True, watchers=[Password()], pty=pty)
        found[f"pty={pty}"] = shown(result)
    return found


def terminals() -> dict[str, Any]:
    way = tunnel()
    asks = "if [ -t 1 ]; then echo terminal; else echo pipe; fi"
    return {
        "with": shown(way.run(asks, hide=True, warn=True, pty=True)),
        "without": shown(way.run(asks, hide=True, warn=True, pty=False)),
        "failing": shown(way.run("exit 6", hide=True, warn=True, pty=True)),
    }


def session() -> dict[str, Any]:
    way = tunnel()
    before = way.session is None
    way.connect()
    return {"before": before, "after": way.session is not None}


def sftp() -> dict[str, Any]:
    """Copy files with progress, and see what happens when there are none."""
    way = tunnel()
    way.connect()
    local, remote, back = Path("model.bin"), out("remote model.bin"), Path("back.bin")
    local.write_bytes(bytes(range(256)) * 4000)
    seen: dict[str, list[tuple[int, int]]] = {"put": [], "get": []}
    files = way.session.client.open_sftp()
    files.put(str(local), remote, callback=lambda done, total: seen["put"].append((done, total)))
    files.get(remote, str(back), callback=lambda done, total: seen["get"].append((done, total)))
    found = {
        "sent": Path(remote).read_bytes() == local.read_bytes(),
        "fetched": back.read_bytes() == local.read_bytes(),
        "size": local.stat().st_size,
        "progress": seen,
        "missing": {
            "put": raised(lambda: files.put("nothing", out("x"))),
            "get": raised(lambda: files.get(out("nothing"), "x")),
        },
    }
    files.close()
    return found


def files() -> dict[str, Any]:
    """Copy files through the tunnel itself."""
    way = tunnel()
    Path("notes.txt").write_text("some words\n")
    way.put("notes.txt", out("there.txt"))
    way.get(out("there.txt"), "back.txt")
    return {
        "there": Path(out("there.txt")).read_text(),
        "back": Path("back.txt").read_text(),
        "missing": {
            "put": raised(lambda: way.put("nothing", out("x"))),
            "get": raised(lambda: way.get(out("nothing"), "x")),
        },
    }


def own() -> dict[str, Any]:
    """A tunnel that connects by itself, for commands and for jobs."""
    from connections import NOTES, TeamTunnel  # type: ignore[import-not-found]

    way = tunnel(TeamTunnel)
    way.connect()
    result = way.run("echo by our own way; exit 2", hide=True, warn=True)
    first = NOTES.read_text()
    where = executor(tunnel=tunnel(TeamTunnel))
    with run.Experiment("own", executor=where) as experiment:
        experiment.add(record("own-job"), name="train")
        experiment.run()
    return {
        "result": shown(result),
        "first": first,
        "more": len(NOTES.read_text()) > len(first),
        "states": states(experiment),
    }


def raised(call: Any) -> list[str]:
    try:
        call()
    except FileNotFoundError as error:
        return ["FileNotFoundError", str(error)]
    except Exception as error:  # noqa: BLE001 - the test says what was expected
        return [type(error).__name__, str(error)]
    return ["nothing", ""]


if __name__ == "__main__":
    found = globals()[sys.argv[1]]()
    Path(out(sys.argv[1])).write_text(json.dumps(found))
