"""What torchrun and ft_launcher have in common: nodes, rendezvous, and the program to start."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchx.specs import AppDef, Role, resource

from nemo_run.core.execution.base import ExecutorMacros
from nemo_run.exceptions import ConfigError

_NODES = re.compile(r"(?:(?:(?P<low>\d+):)?(?P<high>\d+)x)?(?P<nproc>\d+|\$\w+|\$\{\w+\})")

DEBUG_ENV = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}


@dataclass(frozen=True, kw_only=True)
class Topology:
    """How many nodes, at least and at most, and how many processes on each."""

    low: int
    high: int
    nproc: str

    @classmethod
    def parse(cls, j: str) -> Topology:
        """Read ``[min:]max x nproc`` (without blanks), or just ``nproc``.

        Raises:
            ConfigError: it is something else.
        """
        match = _NODES.fullmatch(j)
        if match is None:
            raise ConfigError(f"{j!r} is not a number of nodes and processes. Write it like 2x8.")
        high = int(match["high"] or 1)
        return cls(low=int(match["low"] or high), high=high, nproc=match["nproc"])

    @property
    def nnodes(self) -> str:
        return str(self.high) if self.low == self.high else f"{self.low}:{self.high}"


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """Where the nodes of a job meet."""

    backend: str
    port: int
    id: int | None

    def options(
        self, topology: Topology, *, use_env: bool, environ: Mapping[str, str]
    ) -> list[str]:
        """Return the launcher's options; with ``use_env`` what ``environ`` says counts.

        Raises:
            ConfigError: several nodes are asked for and ``environ`` does not say where they meet.
        """
        endpoint, rank, seed = "localhost:0", "0", None
        if topology.high > 1:
            # The placeholders become names of variables, the doubled dollar what asks for values.
            endpoint = f"$${ExecutorMacros.HEAD_NODE_IP_VAR}:{self.port}"
            rank = f"$${ExecutorMacros.NODE_RANK_VAR}"
        if use_env:
            address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
            node_rank = environ.get("NODE_RANK") or environ.get("SLURM_NODEID")
            if topology.high > 1 and not (address and port and node_rank):
                raise ConfigError(
                    f"A local job on {topology.high} nodes needs to know where they meet. "
                    "Set MASTER_ADDR, MASTER_PORT and NODE_RANK, or ask for one node."
                )
            if address and port:
                # All nodes must come to the same id without talking to each other.
                endpoint = seed = f"{address}:{port}"
            rank = node_rank or "0"
        chosen = self.id if self.id is not None else random.Random(seed).randint(1, 10000)
        return [
            *("--rdzv-backend", self.backend),
            *("--rdzv-endpoint", endpoint),
            *("--rdzv-id", str(chosen)),
            *("--nnodes", topology.nnodes),
            *("--nproc-per-node", topology.nproc),
            *("--node-rank", rank),
            *("--tee", "3"),
        ]


def program(script: str | None, m: str | None, no_python: bool) -> list[str]:
    """Return what the launcher starts.

    Raises:
        ConfigError: not exactly one of ``script`` and ``m`` is given.
    """
    if bool(script) == bool(m):
        raise ConfigError("Give exactly one of script and m (a module) to start.")
    if m:
        return ["-m", m]
    return [*(["--no-python"] if no_python else []), str(script)]


def application(
    entrypoint: str,
    args: list[str],
    *,
    name: str,
    image: str,
    topology: Topology,
    port: int,
    env: Mapping[str, str] | None,
    debug: bool,
    max_retries: int,
    h: str | None,
    cpu: int,
    gpu: int,
    memMB: int,
) -> AppDef:
    """Return an application of one role that starts the launcher."""
    environment = {"LOGLEVEL": os.environ.get("LOGLEVEL", "INFO")}
    if debug:
        environment |= DEBUG_ENV
    environment |= env or {}
    role = Role(
        name=name,
        image=image,
        entrypoint=entrypoint,
        args=args,
        env=environment,
        num_replicas=1,
        min_replicas=topology.low if topology.low != topology.high else None,
        max_retries=max_retries,
        port_map={"c10d": port},
        resource=resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
    )
    return AppDef(name=name, roles=[role])
