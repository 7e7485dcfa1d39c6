"""Names that tools import, some of them from modules that are not theirs to know."""

from __future__ import annotations

from tests.clients.users import User


def test_every_name_is_there(user: User) -> None:
    user.runs("names.py")
    found = user.found("names")
    assert {name: error for name, error in found.items() if error} == {}
