"""A Ray cluster on nodes of an executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import BackendError
from nemo_run.run.ray._choice import backend_class, show_log_lines
from nemo_run.run.ray._known import remember


@dataclass(kw_only=True)
class RayCluster:
    """A Ray cluster, known by its name and executor to every process that has both.

    Attributes:
        backend: what starts and ends it; its class depends on that of the executor.
    """

    name: str
    executor: Executor
    log_level: str = "INFO"
    backend: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        show_log_lines(self.log_level)
        self.backend = backend_class(self.executor, job=False)(
            name=self.name, executor=self.executor
        )
        self._forwards: dict[int, Any] = {}

    def start(
        self,
        wait_until_ready: bool = True,
        timeout: int = 1000,
        dryrun: bool = False,
        pre_ray_start_commands: list[str] | None = None,
    ) -> None:
        """Start the cluster, unless it runs, and wait until all its nodes have joined.

        Raises:
            BackendError: it ended, or was not ready within ``timeout`` seconds.
        """
        if not dryrun:
            remember("cluster", self.name, self.executor)
        self.backend.create(pre_ray_start_commands=pre_ray_start_commands, dryrun=dryrun)
        if dryrun or not wait_until_ready:
            return
        if not self.backend.wait_until_running(timeout=timeout):
            raise BackendError(
                f"Ray cluster {self.name!r} is not ready after up to {timeout} s: "
                f"{self.backend.status()}. Its logs say why.",
                backend="ray",
                operation="start",
            )

    def status(self, display: bool = True) -> Any:
        """Return what is known of the cluster now."""
        return self.backend.status(display=display)

    def port_forward(self, port: int = 8265, target_port: int = 8265, wait: bool = False) -> None:
        """Have ``port`` of this machine lead to the cluster; 8265 stands for its dashboard.

        Another forward of the same local port is ended first. With ``wait`` it lasts until Ctrl-C.
        """
        before = self._forwards.pop(port, None)
        if before is not None:
            before.stop_forwarding()
        self._forwards[port] = self.backend.port_forward(
            port=port, target_port=target_port, wait=wait
        )

    def stop(self) -> None:
        """End all forwards and the cluster, and return when it has ended."""
        for forward in self._forwards.values():
            forward.stop_forwarding()
        self._forwards.clear()
        self.backend.delete(wait=True)
