"""Launchers: what is put in front of a task's command, such as torchrun or a profiler."""

from __future__ import annotations

from dataclasses import dataclass, field

from nemo_run.config import ConfigurableMixin, Script


@dataclass(kw_only=True)
class Launcher(ConfigurableMixin):
    """Runs the command as it is, under Nsight Systems where ``nsys_profile`` is set.

    Attributes:
        nsys_folder: below the job directory; created when the task is packaged.
        nsys_filename: ``%p`` stands for the process id.
        nsys_gpu_metrics: sample GPU metrics too, on one process of each node.
    """

    nsys_profile: bool = False
    nsys_folder: str = "nsys_profile"
    nsys_filename: str = "profile_%p"
    nsys_trace: list[str] = field(default_factory=lambda: ["nvtx", "cuda"])
    nsys_extra_args: list[str] = field(
        default_factory=lambda: [
            "--force-overwrite=true",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            "--cuda-graph-trace=node",
            "--cuda-event-trace=false",
        ]
    )
    nsys_gpu_metrics: bool = False

    def get_nsys_prefix(self, profile_dir: str) -> list[str] | None:
        """Return the profiler's arguments, or None where profiling is off."""
        if not self.nsys_profile:
            return None
        output = f"{profile_dir}/{self.nsys_folder}/{self.nsys_filename}"
        trace = ",".join(self.nsys_trace)
        return ["profile", "-s", "none", "-t", trace, "-o", output, *self.nsys_extra_args]

    def transform(self, cmd: list[str]) -> Script | None:
        """Return a script to run instead of ``cmd``, or None to keep it."""
        return None


@dataclass(kw_only=True)
class Torchrun(Launcher):
    """Starts one process per device with ``torchrun``."""

    rdzv_backend: str = "c10d"
    rdzv_port: int = 29500
    rdzv_id: int | None = None


@dataclass(kw_only=True)
class FaultTolerance(Launcher):
    """Starts one process per device with ``ft_launcher``, which restarts those that hang or die.

    ``cfg_path``, ``finished_flag_file`` and ``job_results_file`` are read by the batch scripts of
    the executors that support restarting whole jobs.
    """

    cfg_path: str = ""
    finished_flag_file: str = ""
    job_results_file: str = ""
    rdzv_backend: str = "c10d"
    rdzv_port: int = 29500
    rdzv_id: int | None = None
    workload_check_interval: float | None = None
    initial_rank_heartbeat_timeout: float | None = None
    rank_heartbeat_timeout: float | None = None
    rank_termination_signal: str | None = None
    log_level: str | None = None
    max_restarts: int | None = None


LAUNCHER_MAP: dict[str, type[Launcher]] = {
    "torchrun": Torchrun,
    "ft": FaultTolerance,
}
