"""Launchers: what is put in front of a task's command, such as torchrun or a profiler."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nemo_run import _shell
from nemo_run._config import defaults
from nemo_run._shell_quotes import put
from nemo_run._values import expandable_environment
from nemo_run.config import ConfigurableMixin, Script
from nemo_run.exceptions import ConfigError


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

    def __post_init__(self) -> None:
        defaults.fill_in(self)

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


@dataclass(kw_only=True)
class SlurmTemplate(Launcher):
    """Puts the command into a Jinja template of a shell script, which runs instead.

    ``{{ command }}`` is the command line in it, also inside of quotes, as in ``bash -c '…'``; each
    of ``template_vars`` is a variable more.

    Attributes:
        template_path: an absolute path, or the name of a template that comes with us.
        template_inline: the template itself; wins over a path.
    """

    template_path: str | None = None
    template_inline: str | None = None
    template_vars: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.template_path or self.template_inline):
            raise ConfigError(
                f"{type(self).__name__} needs a template: set template_path or template_inline."
            )

    def get_template_content(self) -> str:
        """Return the template.

        Raises:
            FileNotFoundError: there is no file of that name.
        """
        if self.template_inline:
            return self.template_inline
        from nemo_run.core.execution.utils import TEMPLATES

        # An absolute path stays itself.
        return (TEMPLATES / str(self.template_path)).read_text()

    def render_template(self, cmd: list[str]) -> str:
        """Return the script that runs ``cmd``.

        Raises:
            ConfigError: ``{{ command }}`` is inside of quotes that are inside of quotes, where
                only plain words can be written.
        """
        from nemo_run.core.execution.utils import render

        template, values, line = self.get_template_content(), self._values(), self._line(cmd)
        script = render(template, {"command": line, **values})
        mark = "nemo_run_command"
        while mark in script:
            mark += "_"
        marked = render(template, {"command": mark, **values})
        # A template that makes something else of the command knows what it does.
        return put(marked, mark, line) if marked.replace(mark, line) == script else script

    def transform(self, cmd: list[str]) -> Script | None:
        return Script(inline=self.render_template(cmd))

    def _line(self, cmd: list[str]) -> str:
        return _shell.render(cmd)

    def _values(self) -> dict[str, Any]:
        return dict(self.template_vars)


@dataclass(kw_only=True)
class SlurmRay(SlurmTemplate):
    """Starts a Ray cluster on the nodes of the job, then the command on the first of them.

    Attributes:
        gcs_server_port, dashboard_port, object_manager_port, node_manager_port: of Ray.
        dashboard_agent_port, dashboard_agent_grpc_port, metrics_port: of Ray. Those with their
            usual value are chosen for each job, so that clusters may share nodes: see the guide on
            Ray. ``template_vars`` sets one to its usual value.
        display_nvidia_smi_output: show the GPUs of each node first.
        head_setup: lines of bash that the first node runs when all nodes have joined; ports are
            variables there, called like these settings in upper case: ``$GCS_SERVER_PORT``.
        head_init_wait_time: seconds between two looks at who has joined.
        worker_init_wait_time: seconds that the other nodes give the first one.
        env_vars: exported before Ray starts.
    """

    template_path: str | None = "slurm_ray.sh.j2"
    gcs_server_port: int = 6379
    dashboard_port: int = 8265
    object_manager_port: int = 8076
    node_manager_port: int = 8077
    dashboard_agent_port: int = 52365
    dashboard_agent_grpc_port: int = 52366
    metrics_port: int = 9002
    display_nvidia_smi_output: bool = False
    head_setup: str | None = None
    head_init_wait_time: int = 10
    worker_init_wait_time: int = 60
    env_vars: dict[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.template_path = "slurm_ray.sh.j2"
        super().__post_init__()

    def _values(self) -> dict[str, Any]:
        known = {item.name for item in fields(SlurmTemplate)}
        own = {item.name: getattr(self, item.name) for item in fields(self)}
        values = {name: value for name, value in own.items() if name not in known}
        for item in fields(self):
            if item.name.endswith("_port") and values.get(item.name) == item.default:
                values[item.name] = ""
        env = expandable_environment(self.env_vars or {})
        exports = [_shell.export(name, value) for name, value in env.items()]
        values["env_vars"] = "\n".join(exports)
        return {**values, **self.template_vars}


LAUNCHER_MAP: dict[str, type[Launcher]] = {
    "torchrun": Torchrun,
    "ft": FaultTolerance,
    "slurm_ray": SlurmRay,
    "slurm_template": SlurmTemplate,
}
