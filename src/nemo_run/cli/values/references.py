"""References in words: ``${net.width}`` to another word, ``${oc.env:HOME}`` to elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nemo_run.cli.values.config_files import as_config, plain, readable_errors
from nemo_run.cli.values.errors import ArgumentValueError
from nemo_run.cli.values.grammar import Operation, Override
from nemo_run.cli.values.literals import unquote
from nemo_run.exceptions import ConfigError

_MANDATORY = "???"
_HERE = "__value__"


def resolved(overrides: Sequence[Override], file: Mapping[str, Any]) -> list[Override]:
    """Return words with what they refer to in the place of references.

    A reference is to another word, to an entry of the file, or to one of OmegaConf's resolvers;
    ``\\${`` is a dollar and a bracket.

    Raises:
        ArgumentValueError: one leads nowhere, or a value is ``???`` and so still to be given.
    """
    if not any("${" in word.value or word.value == _MANDATORY for word in overrides):
        return list(overrides)
    known = _known(overrides, file)
    return [_resolved(word, known) for word in overrides]


def _known(overrides: Sequence[Override], file: Mapping[str, Any]) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    known = as_config({str(key): value for key, value in file.items()})
    for word in overrides:
        # What no reference could name is left out.
        if word.operation is Operation.ASSIGN and "[" not in word.key:
            with contextlib.suppress(OmegaConfBaseException):
                OmegaConf.update(known, word.key, unquote(word.value))
    return known


def _resolved(word: Override, known: Any) -> Override:
    if word.value.strip() == _MANDATORY:
        raise ArgumentValueError(f"Missing mandatory value: {word.key}", str(word))
    if "${" not in word.value:
        return word
    try:
        with readable_errors():
            known[_HERE] = word.value
            found = plain(known[_HERE])
    except ConfigError as err:
        why = str(err).rstrip(".")
        raise ArgumentValueError(
            f"{why}. Write \\${{ for a text with ${{ in it", str(word)
        ) from err
    return replace(word, value=str(found))
