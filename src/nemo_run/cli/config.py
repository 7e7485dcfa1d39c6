"""Tasks as YAML, JSON and TOML files, and conversions between the three.

Configs are rebuilt from the data in a file directly. Command lines read the same files with
OmegaConf, so text that would be an interpolation there is written escaped. TOML has no null: a
config's is written as a reference to None, and in the conversions such keys vanish.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, TextIO, get_args

from nemo_run._files import read_regular
from nemo_run.cli.values import config_files
from nemo_run.cli.values.config_files import Format, format_of, split_section
from nemo_run.cli.values.suggestions import did_you_mean
from nemo_run.core.serialization.yaml import from_mapping, to_mapping, yaml_text
from nemo_run.exceptions import ConfigError

__all__ = [
    "ConfigSerializer",
    "dict_to_yaml",
    "json_to_toml",
    "json_to_yaml",
    "toml_to_json",
    "toml_to_yaml",
    "yaml_to_dict",
    "yaml_to_json",
    "yaml_to_toml",
]


class ConfigSerializer:
    """Writes tasks and configs as files that people can read, and reads them back."""

    def serialize_yaml(self, cfg: Any, stream: TextIO | None = None) -> str:
        """Return ``cfg`` as YAML, written to ``stream`` too if one is given.

        Raises:
            UnserializableError: something inside has no such form.
        """
        return _written(yaml_text(_escaped(to_mapping(cfg))), stream)

    def serialize_json(self, cfg: Any, stream: TextIO | None = None) -> str:
        """Return ``cfg`` as JSON; see `serialize_yaml`."""
        return _written(_json_text(_for_files(cfg)), stream)

    def serialize_toml(self, cfg: Any, stream: TextIO | None = None) -> str:
        """Return ``cfg`` as TOML; see `serialize_yaml`."""
        return _written(_toml_text(_with_named_null(_for_files(cfg))), stream)

    def deserialize_yaml(self, serialized: str) -> Any:
        """Return the config in a YAML text, importing what it names.

        Raises:
            ConfigError: it is not YAML, has no ``_target_``, or names what is not there.
        """
        return _config(config_files.parse(serialized, "yaml"))

    def deserialize_json(self, serialized: str) -> Any:
        """Return the config in a JSON text; see `deserialize_yaml`."""
        return _config(config_files.parse(serialized, "json"))

    def deserialize_toml(self, serialized: str) -> Any:
        """Return the config in a TOML text; see `deserialize_yaml`."""
        return _config(config_files.parse(serialized, "toml"))

    def dump_yaml(self, cfg: Any, output_path: str | Path) -> None:
        """Write ``cfg`` to a YAML file."""
        _write(output_path, self.serialize_yaml(cfg))

    def dump_json(self, cfg: Any, output_path: str | Path) -> None:
        """Write ``cfg`` to a JSON file."""
        _write(output_path, self.serialize_json(cfg))

    def dump_toml(self, cfg: Any, output_path: str | Path) -> None:
        """Write ``cfg`` to a TOML file."""
        _write(output_path, self.serialize_toml(cfg))

    def load_yaml(self, input_path: str | Path) -> Any:
        """Return the config in a YAML file."""
        return self.deserialize_yaml(read_regular(input_path).decode("utf-8"))

    def load_json(self, input_path: str | Path) -> Any:
        """Return the config in a JSON file."""
        return self.deserialize_json(read_regular(input_path).decode("utf-8"))

    def load_toml(self, input_path: str | Path) -> Any:
        """Return the config in a TOML file."""
        return self.deserialize_toml(read_regular(input_path).decode("utf-8"))

    def dump(self, cfg: Any, output_path: str | Path) -> None:
        """Write ``cfg`` to a file in the format that its suffix says.

        Raises:
            ValueError: the suffix is none of ``.yaml``, ``.yml``, ``.json`` and ``.toml``.
        """
        write = {"yaml": self.dump_yaml, "json": self.dump_json, "toml": self.dump_toml}
        write[format_of(Path(output_path))](cfg, output_path)

    def load(self, input_path: str | Path) -> Any:
        """Return the config in a file of the format that its suffix says; see `dump`."""
        read = {"yaml": self.load_yaml, "json": self.load_json, "toml": self.load_toml}
        return read[format_of(Path(input_path))](input_path)

    def load_dict(self, input_path: str | Path) -> Any:
        """Return the data in a file as it is, without making a config of it."""
        return config_files.read(Path(input_path))

    def dump_dict(
        self,
        data: Mapping[str, Any],
        output_path: str | Path,
        format: str | None = None,
        section: str | None = None,
    ) -> None:
        """Write plain data to a file.

        Args:
            data: the data.
            output_path: the file; ``path:section`` names a section as well.
            format: ``yaml``, ``json`` or ``toml``; otherwise what the suffix says.
            section: write only what is under this key.

        Raises:
            KeyError: there is no such section.
            ValueError: the format is none of the three.
        """
        path, named = split_section(str(output_path))
        section = section or named
        if section is not None:
            if section not in data:
                known = did_you_mean(section, map(str, data))
                raise KeyError(f"Section {section!r} not found in configuration. {known}")
            data = data[section]
        _write(path, _TEXTS[_known(format) if format else format_of(path)](data))


def _known(format: str) -> Format:
    formats = get_args(Format)
    if format not in formats:
        raise ConfigError(
            f"Unsupported format: {format}. Supported formats are: {', '.join(formats)}"
        )
    return format  # type: ignore[return-value]  # one of the literals, as was just checked


def yaml_to_dict(yaml_str: str) -> Any:
    """Return the data in a YAML text."""
    return config_files.parse(yaml_str, "yaml")


def dict_to_yaml(data: Any) -> str:
    """Return data as YAML with sorted keys; tuples are written as lists."""
    import yaml

    text: str = yaml.safe_dump(_plain(data), default_flow_style=False, allow_unicode=True)
    return text


def yaml_to_json(yaml_str: str) -> str:
    """Return a YAML text as JSON."""
    return _json_text(yaml_to_dict(yaml_str))


def json_to_yaml(json_str: str) -> str:
    """Return a JSON text as YAML."""
    return dict_to_yaml(config_files.parse(json_str, "json"))


def yaml_to_toml(yaml_str: str) -> str:
    """Return a YAML text as TOML; keys with null vanish."""
    return _toml_text(yaml_to_dict(yaml_str))


def toml_to_yaml(toml_str: str) -> str:
    """Return a TOML text as YAML."""
    return dict_to_yaml(config_files.parse(toml_str, "toml"))


def json_to_toml(json_str: str) -> str:
    """Return a JSON text as TOML; keys with null vanish."""
    return _toml_text(config_files.parse(json_str, "json"))


def toml_to_json(toml_str: str) -> str:
    """Return a TOML text as JSON."""
    return _json_text(config_files.parse(toml_str, "toml"))


def _config(data: Any) -> Any:
    if not isinstance(data, Mapping) or "_target_" not in data:
        raise ConfigError(
            "This describes no task: it has no _target_ at the top. "
            "Add one that names the function, such as my_package.train"
        )
    return from_mapping(_unescaped(data))


def _for_files(cfg: Any) -> Any:
    return _sorted(_escaped(to_mapping(cfg, only_text_keys=True)))


_DOLLAR = re.compile(r"(\\*)\$\{")


def _escaped(data: Any) -> Any:
    """Return data in which no text is an interpolation.

    Raises:
        ConfigError: a text is ``???``, which in a file says that a value is missing.
    """

    def text(value: str) -> str:
        if value == "???":
            raise ConfigError(
                "The text '???' cannot be written to a config file, where it stands for a value "
                "that is missing. Use another."
            )
        return _DOLLAR.sub(lambda match: f"{match[1] * 2}\\${{", value)

    return _with_texts(data, text)


def _unescaped(data: Any) -> Any:
    def text(match: re.Match[str]) -> str:
        is_escaped = len(match[1]) % 2
        return f"{match[1][: len(match[1]) // 2]}${{" if is_escaped else match[0]

    return _with_texts(data, lambda value: _DOLLAR.sub(text, value))


def _with_texts(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {key: _with_texts(value, change) for key, value in data.items()}
    if isinstance(data, (list, set)):
        return type(data)(_with_texts(value, change) for value in data)
    return data


def _with_named_null(data: Any) -> Any:
    if data is None:
        return {"_target_": "builtins.None", "_call_": False}
    if isinstance(data, dict):
        return {key: _with_named_null(value) for key, value in data.items()}
    return [_with_named_null(item) for item in data] if isinstance(data, list) else data


def _json_text(data: Any) -> str:
    return json.dumps(_plain(data), indent=2, default=_json_value, ensure_ascii=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, (date, time)):
        return value.isoformat()
    raise ConfigError(f"JSON cannot hold {value!r} of type {type(value).__name__}.")


def _toml_text(data: Any) -> str:
    import tomli_w

    if not isinstance(data, Mapping):
        raise ConfigError("TOML holds a mapping at the top, and nothing else.")
    try:
        return tomli_w.dumps(_without_none(_plain(data), "<root>"))
    except TypeError as err:
        raise ConfigError(f"TOML cannot hold this: {err}") from err


_TEXTS = {"yaml": dict_to_yaml, "json": _json_text, "toml": _toml_text}


def _without_none(data: Any, path: str) -> Any:
    if isinstance(data, dict):
        return {
            str(key): _without_none(value, f"{path}.{key}")
            for key, value in data.items()
            if value is not None
        }
    if isinstance(data, list):
        if None in data:
            raise ConfigError(
                f"TOML has no null, and the list at {path} holds one. Use YAML or JSON."
            )
        return [_without_none(value, f"{path}[{index}]") for index, value in enumerate(data)]
    return data


def _plain(data: Any) -> Any:
    """Return data with lists in place of tuples and sets, which no format has."""
    if isinstance(data, Mapping):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    if isinstance(data, (set, frozenset)):
        return sorted((_plain(value) for value in data), key=repr)
    return data


def _sorted(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _sorted(data[key]) for key in sorted(data)}
    return [_sorted(item) for item in data] if isinstance(data, list) else data


def _written(text: str, stream: TextIO | None) -> str:
    if stream is not None:
        stream.write(text)
    return text


def _write(path: str | Path, text: str) -> None:
    Path(path).write_bytes(text.encode("utf-8"))  # which fails before the file is there
