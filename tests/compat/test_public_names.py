"""Every name, constant and exception that scripts written for NeMo Run 0.12 may import."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run import package_info

CALLABLE, CLASS, DATACLASS = "callable", "class", "dataclass"
FUNCTION, PACKAGE = "function", "package"

# Exported by nemo_run itself: name → (home module, kind).
EXPORTED: dict[str, tuple[str, str]] = {
    "autoconvert": ("nemo_run.api", FUNCTION),
    "dryrun_fn": ("nemo_run.api", FUNCTION),
    "cli": ("nemo_run.cli", PACKAGE),
    "lazy_imports": ("nemo_run.cli.lazy", CALLABLE),
    "LazyEntrypoint": ("nemo_run.cli.lazy", CLASS),
    "Config": ("nemo_run.config", CLASS),
    "Partial": ("nemo_run.config", CLASS),
    "Script": ("nemo_run.config", DATACLASS),
    "ConfigurableMixin": ("nemo_run.config", CLASS),
    "Executor": ("nemo_run.core.execution.base", CLASS),
    "ExecutorMacros": ("nemo_run.core.execution.base", CLASS),
    "import_executor": ("nemo_run.core.execution.base", FUNCTION),
    "LocalExecutor": ("nemo_run.core.execution.local", DATACLASS),
    "DockerExecutor": ("nemo_run.core.execution.docker", DATACLASS),
    "SlurmExecutor": ("nemo_run.core.execution.slurm", DATACLASS),
    "SkypilotExecutor": ("nemo_run.core.execution.skypilot", DATACLASS),
    "SkypilotJobsExecutor": ("nemo_run.core.execution.skypilot_jobs", DATACLASS),
    "DGXCloudExecutor": ("nemo_run.core.execution.dgxcloud", DATACLASS),
    "LeptonExecutor": ("nemo_run.core.execution.lepton", DATACLASS),
    "KubeflowExecutor": ("nemo_run.core.execution.kubeflow", DATACLASS),
    "RayExecutor": ("nemo_run.core.execution.ray", DATACLASS),
    "Torchrun": ("nemo_run.core.execution.launcher", DATACLASS),
    "FaultTolerance": ("nemo_run.core.execution.launcher", DATACLASS),
    "SlurmRay": ("nemo_run.core.execution.launcher", DATACLASS),
    "SlurmTemplate": ("nemo_run.core.execution.launcher", DATACLASS),
    "Packager": ("nemo_run.core.packaging", DATACLASS),
    "GitArchivePackager": ("nemo_run.core.packaging", DATACLASS),
    "PatternPackager": ("nemo_run.core.packaging", DATACLASS),
    "HybridPackager": ("nemo_run.core.packaging", DATACLASS),
    "LocalTunnel": ("nemo_run.core.tunnel.client", DATACLASS),
    "SSHTunnel": ("nemo_run.core.tunnel.client", DATACLASS),
    "DevSpace": ("nemo_run.devspace.base", CLASS),
    "Experiment": ("nemo_run.run.experiment", CLASS),
}

SUBMODULES = ("api", "cli", "config", "core", "devspace", "exceptions", "package_info")

OTHERS: dict[str, tuple[str, ...]] = {
    "nemo_run.cli": (
        "create_cli",
        "main",
        "entrypoint",
        "factory",
        "resolve_factory",
        "list_entrypoints",
        "list_factories",
        "parse_cli_args",
        "parse_partial",
        "parse_config",
        "RunContext",
    ),
    "nemo_run.cli.api": (
        "Entrypoint",
        "EntrypointCommand",
        "GeneralCommand",
        "EntrypointProtocol",
        "FactoryProtocol",
        "FactoryRegistration",
        "CommandDefaults",
        "RunContextError",
        "InvalidOptionError",
        "MissingRequiredOptionError",
        "extract_constituent_types",
        "add_global_options",
        "configure_logging",
        "ROOT_ENTRYPOINT_NAMESPACE",
        "ROOT_FACTORY_NAMESPACE",
        "DEFAULT_NAME",
        "EXECUTOR_CLASSES",
        "PLUGIN_CLASSES",
        "NEMORUN_SKIP_CONFIRMATION",
        "INCLUDE_WORKSPACE_FILE",
        "NEMORUN_PRETTY_EXCEPTIONS",
        "MAIN_ENTRYPOINT",
    ),
    "nemo_run.cli.cli_parser": (
        "Operation",
        "PythonicParser",
        "TypeParser",
        "type_parser",
        "parse_value",
        "parse_factory",
        "parse_attribute",
        "cli_exception_handler",
    ),
    "nemo_run.cli.config": (
        "ConfigSerializer",
        "yaml_to_dict",
        "dict_to_yaml",
        "yaml_to_json",
        "json_to_yaml",
        "yaml_to_toml",
        "toml_to_yaml",
        "json_to_toml",
        "toml_to_json",
    ),
    "nemo_run.cli.lazy": (
        "LazyEntrypoint",
        "LazyTarget",
        "LazyModule",
        "lazy_imports",
        "dictconfig_to_dot_list",
        "load_config_from_path",
        "import_module",
    ),
    "nemo_run.cli.experiment": ("list", "logs", "status", "cancel", "create"),
    "nemo_run.cli.devspace": ("sshserver", "launch", "connect", "create"),
    "nemo_run.api": (
        "autoconvert",
        "default_autoconfig_buildable",
        "dryrun_fn",
        "AutoConfigProtocol",
        "AUTOBUILD_CLASSES",
        "DEFAULT_NAME",
        "ROOT_TASK_NAMESPACE",
        "ROOT_TASK_FACTORY_NAMESPACE",
        "ROOT_TYPER_NAMESPACE",
    ),
    "nemo_run.config": (
        "Config",
        "Partial",
        "Script",
        "ConfigurableMixin",
        "OptionalDefaultConfig",
        "OptionalDefaultPartial",
        "ConfigT",
        "from_dict",
        "set_value",
        "get_type_namespace",
        "get_underlying_types",
        "get_nemorun_home",
        "set_nemorun_home",
        "RECURSIVE_TYPES",
        "RUNDIR_NAME",
        "RUNDIR_SPECIAL_NAME",
        "SCRIPTS_DIR",
        "USE_WITH_RAY_CLUSTER_KEY",
    ),
    "nemo_run.core.serialization.zlib_json": ("ZlibJSONSerializer",),
    "nemo_run.core.serialization.yaml": ("YamlSerializer",),
    "nemo_run.core.frontend.console.api": (
        "CONSOLE",
        "CustomConfigRepr",
        "configure_logging",
        "deconfigure_logging",
    ),
    "nemo_run.core.frontend.console.styles": ("TABLE_STYLES", "BOX_STYLE"),
    "nemo_run.core.runners.fdl_runner": ("fdl_runner_app", "fdl_direct_run"),
    "nemo_run.core.tunnel.server": ("server_dir", "launch", "TunnelMetadata"),
    "nemo_run.run.experiment": (
        "Experiment",
        "Tasks",
        "Jobs",
        "DummyConsole",
        "maybe_load_external_main",
        "_current_experiment",
    ),
    "nemo_run.run.job": ("Job", "JobGroup"),
    "nemo_run.run.plugin": ("ExperimentPlugin",),
    "nemo_run.run.task": ("dryrun_fn", "direct_run_fn"),
    "nemo_run.run.logs": ("get_logs", "print_log_lines"),
    "nemo_run.run.utils": ("TeeStdoutStderr",),
    "nemo_run.devspace": ("DevSpace",),
    "nemo_run.devspace.editor": ("launch_editor",),
    "nemo_run.run.ray.cluster": ("RayCluster",),
    "nemo_run.run.ray.job": ("RayJob",),
    "nemo_run.run.ray.kuberay": ("KubeRayCluster", "KubeRayJob"),
    "nemo_run.run.ray.lepton": ("LeptonRayCluster", "LeptonRayJob"),
    "nemo_run.run.ray.dgxcloud": (
        *("DGXCloudRayCluster", "DGXCloudRayJob", "build_ray_bootstrap_script"),
    ),
    "nemo_run.core.execution.kuberay": (
        *("KubeRayExecutor", "KubeRayWorkerGroup", "sync_workdir_via_pod"),
        *("is_valid_name", "is_valid_label"),
        *("populate_meta", "populate_ray_head", "populate_worker_group"),
        *("update_worker_group_replicas", "update_worker_group_resources"),
        *("duplicate_worker_group", "delete_worker_group"),
        *("GROUP", "VERSION", "PLURAL", "KIND"),
    ),
    "nemo_run.help": ("help", "help_for_callable", "help_for_type", "class_to_str"),
    "nemo_run.exceptions": ("SetValueError", "UnknownStatusError", "PersistentSacctFailure"),
}

CONSTANTS: dict[str, Any] = {
    "nemo_run.cli.api.ROOT_ENTRYPOINT_NAMESPACE": "nemo_run.cli.entrypoints",
    "nemo_run.cli.api.ROOT_FACTORY_NAMESPACE": "nemo_run.cli.factories",
    "nemo_run.cli.api.DEFAULT_NAME": "default",
    "nemo_run.cli.api.NEMORUN_SKIP_CONFIRMATION": None,
    "nemo_run.api.DEFAULT_NAME": "default",
    "nemo_run.api.ROOT_TASK_NAMESPACE": "nemo_run.task",
    "nemo_run.api.ROOT_TASK_FACTORY_NAMESPACE": "nemo_run.task_factory",
    "nemo_run.api.ROOT_TYPER_NAMESPACE": "nemo_run.typer",
    "nemo_run.config.RUNDIR_NAME": "nemo_run",
    "nemo_run.config.RUNDIR_SPECIAL_NAME": "/$nemo_run",
    "nemo_run.config.SCRIPTS_DIR": "scripts",
    "nemo_run.config.USE_WITH_RAY_CLUSTER_KEY": "use_with_ray_cluster",
    "nemo_run.config.RECURSIVE_TYPES": (typing.Union, typing.Optional),
    "nemo_run.package_info.MAJOR": 0,
    "nemo_run.package_info.MINOR": 12,
    "nemo_run.package_info.PATCH": 0,
    "nemo_run.package_info.PRE_RELEASE": "",
    "nemo_run.package_info.__shortversion__": "0.12.0",
    "nemo_run.package_info.__package_name__": "nemo_run",
}

PARSER = "nemo_run.cli.cli_parser"
CLI = "nemo_run.cli.api"

# Exception → base.
EXCEPTIONS: dict[str, str] = {
    "nemo_run.exceptions.SetValueError": "builtins.ValueError",
    "nemo_run.exceptions.UnknownStatusError": "builtins.Exception",
    "nemo_run.exceptions.PersistentSacctFailure": "builtins.Exception",
    f"{PARSER}.CLIException": "builtins.Exception",
    f"{PARSER}.ArgumentParsingError": f"{PARSER}.CLIException",
    f"{PARSER}.TypeParsingError": f"{PARSER}.CLIException",
    f"{PARSER}.OperationError": f"{PARSER}.CLIException",
    f"{PARSER}.ArgumentValueError": f"{PARSER}.CLIException",
    f"{PARSER}.UndefinedVariableError": f"{PARSER}.CLIException",
    f"{PARSER}.ParseError": f"{PARSER}.CLIException",
    f"{PARSER}.LiteralParseError": f"{PARSER}.ParseError",
    f"{PARSER}.CollectionParseError": f"{PARSER}.ParseError",
    f"{PARSER}.UnknownTypeError": f"{PARSER}.ParseError",
    f"{PARSER}.ListParseError": f"{PARSER}.CollectionParseError",
    f"{PARSER}.DictParseError": f"{PARSER}.CollectionParseError",
    f"{CLI}.RunContextError": "builtins.Exception",
    f"{CLI}.InvalidOptionError": f"{CLI}.RunContextError",
    f"{CLI}.MissingRequiredOptionError": f"{CLI}.RunContextError",
}

SCHEDULERS = (
    "slurm_tunnel",
    "skypilot",
    "skypilot_jobs",
    "local_persistent",
    "docker_persistent",
    "dgx_cloud",
    "lepton",
    "kubeflow",
    "ray",
)


def resolved(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    return getattr(importlib.import_module(module), name)


def is_of_kind(value: Any, kind: str) -> bool:
    checks = {
        CALLABLE: callable(value),
        CLASS: inspect.isclass(value),
        DATACLASS: inspect.isclass(value) and dataclasses.is_dataclass(value),
        FUNCTION: callable(value) and not inspect.isclass(value),
        PACKAGE: isinstance(value, types.ModuleType),
    }
    return checks[kind]


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_names_are_those_of_their_home_module(name: str) -> None:
    home, kind = EXPORTED[name]
    value = getattr(run, name)
    assert is_of_kind(value, kind)
    module = importlib.import_module(home)
    assert value is (module if kind == PACKAGE else getattr(module, name))


@pytest.mark.parametrize("name", ["run", "help", "Plugin"])
def test_exported_names_with_a_home_of_another_name_are_callable(name: str) -> None:
    assert callable(getattr(run, name))


def test_plugin_is_the_experiment_plugin() -> None:
    assert run.Plugin is resolved("nemo_run.run.plugin.ExperimentPlugin")
    assert dataclasses.is_dataclass(run.Plugin)


@pytest.mark.parametrize(
    "name",
    [*EXPORTED, "run", "help", "Plugin", "__version__", "__package_name__"],
)
def test_exported_names_are_listed(name: str) -> None:
    assert name in run.__all__


def test_all_has_no_doubles() -> None:
    assert len(run.__all__) == len(set(run.__all__))


@pytest.mark.parametrize("name", SUBMODULES)
def test_submodules_are_attributes(name: str) -> None:
    assert getattr(run, name) is importlib.import_module(f"nemo_run.{name}")


@pytest.mark.parametrize(
    "dotted", [f"{module}.{name}" for module, names in OTHERS.items() for name in names]
)
def test_names_of_other_modules_can_be_imported(dotted: str) -> None:
    resolved(dotted)


@pytest.mark.parametrize("dotted", CONSTANTS)
def test_constants_have_their_values(dotted: str) -> None:
    assert resolved(dotted) == CONSTANTS[dotted]


def test_executors_are_built_automatically() -> None:
    assert resolved("nemo_run.api.AUTOBUILD_CLASSES") == (run.Executor,)


def test_dryrun_fn_is_one_function_in_all_places() -> None:
    assert resolved("nemo_run.run.task.dryrun_fn") is run.dryrun_fn


def test_the_workspace_module_exists() -> None:
    importlib.import_module("nemo_run.cli.workspace")


@pytest.mark.parametrize("dotted", EXCEPTIONS)
def test_exceptions_have_their_bases(dotted: str) -> None:
    assert issubclass(resolved(dotted), resolved(EXCEPTIONS[dotted]))


def test_command_line_errors_name_argument_and_context() -> None:
    error = resolved(f"{PARSER}.CLIException")("No such thing", "x=1", {"line": 3})
    assert (error.arg, error.context) == ("x=1", {"line": 3})
    assert str(error) == "No such thing (Argument: x=1, Context: {'line': 3})"
    assert isinstance(error.user_friendly_message(), str)


def test_parse_errors_name_value_type_and_reason() -> None:
    error = resolved(f"{PARSER}.ParseError")("abc", int, "not a number")
    assert (error.value, error.expected_type, error.reason) == ("abc", int, "not a number")


def test_the_version_tuple_agrees_with_the_parts() -> None:
    assert package_info.VERSION[:3] == (0, 12, 0)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert run.__version__ == package_info.__version__
    assert run.__version__.startswith("0.12.0")
    assert importlib.metadata.version("nemo_run").startswith("0.12.0")
    assert run.__package_name__ == "nemo_run"


def test_the_version_does_not_depend_on_the_repository_around(tmp_path: Path) -> None:
    code = "import nemo_run; print(nemo_run.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": ""},
    )
    assert done.stdout.strip() == run.__version__


@pytest.mark.parametrize("script", ["nemorun", "nemo"])
def test_console_scripts_are_installed(script: str) -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name=script)
    assert entry.value == "nemo_run.__main__:app"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedulers_are_registered_with_torchx(scheduler: str) -> None:
    (entry,) = importlib.metadata.entry_points(group="torchx.schedulers", name=scheduler)
    assert callable(entry.load())


@pytest.mark.slow
def test_the_package_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nemo_run", "--help"], check=True, capture_output=True, text=True
    )
    assert "Usage" in done.stdout
