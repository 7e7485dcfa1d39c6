"""How to reach a Ray cluster that is already there, from any process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from nemo_run._backends.ray.client import BACKEND, RayJobs
from nemo_run._credentials import CredentialStore, is_reference, resolve
from nemo_run._transport.http import Way
from nemo_run.exceptions import ConfigError

PATIENCE_S = 2.0
"""How long to try while looking at a job; the conductor looks again."""

ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
"""Where Ray's own commands look for the address of a dashboard."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster, and how to get at it. Holds no secret.

    Attributes:
        token: a reference; empty where the token is kept in ``credentials.json``, where Ray's own
            commands look for it, or where the cluster wants none.
        patience_s: how long to try through an outage. Not stored.
    """

    address: str
    token: str = ""
    patience_s: float = PATIENCE_S

    @classmethod
    def at(cls, address: str, token: str = "") -> Site:
        """Return the site at an address, by default that of Ray's own variables.

        Raises:
            ConfigError: there is none, or it is not that of a dashboard.
        """
        return cls(address=checked_address(address), token=stored_token(address, token))

    @classmethod
    def from_where(cls, where: Mapping[str, str]) -> Site:
        return cls(address=where["address"], token=where["token"])

    def to_where(self) -> dict[str, str]:
        return {"address": self.address, "token": self.token}

    def client(self, *, patience_s: float | None = None) -> RayJobs:
        def way(refused: Way | None) -> Way:
            token = _found_token(self.address, self.token)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return Way(url=self.address, headers=headers)

        patience_s = self.patience_s if patience_s is None else patience_s
        return RayJobs(way, server=f"Ray at {self.address}", patience_s=patience_s)


def checked_address(address: str) -> str:
    """Return the address of a dashboard without a slash at its end.

    Raises:
        ConfigError: there is none, or it is of another kind.
    """
    found = address or next(filter(None, map(os.environ.get, ADDRESS_VARIABLES)), "")
    if not found:
        raise ConfigError(
            "A RayExecutor needs the address of the cluster's dashboard, such as "
            f"'http://127.0.0.1:8265', and neither address nor {ADDRESS_VARIABLES[0]} is set."
        )
    parts = urlsplit(found)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{found!r} is not the address of a dashboard, which jobs are submitted to. Give one "
            "such as 'http://127.0.0.1:8265'; RayCluster.port_forward() makes one."
        )
    if parts.username or parts.password:
        raise ConfigError(
            "The address of a Ray cluster holds a login, which would be stored with every job. "
            "Give the token as token='env:NAME'."
        )
    return found.rstrip("/")


def stored_token(address: str, token: str) -> str:
    """Return what of a token may be stored elsewhere, after keeping a literal one."""
    if not token or is_reference(token):
        return token
    CredentialStore().put(checked_address(address), BACKEND, token)
    return ""


def _found_token(address: str, token: str) -> str:
    if token:
        return resolve(token)
    return CredentialStore().find(address, BACKEND) or _of_ray()


def _of_ray() -> str:
    """Return the token that Ray's own commands would use; empty for none."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return os.environ["RAY_AUTH_TOKEN"].strip()
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text().strip()
    except OSError as err:
        if named:
            raise ConfigError(f"RAY_AUTH_TOKEN_PATH names a file that is no help: {err}.") from err
        return ""
