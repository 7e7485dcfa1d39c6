"""What can be done with devspaces by name, from any process of this machine."""

from __future__ import annotations

from typing import Any

from nemo_run.devspace import _job, _records
from nemo_run.devspace._attached import SlurmTunnelCallback, forget
from nemo_run.devspace.base import DevSpace
from nemo_run.exceptions import BackendError, ConfigError


def reattach(name: str, *, editor: str | None = None, detach: bool = False) -> None:
    """Lead to a devspace that this machine knows, and stay with it.

    Raises:
        ConfigError: it does not know one of that name.
    """
    record = _records.get(name)
    space = DevSpace(name, executor=None, editor=editor, detach=detach)  # type: ignore[arg-type]  # not launched
    space.attend(record.tunnel, SlurmTunnelCallback(None, space, record=record))


def listed() -> list[dict[str, Any]]:
    """Return what is known of each devspace; those that have ended are forgotten."""
    rows = []
    for record in _records.known():
        try:
            state = _job.state(record)
        except BackendError as err:
            state = f"UNKNOWN ({err})"
        if state in _job.ENDED:
            forget(record)
            continue
        rows.append(
            {
                "name": record.name,
                "state": state,
                "alias": record.alias,
                "executor": record.executor,
                "experiment": record.experiment,
                "host": record.login.get("host", ""),
                "directory": record.directory,
            }
        )
    return rows


def stop(name: str) -> str:
    """End a devspace, and return its state once that is confirmed.

    Raises:
        NemoRunError: there is none, or it could not be ended.
    """
    record = _records.get(name)
    exp = _job.experiment(record)
    if exp is not None:
        exp.cancel(record.job, check=True)
    state = _job.state(record)
    if state == "RUNNING" and not record.experiment:
        raise ConfigError(
            f"Devspace {name!r} was launched from another machine: stop it there, or end its job "
            f"on {record.login.get('host', 'its cluster')}."
        )
    forget(record)
    return state


def serve(space_zlib: str, *, verbose: bool = False) -> None:
    """Run the server of a devspace in this process, as jobs of 0.12 do.

    Raises:
        ConfigError: this is not the text of a devspace, or no server can be started here.
    """
    from nemo_run._config.fiddle import fdl
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
    from nemo_run.core.tunnel.server import serve as run_server
    from nemo_run.core.tunnel.server import server_dir

    space = fdl.build(ZlibJSONSerializer().deserialize(space_zlib))
    if not isinstance(space, DevSpace):
        raise ConfigError(f"This is the text of a {type(space).__name__}, not of a DevSpace.")
    directory = server_dir(space.executor.job_dir, space.name)
    tunnel = getattr(space.executor, "tunnel", None)
    run_server(
        {
            "directory": str(directory),
            "name": space.name,
            "workspace": space.executor.job_dir,
            "users_keys": True,
            "listen": "cluster",
            "idle_s": space.idle_s,
            "reverse": space.reverse,
            "space": space_zlib,
            "hello": _job.hello(space, str(directory), tunnel),
            "verbose": verbose,
        }
    )
