"""Configs as YAML."""

from __future__ import annotations

from typing import Any, TextIO

import yaml

from nemo_run._config.documents import read_yaml
from nemo_run.core.serialization._mapping import TARGET, from_mapping, to_mapping
from nemo_run.exceptions import ConfigError

__all__ = ["YamlSerializer", "from_mapping", "to_mapping", "yaml_text"]


# Line breaks to YAML but not to most editors; plain text would lose them.
_BREAKS = frozenset("\x85\u2028\u2029\ufeff")


# libyaml writes the same text several times faster; PyYAML may have been built without it.
_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.Node:
        style = '"' if _BREAKS.intersection(data) else None
        node: yaml.Node = self.represent_scalar("tag:yaml.org,2002:str", data, style=style)
        return node


_Dumper.add_representer(str, _Dumper.represent_text)


def yaml_text(data: Any) -> str:
    """Return plain data as YAML with sorted keys."""
    text: str = yaml.dump(data, Dumper=_Dumper, default_flow_style=False, allow_unicode=True)
    return text


class YamlSerializer:
    """Writes configs as YAML that people can read, and reads them back."""

    def serialize(self, cfg: Any, stream: TextIO | None = None) -> str:
        """Return ``cfg`` as YAML with sorted keys, written to ``stream`` too if one is given.

        Shared configs are written once for each place they are used in.

        Raises:
            UnserializableError: something inside has no such form.
        """
        text = yaml_text(to_mapping(cfg))
        if stream is not None:
            stream.write(text)
        return text

    def deserialize(self, serialized: str) -> Any:
        """Return the config in ``serialized``, importing what it names.

        Raises:
            ConfigError: it has no ``_target_``, is not YAML, or names what is not there.
        """
        try:
            data = read_yaml(serialized)
        except ValueError as err:
            raise ConfigError(f"This is not YAML: {err}") from err
        if not isinstance(data, dict) or TARGET not in data:
            raise ConfigError(
                f"This YAML describes no task: it has no {TARGET} at the top. "
                f"Add one that names the function, such as {TARGET}: my_package.train"
            )
        return from_mapping(data)
