"""``torchrun`` as a component."""

from __future__ import annotations

import os

import torchx
from torchx.specs import AppDef

from nemo_run.run.torchx_backend.components._distributed import (
    Rendezvous,
    Topology,
    application,
    program,
)


def torchrun(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    no_python: bool = False,
    image: str = torchx.IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,
    j: str = "1x2",
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 49450,
    rdzv_backend: str = "c10d",
    rdzv_id: int | None = None,
    mounts: list[str] | None = None,
    debug: bool = False,
    dgxc: bool = False,
    lepton: bool = False,
    use_env: bool = False,
) -> AppDef:
    """Start ``script``, or module ``m``, in several processes on one or more nodes.

    ``j`` is ``[min:]max x nproc`` without blanks. ``dgxc`` leaves the rendezvous to the platform,
    ``lepton`` takes it from the platform's variables, ``use_env`` from ``MASTER_ADDR``,
    ``MASTER_PORT`` and ``NODE_RANK`` of this process. ``mounts`` is accepted and has no effect.

    Raises:
        ConfigError: not exactly one of ``script`` and ``m`` is given, or ``j`` is malformed.
    """
    topology = Topology.parse(j)
    rendezvous = Rendezvous(backend=rdzv_backend, port=rdzv_port, id=rdzv_id)
    options = launch_options(topology, rendezvous, dgxc=dgxc, lepton=lepton, use_env=use_env)
    return application(
        "torchrun",
        [*options, *program(script, m, no_python), *script_args],
        name=name,
        image=image,
        topology=topology,
        port=rdzv_port,
        env=env,
        debug=debug,
        max_retries=max_retries,
        h=h,
        cpu=cpu,
        gpu=gpu,
        memMB=memMB,
    )


def launch_options(
    topology: Topology, rendezvous: Rendezvous, *, dgxc: bool, lepton: bool, use_env: bool
) -> list[str]:
    """Return the options that come before the program."""
    size = ["--nnodes", topology.nnodes, "--nproc-per-node", topology.nproc]
    if dgxc:
        return size
    if lepton:
        return [
            *size,
            *("--node-rank", "$NODE_RANK"),
            *("--master-addr", "$MASTER_ADDR"),
            *("--master-port", "$MASTER_PORT"),
        ]
    return rendezvous.options(topology, use_env=use_env, environ=os.environ)
