"""What is shown in place of secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nemo_run._credentials import MASK, mask
from nemo_run._secrets.names import Sign, sign_of, sounds_secret
from nemo_run._secrets.shapes import is_harmless, looks_random, without_secrets

# Shorter ones, say "1" or "true", are found everywhere.
_SHORTEST_SECRET = 6


def is_secret(name: str, value: str) -> bool:
    """Tell whether all of a value is taken for a secret, by its name or its shape."""
    sign = sign_of(name)
    if sign is Sign.PROOF or (sign is Sign.HINT and not is_harmless(value)):
        return True
    return looks_random(value)


def masked(name: str, value: str) -> str:
    """Return a value as it may be shown: all of it masked, what is secret in it, or nothing."""
    if not isinstance(value, str):
        return value
    return str(mask(value)) if is_secret(name, value) else masked_text(value)


def masked_text(text: str) -> str:
    """Return a text with logins in URLs, and tokens that can be recognised, masked."""
    if not isinstance(text, str):
        return text
    shown = without_secrets(text, MASK)
    # The text itself: it may be of a class that says more, such as run.literal.
    return text if shown == text else shown


def mask_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` to be shown to people, see `masked`."""
    return {name: masked(name, value) for name, value in env.items()}


def holds_secret(name: str, value: str) -> bool:
    """Tell whether there is something in the value of a variable that would be masked."""
    return masked(name, value) != value


def secret_values(*environments: Mapping[str, str]) -> set[str]:
    """Return the values of variables that are secret."""
    return {
        value
        for environment in environments
        for name, value in environment.items()
        if isinstance(value, str) and is_secret(name, value)
    }


def masked_arguments(argv: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return ``argv`` with every value masked that is one of ``secrets`` or taken for one.

    By its name (``--api-key VALUE``, ``HF_TOKEN=VALUE``) or its shape.
    """
    known = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)
    shown: list[str] = []
    for arg in argv:
        after_option = bool(shown) and shown[-1].startswith("-") and "=" not in shown[-1]
        text = _masked_argument(arg, shown[-1] if after_option else "")
        for secret in known:
            text = text.replace(secret, MASK)
        shown.append(arg if text == arg else text)
    return tuple(shown)


def _masked_argument(arg: str, option: str) -> str:
    """Return an argument masked, given the option before it that it may be the value of."""
    name, equals, value = arg.partition("=")
    if equals and name and "://" not in name:
        return f"{name}={masked(name, value)}"
    return arg if option and arg.startswith("-") else masked(option, arg)


def masked_value(name: str, value: Any) -> Any:
    """Return an argument of a task as it may be shown, see `masked`.

    What is in lists and dicts is masked by its own name too; other objects stay as they are.
    """
    if isinstance(value, str):
        return masked(name, value)
    if isinstance(value, Mapping):
        if name == "env":
            return mask_environment(value)
        return {key: masked_value(f"{name}.{key}", item) for key, item in value.items()}
    if type(value) in (list, tuple):
        words = all(isinstance(item, str) for item in value) and not sounds_secret(name)
        shown = masked_arguments(value) if words else (masked_value(name, i) for i in value)
        return type(value)(shown)
    return value
