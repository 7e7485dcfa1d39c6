"""Configs as compact text, the form experiments are stored in."""

from __future__ import annotations

from typing import Any

from nemo_run._config.fiddle import PyrefPolicy
from nemo_run.core.serialization._decode import decode
from nemo_run.core.serialization._encode import encode
from nemo_run.core.serialization._envelope import seal, unseal
from nemo_run.core.serialization._references import AllowList

__all__ = ["AllowList", "ZlibJSONSerializer"]


class ZlibJSONSerializer:
    """Writes and reads configs as text, also that of NeMo Run 0.12.

    Reading imports what the text names, so read only what you trust, or pass a policy such as
    ``AllowList("my_package")``; `peek` looks without importing.
    """

    def serialize(self, cfg: Any, pyref_policy: PyrefPolicy | None = None) -> str:
        """Return ``cfg`` as text.

        Raises:
            UnserializableError: something inside cannot travel; says where and what to do.
            PyrefPolicyError: the policy refuses something that ``cfg`` names.
        """
        return seal(encode(cfg, pyref_policy))

    def deserialize(self, serialized: str, pyref_policy: PyrefPolicy | None = None) -> Any:
        """Return the config in ``serialized``.

        Raises:
            ConfigError: this is not such a text.
            PyrefPolicyError: the policy refuses something that the text names.
            ModuleNotFoundError, AttributeError: something it names is not there.
        """
        return decode(unseal(serialized), pyref_policy)
