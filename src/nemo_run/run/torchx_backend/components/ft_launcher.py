"""``ft_launcher``, the fault-tolerant torchrun, as a component."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torchx
from torchx.specs import AppDef

from nemo_run.run.torchx_backend.components._distributed import (
    Rendezvous,
    Topology,
    application,
    program,
)
from nemo_run.run.torchx_backend.components.torchrun import launch_options

log = logging.getLogger(__name__)


def ft_launcher(
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
    workload_check_interval: float | None = None,
    initial_rank_heartbeat_timeout: float | None = None,
    rank_heartbeat_timeout: float | None = None,
    rank_termination_signal: str | None = None,
    log_level: str | None = None,
    max_restarts: int | None = None,
    dgxc: bool = False,
    use_env: bool = False,
    lepton: bool = False,
) -> AppDef:
    """Start a program like `torchrun` does, watched for ranks that hang or die.

    Raises:
        ConfigError: not exactly one of ``script`` and ``m`` is given, or ``j`` is malformed.
    """
    watch = {
        "workload-check-interval": workload_check_interval,
        "initial-rank-heartbeat-timeout": initial_rank_heartbeat_timeout,
        "rank-heartbeat-timeout": rank_heartbeat_timeout,
        "rank-termination-signal": rank_termination_signal,
        "log-level": log_level,
    }
    options = _watching(watch, max_restarts, dgxc=dgxc)
    topology = Topology.parse(j)
    rendezvous = Rendezvous(backend=rdzv_backend, port=rdzv_port, id=rdzv_id)
    options += launch_options(topology, rendezvous, dgxc=dgxc, lepton=lepton, use_env=use_env)
    return application(
        "ft_launcher",
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


def _watching(
    watch: Mapping[str, object | None], max_restarts: int | None, *, dgxc: bool
) -> list[str]:
    """Return the options that are ``ft_launcher``'s own."""
    options: list[str] = []
    for option, value in watch.items():
        if value is not None:
            options += [f"--ft-{option}", str(value)]
    if max_restarts is not None and dgxc:
        log.warning("max_restarts has no effect on DGX Cloud, which restarts workloads itself")
    elif max_restarts is not None:
        options += ["--max-restarts", str(max_restarts)]
    if max_restarts is None and not options:
        options.append("--ignore-missing-fault-tol-cfg")
    return options
