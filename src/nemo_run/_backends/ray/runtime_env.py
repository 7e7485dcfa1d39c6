"""Ray's runtime environment, as users give it: a YAML file, or its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nemo_run.exceptions import ConfigError


def settings_text(runtime_env_yaml: str) -> str:
    """Return the text, which may be in a file."""
    path = Path(runtime_env_yaml).expanduser() if "\n" not in runtime_env_yaml else None
    return path.read_text() if path is not None and path.is_file() else runtime_env_yaml


def read_settings(runtime_env_yaml: str) -> dict[str, Any]:
    """Return what a YAML file, or its text, says.

    Raises:
        ConfigError: it is not YAML, or no mapping.
    """
    import yaml

    try:
        found = yaml.safe_load(settings_text(runtime_env_yaml))
    except yaml.YAMLError as err:
        raise ConfigError(f"runtime_env_yaml is neither a file nor YAML: {err}") from err
    if not isinstance(found, dict):
        raise ConfigError(
            f"runtime_env_yaml={runtime_env_yaml!r} holds no settings of Ray's: it must be a "
            "mapping, or a file with one."
        )
    return found


def runtime_env(workdir: str | None, runtime_env_yaml: str | None) -> dict[str, Any]:
    """Return the settings with the directory that Ray sends."""
    found = read_settings(runtime_env_yaml) if runtime_env_yaml else {}
    if workdir:
        directory = Path(workdir).expanduser()
        if not directory.is_dir():
            raise ConfigError(f"workdir={workdir!r} is no directory of this machine.")
        found["working_dir"] = str(directory)
    return found
