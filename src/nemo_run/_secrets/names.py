"""Names of variables and arguments that hold secrets.

A name is taken apart into words: ``HF_TOKEN`` and ``--hf-token`` and ``hfToken`` are the same. Some
words are proof, such as ``password``. Others are a hint, such as the ``key`` of ``WANDB_KEY``: then
the value may say that it is none, say by being a path.

Users name more of them, and what is none, in the environment variable ``NEMO_RUN_SECRET_NAMES``.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import os
import re
from collections.abc import Sequence

VARIABLE = "NEMO_RUN_SECRET_NAMES"


class Sign(enum.Enum):
    """What a name says about its value."""

    NONE = "none"
    HINT = "hint"
    """A secret, unless the value is of another kind: a path, a number, a switch."""
    PROOF = "proof"


def sign_of(name: str) -> Sign:
    """Return what a name says about its value."""
    return _sign_of(name, os.environ.get(VARIABLE, ""))


def sounds_secret(name: str) -> bool:
    """Tell whether a variable or argument of that name likely holds a secret."""
    return sign_of(name) is not Sign.NONE


# Environments are masked again and again, and have the same names each time.
@functools.lru_cache(maxsize=4096)
def _sign_of(name: str, listed: str) -> Sign:
    said = _listed(name, listed)
    if said is not None:
        return Sign.PROOF if said else Sign.NONE
    last_part = re.split(r"[.\]/]", name.rstrip("]"))[-1]
    words = _words(last_part) or _words(name)
    while len(words) > 1 and (words[-1] in _QUALIFIERS or words[-1].isdigit()):
        words = words[:-1]
    if not words:
        return Sign.NONE
    # Variables are written in capitals; arguments of tasks are about data more often.
    return _sign_of_words(words, is_variable=last_part.isupper())


def _listed(name: str, listed: str) -> bool | None:
    """Return what the user says of a name; the last of several patterns counts."""
    said = None
    for pattern in filter(None, re.split(r"[,\s]+", listed)):
        if fnmatch.fnmatchcase(name.upper(), pattern.removeprefix("!").upper()):
            said = not pattern.startswith("!")
    return said


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_QUALIFIERS = _set(
    "prod production dev staging stage test ci old new backup ro rw base b64 base64 value"
)
"""What follows the word that counts: ``API_TOKEN_PROD``, ``SECRET_KEY_BASE``."""

_ABOUT = _set("""
    file files path paths dir directory folder url uri endpoint host port name names id ids type
    kind length len limit count size ttl expiry expires timeout enabled required mode method header
    headers format version ref store provider manager helper sock socket user username env policy
    backend class config
    """)
"""What makes a name one of something else: ``TOKEN_URL``, ``PASSWORD_FILE``."""

_PROOFS = _set("""
    secret secrets password passwords passwd passphrase apikey apikeys authkey jwt bearer
    authorization cookie sshpass pgpass
    """)
_PROOF_ENDINGS = ("token", "secret", "password", "passwd", "passphrase", "apikey", "authkey")
_PROOF_PAIRS = frozenset(
    {
        *((first, "key") for first in ("api", "access", "private", "secret", "auth", "client")),
        *((first, "keys") for first in ("api", "access", "private", "secret")),
        *((first, "tokens") for first in ("api", "access", "auth", "refresh", "bearer")),
        ("access", "id"),
        ("connection", "string"),
        ("conn", "string"),
        ("auth", "config"),
    }
)

_TEXT_TOKENS = _set("""
    eos bos pad unk mask sep cls stop start end special image video audio text prompt think num max
    min per next prev last first sub new extra special boundary separator eot eod
    """)
"""``EOS_TOKEN`` is a piece of text."""

_DATA_KEYS = _set("""
    public pub primary foreign sort sorting partition cache hash row col column group join index
    lookup dict map batch feature label image video audio text input output data dataset query
    attention value metric monitor object routing hot modifier state param sample prompt answer
    target source reward loss rng prng field by name
    """)
"""``SORT_KEY`` names a column."""

_OTHER_PASSES = _set(
    "forward backward first second third single multi two one num by low high band compile"
)
_ACCOUNTS = _set("""
    db database user smtp mysql pg postgres redis mongo mail email ftp sudo root admin proxy http
    https ldap login ssh docker registry jenkins rabbitmq
    """)
_CODE_HOSTS = _set("github gitlab azure devops ext gh gl bitbucket git")


def _sign_of_words(words: Sequence[str], *, is_variable: bool) -> Sign:
    *before, last = words
    previous = before[-1] if before else ""
    if (previous, last) in _PROOF_PAIRS or words[-3:] == ["access", "key", "id"]:
        return Sign.PROOF
    if last in _ABOUT:
        return Sign.NONE
    if last == "token":
        return Sign.NONE if previous in _TEXT_TOKENS else Sign.PROOF
    if last in _PROOFS or last.endswith(_PROOF_ENDINGS):
        return Sign.PROOF
    # Not for "token", which has many other companions.
    if any(word in ("secret", "password", "passwd", "passphrase") for word in before):
        return Sign.PROOF
    if last in ("credential", "credentials", "creds", "cred"):
        return Sign.HINT
    return _hint(previous, last, is_variable=is_variable)


def _hint(previous: str, last: str, *, is_variable: bool) -> Sign:
    if not previous:
        return Sign.HINT if is_variable and last in ("auth", "tokens") else Sign.NONE
    found = {
        "key": is_variable and previous not in _DATA_KEYS,
        "pass": previous not in _OTHER_PASSES if is_variable else previous in _ACCOUNTS,
        "pwd": is_variable or previous in _ACCOUNTS,
        "pw": is_variable or previous in _ACCOUNTS,
        "pat": is_variable or previous in _CODE_HOSTS,
        "auth": is_variable,
    }
    return Sign.HINT if found.get(last) else Sign.NONE
