"""What secrets look like, whatever they are called: tokens of services, keys, logins in URLs."""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

from nemo_run._secrets.names import sounds_secret

_TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    + "|".join(
        (
            r"gh[pousr]_[A-Za-z0-9]{20,}",
            r"github_pat_\w{20,}",
            r"gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,}",
            r"hf_[A-Za-z0-9]{20,}",
            r"api_org_[A-Za-z0-9]{20,}",
            r"sk-[\w-]{20,}",
            r"nvapi-[\w-]{20,}",
            r"gsk_[A-Za-z0-9]{20,}",
            r"r8_[A-Za-z0-9]{20,}",
            r"(?:AKIA|ASIA)[A-Z0-9]{16}",
            r"AIza[\w-]{30,}",
            r"ya29\.[\w-]{20,}",
            r"xox[abeoprs]-[\w-]{10,}",
            r"[spr]k_(?:live|test)_[A-Za-z0-9]{16,}",
            r"pypi-[\w-]{40,}",
            r"npm_[A-Za-z0-9]{20,}",
            r"dckr_pat_[\w-]{20,}",
            r"do[opr]_v1_[a-f0-9]{32,}",
            r"dapi[a-f0-9]{32}",
            r"hvs\.[\w-]{20,}",
            r"tskey-[\w-]{20,}",
            r"SG\.[\w-]{16,}\.[\w-]{16,}",
            r"sntrys_[\w-]{20,}",
            r"wandb_v\d_[\w-]{20,}",
            r"\d{8,10}:AA[\w-]{30,}",
            r"eyJ[\w-]{10,}\.eyJ[\w-]{6,}\.[\w-]{10,}",
        )
    )
    + r")"
)
_IN_ITS_PLACE = (
    # A key in PEM, to its end if that is there.
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.S), ""),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{12,}"), r"\1 "),
    (re.compile(r"(hooks\.slack\.com/(?:services|workflows)/)[\w/]+"), r"\1"),
    (re.compile(r"(?i)\b(accountkey|sharedaccesskey)=[\w+/=]{16,}"), r"\1="),
    (_TOKENS, ""),
)
_URL = re.compile(r"(?<=://)[^\s'\"<>]+")
_PARAMETER = re.compile(r"([?&;])([\w.~-]+)=([^&\s;#'\"]+)")
_SIGNATURES = frozenset({"sig", "signature", "x-amz-signature", "x-goog-signature", "key", "code"})


def without_secrets(text: str, mask: str) -> str:
    """Return a text with ``mask`` in place of what has the shape of a secret in it.

    That is the login of a URL, its parameters that sound secret, and tokens of known services.
    """
    text = _URL.sub(lambda found: _without_login(found[0], mask), text)
    for pattern, kept in _IN_ITS_PLACE:
        text = pattern.sub(kept + mask, text)
    if "://" not in text:
        return text
    return _PARAMETER.sub(lambda found: _parameter(found, mask), text)


def _without_login(address: str, mask: str) -> str:
    end = login_length(address)
    return f"{mask}@{address[end:]}" if end else address


def login_length(address: str) -> int:
    """Return how much of an address, without its scheme, is who logs in; 0 for nothing.

    A password may have any letter in it, ``@`` and ``/`` too where it was not quoted. Where it is
    not clear where it ends, it ends late.
    """
    ends = [at.end() for at in re.finditer(r"(?<!/)@", address)]
    authority = re.split("[/?#]", address, maxsplit=1)[0]
    user, colon, rest = authority.partition("@")[0].partition(":")
    if not ends or user.startswith("["):
        return 0
    if "@" in authority:
        return ends[-1] if colon else authority.rfind("@") + 1
    # Without an @ before the path it is a host with its port, or a password with a slash in it.
    return ends[-1] if colon and not re.fullmatch(r"\d{0,5}", rest) else 0


def _parameter(found: re.Match[str], mask: str) -> str:
    separator, name, _ = found.groups()
    if name.lower() in _SIGNATURES or sounds_secret(name):
        return f"{separator}{name}={mask}"
    return found[0]


_RANDOM = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_PIECE = re.compile(r"[A-Za-z0-9]{20,}")


def looks_random(value: str) -> bool:
    """Tell whether a text is most likely a generated password or key.

    Neither a hash, since those are in hexadecimal digits and seldom secret, nor words run together.
    """
    if not _RANDOM.fullmatch(value):
        return False
    longest = max(_PIECE.findall(value), key=len, default="")
    kinds = [_kind(char) for char in longest]
    if not longest or kinds.count("digit") < 2 or len(set(kinds)) < 3:
        return False
    changes = sum(first != second for first, second in pairwise(kinds)) / len(kinds)
    return changes > 0.4 and _entropy_bits(longest) > 3.5


def _kind(char: str) -> str:
    return "digit" if char.isdigit() else "upper" if char.isupper() else "lower"


def _entropy_bits(text: str) -> float:
    """Return how many bits a letter of the text carries, by how often each occurs in it."""
    shares = [count / len(text) for count in Counter(text).values()]
    return -sum(share * math.log2(share) for share in shares)


_SWITCHES = frozenset(
    {"true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default"}
)
_PLACE = re.compile(
    r"(?:~|\.{1,2}|\$\{?\w+\}?)/.*|/(?:app|cache|code|data|dev|etc|home|lustre|mnt|nemo_run|opt|proc"
    r"|root|run|scratch|shared|srv|sys|tmp|usr|users|var|work|workspace)(?:/.*)?",
    re.I | re.S,
)


def is_harmless(value: str) -> bool:
    """Tell whether a value is of a kind that no secret is: a path, a switch."""
    return value.lower() in _SWITCHES or len(value) < 2 or _PLACE.fullmatch(value) is not None
