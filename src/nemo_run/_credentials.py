"""Secrets: marked where they are declared, kept apart from everything else we store.

A secret is best given as a reference, ``env:NAME`` or ``file:PATH``, which may be stored and shown
as it is. A literal one is shown as ``***`` and stored nowhere but in ``<home>/credentials.json``.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any

from nemo_run._files import locked, make_private_directory, swap_whole
from nemo_run._home import get_nemorun_home
from nemo_run.exceptions import ConfigError, RecordError

log = logging.getLogger(__name__)

MASK = "***"

_ENV = "env:"
_FILE = "file:"
_FORMAT = 1
_LOCK_TIMEOUT_S = 10.0


def secret(**kwargs: Any) -> Any:
    """Declare a dataclass field as a secret: left out of its repr, masked by :func:`redact`.

    Takes what ``dataclasses.field`` takes.
    """
    metadata = {**(kwargs.pop("metadata", None) or {}), "secret": True}
    return field(repr=False, metadata=metadata, **kwargs)


def secret_fields(of: Any) -> frozenset[str]:
    """Return the names of the fields of a dataclass, or of an instance, that hold secrets."""
    return frozenset(item.name for item in fields(of) if item.metadata.get("secret"))


def is_reference(value: object) -> bool:
    """Tell whether ``value`` says where a secret is, rather than being one."""
    return isinstance(value, str) and value.startswith((_ENV, _FILE))


def resolve(value: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the secret that ``value`` refers to; a literal is returned as it is.

    One line break at the end of a file is not part of the secret. A file of the user's own that
    all users can read is used, with a warning: mounted secrets often look like that.

    Raises:
        ConfigError: the variable is not set, the file cannot be read, or there is nothing in it.
    """
    if value.startswith(_ENV):
        return _from_environment(value, os.environ if environ is None else environ)
    if value.startswith(_FILE):
        return _from_file(value)
    return value


