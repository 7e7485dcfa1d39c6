"""Config files in YAML, JSON and TOML, and ``@file:section`` values that name them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from nemo_run._config.documents import check_depth, read_json, read_yaml
from nemo_run._files import read_regular
from nemo_run.cli.values.grammar import parse_file
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.exceptions import ConfigError

Format = Literal["yaml", "json", "toml"]

MOST_BYTES = 16 << 20

FORMATS: Mapping[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def format_of(path: Path) -> Format:
    """Return the format that a file's name says it is in.

    Raises:
        ConfigError: the suffix is none that we know.
    """
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise ConfigError(
            f"Unsupported file extension: {path.suffix or '(none)'} of {path}. "
            f"Supported extensions are: {', '.join(FORMATS)}"
        ) from None


def split_section(path: str) -> tuple[Path, str | None]:
    """Take ``path:section`` apart; a colon may also be part of a directory's name."""
    file, colon, section = path.rpartition(":")
    if colon and section and "/" not in section and "\\" not in section:
        return Path(file), section
    return Path(path), None


def parse(text: str, format: Format) -> Any:
    """Return the data in ``text``.

    Raises:
        ConfigError: it is not in that format.
    """
    reader = {"yaml": read_yaml, "json": read_json, "toml": _toml}[format]
    try:
        return reader(text)
    except ValueError as err:
        raise ConfigError(f"This is not {format.upper()}: {' '.join(str(err).split())}") from err


def _toml(text: str) -> Any:
    try:
        data = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    except RecursionError as err:
        raise ValueError("it is nested too deeply") from err
    check_depth(data)
    return data


def read(path: Path) -> Any:
    """Return the data in a file.

    Raises:
        ConfigError: there is no such file, or it is not what its suffix says.
    """
    format = format_of(path)
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"Config file not found: {path}") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"Config file {path} cannot be read: {err}") from err
    try:
        return parse(text, format)
    except ConfigError as err:
        raise ConfigError(f"Error loading config file {path}: {err}") from err


def load_config_from_path(path_with_syntax: str) -> Any:
    """Return what ``@path/file.yaml`` or ``@file.toml:section`` holds.

    With a section it is that section. Otherwise, where the file has a single key that holds a
    mapping, it is that mapping; a file with ``_target_`` or ``_factory_`` at its root, and every
    other, is taken as a whole. Mappings come as OmegaConf configs, their interpolations intact.

    Raises:
        ConfigError: the text is of another form, or the file or its section cannot be read.
    """
    named = parse_file(path_with_syntax)
    if named is None:
        raise ConfigError(
            f"Invalid config file format: {path_with_syntax}. "
            "Write it like @path/file.yaml or @file.toml:section"
        )
    path = Path(named.path)
    data = read(path)
    section = named.section
    if section is None:
        section = _main_section(data)
    elif not isinstance(data, Mapping):
        raise ConfigError(f"Config file {path} has no sections, since it holds no mapping.")
    elif section not in data:
        raise ConfigError(
            f"Section {section!r} not found in config file {path}. "
            f"{did_you_mean(section, map(str, data))}"
        )
    config = as_config(data)
    if section is None:
        return config
    with readable_errors():
        return config[section]


def _main_section(data: Any) -> str | None:
    """Return the only key of a mapping where it holds one as well."""
    if not isinstance(data, Mapping) or len(data) != 1 or "_target_" in data or "_factory_" in data:
        return None
    ((key, value),) = data.items()
    return key if isinstance(value, Mapping) else None


def as_config(data: Any) -> Any:
    """Return plain data as an OmegaConf config; what is neither mapping nor list stays itself.

    Raises:
        ConfigError: it holds something that a config file cannot.
    """
    from omegaconf import OmegaConf

    if not isinstance(data, (dict, list)):
        return data
    with readable_errors():
        return OmegaConf.create(_with_written_sets(data))


def _with_written_sets(data: Any) -> Any:
    """Return data with the sets of YAML, which OmegaConf does not know, as calls that make them."""
    if isinstance(data, dict):
        return {key: _with_written_sets(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_with_written_sets(value) for value in data]
    if isinstance(data, set):
        return {"_target_": "builtins.set", "_args_": [list(data)], "_call_": True}
    return data


def plain(config: Any) -> Any:
    """Return a config as plain data with its interpolations resolved.

    Raises:
        ConfigError: an interpolation leads nowhere, or a mandatory value is missing.
    """
    from omegaconf import DictConfig, ListConfig, OmegaConf

    if not isinstance(config, (DictConfig, ListConfig)):
        return config
    with readable_errors():
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def read_plain(path: Path) -> Any:
    """Return the data in a file with its interpolations resolved; see `read` and `plain`."""
    data = read(path)
    try:
        return plain(as_config(data))
    except ConfigError as err:
        raise ConfigError(f"Error loading config file {path}: {err}") from err


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn OmegaConf's errors, which go on for several lines, into ours."""
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except OmegaConfBaseException as err:
        raise ConfigError(str(err).splitlines()[0]) from err
