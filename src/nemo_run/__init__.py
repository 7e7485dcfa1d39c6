"""Configure a machine-learning task once and run it anywhere.

Importing this package loads nothing else: every name below is found on first use.
"""

from nemo_run.package_info import __package_name__, __version__

TYPE_CHECKING = False  # typing's own takes half as long to import as Python to start
if TYPE_CHECKING:
    from nemo_run import api as api
    from nemo_run import cli as cli
    from nemo_run import config as config
    from nemo_run import core as core
    from nemo_run import devspace as devspace
    from nemo_run import exceptions as exceptions
    from nemo_run import package_info as package_info
    from nemo_run._values import literal
    from nemo_run.api import autoconvert, dryrun_fn
    from nemo_run.cli.lazy import LazyEntrypoint, lazy_imports
    from nemo_run.config import Config, ConfigurableMixin, Partial, Script
    from nemo_run.core.execution.base import Executor, ExecutorMacros, import_executor
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
    from nemo_run.core.execution.docker import DockerExecutor
    from nemo_run.core.execution.kubeflow import KubeflowExecutor
    from nemo_run.core.execution.launcher import (
        FaultTolerance,
        SlurmRay,
        SlurmTemplate,
        Torchrun,
    )
    from nemo_run.core.execution.lepton import LeptonExecutor
    from nemo_run.core.execution.local import LocalExecutor
    from nemo_run.core.execution.ray import RayExecutor
    from nemo_run.core.execution.skypilot import SkypilotExecutor
    from nemo_run.core.execution.skypilot_jobs import SkypilotJobsExecutor
    from nemo_run.core.execution.slurm import SlurmExecutor
    from nemo_run.core.packaging.base import Packager
    from nemo_run.core.packaging.git import GitArchivePackager
    from nemo_run.core.packaging.hybrid import HybridPackager
    from nemo_run.core.packaging.pattern import PatternPackager
    from nemo_run.core.packaging.snapshot import SnapshotPackager
    from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
    from nemo_run.devspace.base import DevSpace
    from nemo_run.help import help
    from nemo_run.run.api import run
    from nemo_run.run.experiment import Experiment
    from nemo_run.run.plugin import ExperimentPlugin as Plugin

__all__ = [
    "Config",
    "ConfigurableMixin",
    "DGXCloudExecutor",
    "DevSpace",
    "DockerExecutor",
    "Executor",
    "ExecutorMacros",
    "Experiment",
    "FaultTolerance",
    "GitArchivePackager",
    "HybridPackager",
    "KubeflowExecutor",
    "LazyEntrypoint",
    "LeptonExecutor",
    "LocalExecutor",
    "LocalTunnel",
    "Packager",
    "Partial",
    "PatternPackager",
    "Plugin",
    "RayExecutor",
    "SSHTunnel",
    "Script",
    "SkypilotExecutor",
    "SkypilotJobsExecutor",
    "SlurmExecutor",
    "SlurmRay",
    "SlurmTemplate",
    "SnapshotPackager",
    "Torchrun",
    "__package_name__",
    "__version__",
    "autoconvert",
    "cli",
    "dryrun_fn",
    "help",
    "import_executor",
    "lazy_imports",
    "literal",
    "run",
]

_HOMES = {
    "Config": "config",
    "ConfigurableMixin": "config",
    "DGXCloudExecutor": "core.execution.dgxcloud",
    "DevSpace": "devspace.base",
    "DockerExecutor": "core.execution.docker",
    "Executor": "core.execution.base",
    "ExecutorMacros": "core.execution.base",
    "Experiment": "run.experiment",
    "FaultTolerance": "core.execution.launcher",
    "GitArchivePackager": "core.packaging.git",
    "HybridPackager": "core.packaging.hybrid",
    "KubeflowExecutor": "core.execution.kubeflow",
    "LazyEntrypoint": "cli.lazy",
    "LeptonExecutor": "core.execution.lepton",
    "LocalExecutor": "core.execution.local",
    "LocalTunnel": "core.tunnel.client",
    "Packager": "core.packaging.base",
    "Partial": "config",
    "PatternPackager": "core.packaging.pattern",
    "Plugin": "run.plugin",
    "RayExecutor": "core.execution.ray",
    "SSHTunnel": "core.tunnel.client",
    "Script": "config",
    "SkypilotExecutor": "core.execution.skypilot",
    "SkypilotJobsExecutor": "core.execution.skypilot_jobs",
    "SlurmExecutor": "core.execution.slurm",
    "SlurmRay": "core.execution.launcher",
    "SlurmTemplate": "core.execution.launcher",
    "SnapshotPackager": "core.packaging.snapshot",
    "Torchrun": "core.execution.launcher",
    "autoconvert": "api",
    "dryrun_fn": "api",
    "import_executor": "core.execution.base",
    "lazy_imports": "cli.lazy",
    "literal": "_values",
}
_NAMED_ELSEWHERE = {"Plugin": "ExperimentPlugin"}
# `run` and `help` are modules that can be called, so that both uses hold in any order.
_MODULES = {"api", "cli", "config", "core", "devspace", "exceptions", "help", "package_info", "run"}


if not TYPE_CHECKING:  # to a type checker, any name would exist

    def __getattr__(name):
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"nemo_run.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'nemo_run' has no attribute {name!r}{_suggestion(name)}")
        module = import_module(f"nemo_run.{_HOMES[name]}")
        value = globals()[name] = getattr(module, _NAMED_ELSEWHERE.get(name, name))
        return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


def _suggestion(name: str) -> str:
    # Tools probe for dunder names all the time, and Python for our modules before it loads them.
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches

    close = get_close_matches(name, [*__all__, *_MODULES], n=1)
    return f". Did you mean {close[0]!r}?" if close else ""
