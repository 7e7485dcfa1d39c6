"""Running commands and moving files where the jobs are: on this machine, or over ssh."""

from typing import TYPE_CHECKING

from nemo_run._later import on_demand
from nemo_run.core.tunnel.client import (
    Callback,
    LocalTunnel,
    PackagingJob,
    SSHConfigFile,
    SSHTunnel,
    Tunnel,
)

__all__ = ["Callback", "LocalTunnel", "PackagingJob", "SSHConfigFile", "SSHTunnel", "Tunnel"]

if not TYPE_CHECKING:  # to a type checker, any name would exist
    __getattr__ = on_demand(__name__, "rsync", "server")
