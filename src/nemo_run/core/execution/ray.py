"""Run on a Ray cluster that is already there, through Ray's Jobs API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._credentials import secret
from nemo_run.core.execution.base import Capabilities, Executor
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.config import Config
    from nemo_run.core.execution.checks import Finding
    from nemo_run.core.execution.leftovers import Leftover


@dataclass(kw_only=True)
class RayExecutor(Executor):
    """Runs each task as a job of a Ray cluster, by default on its head node.

    The code that the packager takes along is the working directory of the job and of all that it
    starts on the cluster. Variables of ``env_vars`` reach those, too, but for secrets, which only
    the job's own process gets.

    Attributes:
        address: of the cluster's dashboard, such as ``http://127.0.0.1:8265``; by default that of
            ``RAY_API_SERVER_ADDRESS`` or ``RAY_ADDRESS``.
        token: what the cluster lets us in by, best as a reference: ``env:NAME`` or ``file:PATH``;
            by default the one that Ray's own commands use.
        num_cpus, num_gpus, memory, resources: kept for the process of the task, on a node that has
            them; ``memory`` in bytes. With none of them it runs on the head node.
        nprocs_per_node: how many processes torchrun starts, where ``num_gpus`` does not say it.
        runtime_env: of Ray, such as ``{"pip": ["emoji"]}``; the working directory is ours.
        metadata: shown with the job by Ray.
    """

    SCHEDULER: ClassVar[str] = "ray"
    _SEEN_AS: ClassVar[str] = "/nemo_run"
    CAPABILITIES: ClassVar[Capabilities] = Capabilities(
        detach=True, retries=True, log_times=False, poll_s=(0.5, 30.0)
    )

    address: str = ""
    token: str = secret(default="")
    num_cpus: float = 0
    num_gpus: float = 0
    memory: int = 0
    resources: dict[str, float] = field(default_factory=dict)
    nprocs_per_node: int = 1
    runtime_env: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        self._belong_to(exp_id, exp_dir, task_dir)

    def nnodes(self) -> int:
        return 1

    def nproc_per_node(self) -> int:
        return int(self.num_gpus) or self.nprocs_per_node or 1

    def to_config(self) -> Config[Any]:
        """Return a config that can be stored: a literal token is kept in ``credentials.json``."""
        from nemo_run._backends.ray.site import stored_token

        config = super().to_config()
        if self.token:
            config.token = stored_token(self.address, self.token)
        return config

    def check(self) -> None:
        """Find what is wrong with the settings without asking the cluster.

        Raises:
            ConfigError: says which setting.
        """
        from nemo_run._backends.ray.request import checked_runtime_env
        from nemo_run._backends.ray.site import checked_address

        checked_address(self.address)
        for name, value in self.asked_for().items():
            amounts = value.values() if isinstance(value, dict) else [value]
            if any(amount < 0 for amount in amounts):
                raise ConfigError(f"{name}={value!r} is less than nothing. Use 0 or more.")
        for key, text in self.metadata.items():
            if not isinstance(text, str):
                raise ConfigError(f"metadata has {text!r} for {key!r}, and Ray takes texts only.")
        checked_runtime_env(self.runtime_env)

    def asked_for(self) -> dict[str, Any]:
        """Return what is kept for the process of the task, in Ray's words."""
        return {
            "num_cpus": self.num_cpus,
            "num_gpus": self.num_gpus,
            "memory": self.memory,
            "resources": dict(self.resources),
        }

    def diagnose(self) -> Iterator[Finding]:
        """Yield whether the cluster answers and lets us in."""
        from nemo_run._backends.ray.checks import diagnose

        return diagnose(self.address, self.token, self.runtime_env, self.check)

    def leftovers(self, handle: str) -> Iterator[Leftover]:
        """Yield the job, which the cluster lists, with its log, as long as it is up."""
        from nemo_run._backends.ray.site import Site
        from nemo_run._jobs.store import JobStore
        from nemo_run.core.execution.leftovers import Leftover, app_id_of

        record = JobStore().find(app_id_of(handle), self.SCHEDULER)
        if record is not None and record.ref is not None:
            site, job_id = Site.from_where(record.ref.where), record.ref.native_id
            what = f"job {job_id} of the Ray cluster at {site.address}"
            yield Leftover(what, lambda: site.client().delete(job_id))