def mask(value: Any) -> Any:
    """Return what may be shown of a secret: a reference as it is, a literal as ``***``."""
    if isinstance(value, Mapping):
        return {key: mask(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [mask(item) for item in value]
    # Nothing given is worth seeing, and no secret.
    return value if value is None or value == "" or is_reference(value) else MASK


def redact(obj: Any) -> Any:
    """Return ``obj`` as plain data that may be shown, stored or logged.

    Dataclasses become dicts by field name with their secrets masked, at any depth of lists, tuples
    and dicts; tuples and sets become lists. Other values are returned as they are.
    """
    if is_dataclass(obj) and not isinstance(obj, type):
        hidden = secret_fields(obj)
        return {
            item.name: (mask if item.name in hidden else redact)(getattr(obj, item.name))
            for item in fields(obj)
        }
    if isinstance(obj, Mapping):
        return {key: redact(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [redact(value) for value in obj]
    return obj


class CredentialStore:
    """Literal secrets by server and client id, in ``<home>/credentials.json``.

    1. The file is written whole, readable by its owner only.
    2. A file that others can read is not used, neither for reading nor for adding to it.
    3. Several processes may put at once, and none loses what another has put (on a network file
       system without locks this is likely, not certain).
    """

    def __init__(self, home: Path | None = None) -> None:
        self._home = home

    @property
    def path(self) -> Path:
        home = Path(get_nemorun_home()) if self._home is None else self._home
        return home / "credentials.json"

    def find(self, server: str, client_id: str) -> str | None:
        """Return the secret kept for a client of a server, or None.

        Raises:
            RecordError: the file is damaged, or others can read it.
        """
        return _parse(self._read(), self.path).get(_key(server, client_id))

    def put(self, server: str, client_id: str, value: str) -> None:
        """Keep a secret, in place of the one kept for the same client before.

        Raises:
            ConfigError: the secret is empty.
            RecordError: the file is damaged, or others can read it.
        """
        if not value:
            raise ConfigError(
                f"The secret of client {client_id!r} for {server} is empty. Give its value, or "
                "where to find it, such as 'env:NAME' or 'file:PATH'."
            )
        self._change(_key(server, client_id), value)

    def delete(self, server: str, client_id: str) -> None:
        """Forget a secret. Forgetting one that is not kept is fine."""
        if self.path.exists():
            self._change(_key(server, client_id), None)

    def _change(self, key: tuple[str, str], value: str | None) -> None:
        path = self.path
        make_private_directory(path.parent)
        with locked(path.with_suffix(".lock"), _LOCK_TIMEOUT_S):
            while True:
                before = self._read()
                entries = _parse(before, path)
                if entries.get(key) == value:
                    return
                entries.pop(key, None)
                if value is not None:
                    entries[key] = value
                # The lock may be none on a network file system; the comparison still helps there.
                if swap_whole(path, before, _dump(entries)):
                    return

    def _read(self) -> bytes | None:
        try:
            with self.path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if not mode & 0o077:
                    return file.read()
        except FileNotFoundError:
            return None
        except OSError as err:
            raise RecordError(
                f"Could not read {self.path}: {err.strerror}. Make it a file you can read.",
                path=self.path,
            ) from err
        raise RecordError(
            f"Did not use {self.path}: it holds secrets, and others can read it (mode {mode:04o}). "
            f"Run `chmod 600 {self.path}`, and replace the secrets if another user may have read "
            "them. Where the file system has no modes, use references such as 'env:NAME' instead.",
            path=self.path,
        )


def _from_environment(reference: str, environ: Mapping[str, str]) -> str:
    name = reference[len(_ENV) :]
    value = environ.get(name)
    if not value:
        state = "is not set" if value is None else "is empty"
        raise ConfigError(
            f"The secret {reference!r} could not be read: the environment variable {name!r} "
            f"{state}. Set it before starting this program."
        )
    return value


def _from_file(reference: str) -> str:
    try:
        path = Path(reference[len(_FILE) :]).expanduser()
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
        value = data.decode()
    except (OSError, ValueError, RuntimeError) as err:
        # Not "from err": a decoding error carries the content of the file.
        raise ConfigError(
            f"The secret {reference!r} could not be read: {_reason(err)}. "
            "Give the path of a text file that you can read."
        ) from None
    if status.st_mode & stat.S_IROTH and status.st_uid == os.getuid():
        log.warning("%s holds a secret, and other users can read it. Run: chmod 600 %s", path, path)
    value = value.removesuffix("\n").removesuffix("\r")
    if not value:
        raise ConfigError(f"The secret {reference!r} could not be read: the file is empty.")
    return value


def _reason(err: Exception) -> str:
    if isinstance(err, UnicodeDecodeError):
        return "the file is not UTF-8 text"
    return (err.strerror if isinstance(err, OSError) else None) or str(err)


def _key(server: str, client_id: str) -> tuple[str, str]:
    return server.rstrip("/"), client_id


def _parse(data: bytes | None, path: Path) -> dict[tuple[str, str], str]:
    import json  # not for a help text, which only asks what sounds secret

    if data is None:
        return {}
    try:
        content = json.loads(data)
        known = content["format"] == _FORMAT
        entries = content["credentials"] if known else []
        result = {(entry["server"], entry["client_id"]): entry["secret"] for entry in entries}
    except (ValueError, TypeError, KeyError, RecursionError):
        # Not "from err": the error carries the content of the file.
        raise RecordError(
            f"Could not read the secrets in {path}: the file is damaged. "
            "Delete it and give the secrets again.",
            path=path,
        ) from None
    if not known:
        raise RecordError(
            f"Could not read the secrets in {path}: a later release of nemo_run wrote it. "
            "Upgrade nemo_run.",
            path=path,
        )
    return result


def _dump(entries: Mapping[tuple[str, str], str]) -> bytes:
    import json

    rows = [
        {"server": server, "client_id": client_id, "secret": value}
        for (server, client_id), value in entries.items()
    ]
    return (json.dumps({"format": _FORMAT, "credentials": rows}, indent=2) + "\n").encode("ascii")
