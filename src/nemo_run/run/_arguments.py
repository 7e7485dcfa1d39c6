"""The arguments of a command, without the secrets among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nemo_run._credentials import MASK, mask, mask_environment, without_login

# Shorter ones, say "1" or "true", are found everywhere.
_SHORTEST_SECRET = 6
_WORD = re.compile(r"[A-Za-z0-9]+")
_ENDINGS = ("token", "secret", "password", "passwd", "passphrase", "credential", "credentials")
_KEYS = {"api", "access", "private", "secret", "auth"}


def masked_arguments(argv: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return ``argv`` with every value masked that is one of ``secrets`` or sounds like one.

    A value sounds secret by its name: ``--api-key VALUE``, ``HF_TOKEN=VALUE``.
    """
    known = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)
    masked: list[str] = []
    for arg in argv:
        name, equals, value = arg.partition("=")
        if equals and sounds_secret(name):
            arg = f"{name}={mask(value)}"
        elif masked and masked[-1].startswith("-") and _asks_for_secret(masked[-1]):
            arg = arg if arg.startswith("-") else mask(arg)
        for secret in known:
            arg = arg.replace(secret, MASK)
        masked.append(without_login(arg))
    return tuple(masked)


def masked_value(name: str, value: Any) -> Any:
    """Return an argument of a task as it may be shown: masked where its name sounds secret.

    What is in lists and dicts is masked by its own name too; other objects stay as they are.
    """
    if isinstance(value, str):
        return mask(value) if sounds_secret(name) else without_login(value)
    if isinstance(value, Mapping):
        if name == "env":
            return mask_environment(value)
        return {key: masked_value(f"{name}.{key}", item) for key, item in value.items()}
    if type(value) in (list, tuple):
        words = all(isinstance(item, str) for item in value) and not sounds_secret(name)
        masked = masked_arguments(value) if words else (masked_value(name, i) for i in value)
        return type(value)(masked)
    return value


def secret_values(*environments: Mapping[str, str]) -> set[str]:
    """Return the values of variables that sound secret."""
    return {
        value
        for environment in environments
        for name, value in environment.items()
        if isinstance(value, str) and sounds_secret(name)
    }


def sounds_secret(name: str) -> bool:
    """Tell whether something of that name should not be shown; ``tokenizer`` may be."""
    words = [word.lower() for word in _WORD.findall(name)]
    if any(word.endswith(_ENDINGS) or word == "apikey" for word in words):
        return True
    return any(first in _KEYS and second == "key" for first, second in pairwise(words))


def _asks_for_secret(option: str) -> bool:
    return "=" not in option and sounds_secret(option)
