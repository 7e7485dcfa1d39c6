"""What the user may have meant by a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_MAX_NAMED = 20


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest of the known words, or else all of them."""
    # Most commands never need it, and all of them should start at once.
    import difflib

    names = sorted(set(known))
    close = difflib.get_close_matches(word, names, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    more = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"Known: {', '.join(names[:_MAX_NAMED])}{more}." if names else "There are none."


def meant(word: str, here: Iterable[str], elsewhere: Mapping[str, str]) -> str:
    """Return the same for a command; ``elsewhere`` has those of other levels, written out."""
    import difflib

    names = list(here)
    close = difflib.get_close_matches(word, [*names, *(n for n in elsewhere if n not in names)], 1)
    if close and close[0] not in names:
        return f"Did you mean `{elsewhere[close[0]]}`?"
    return did_you_mean(word, names)
