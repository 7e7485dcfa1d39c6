"""Lines that programs log themselves, around experiments with a log level."""

from __future__ import annotations

import pytest
from tests.clients.users import User


def lines(user: User, how: str, level: str) -> list[str]:
    done = user.runs("levels.py", how, level)
    return (done.stdout + done.stderr).splitlines()


def times(said: list[str], words: str) -> int:
    return len([line for line in said if words in line])


class TestUnconfigured:
    def test_lines_of_the_program_are_visible_at_the_level(self, user: User) -> None:
        said = lines(user, "unconfigured", "INFO")
        assert times(said, "inside the experiment") == 1
        assert times(said, "a warning of ours") == 1
        assert times(said, "chatter") == 0

    def test_debug_shows_more(self, user: User) -> None:
        said = lines(user, "unconfigured", "DEBUG")
        assert times(said, "chatter") == 1
        assert times(said, "inside the experiment") == 1

    def test_warnings_only_shows_less(self, user: User) -> None:
        said = lines(user, "unconfigured", "WARN")
        assert times(said, "inside the experiment") == 0
        assert times(said, "a warning of ours") == 1


class TestConfigured:
    """Who has configured logging keeps what they chose."""

    def test_the_level_of_the_program_holds(self, user: User) -> None:
        said = lines(user, "basic", "INFO")
        assert times(said, "inside the experiment") == 0
        assert times(said, "a warning of ours") == 1
        assert "MINE WARNING a warning of ours" in said

    def test_the_format_of_the_program_holds(self, user: User) -> None:
        said = lines(user, "verbose", "INFO")
        for words in ("DEBUG chatter", "INFO inside the experiment", "INFO after the experiment"):
            assert f"MINE {words}" in said
            assert times(said, words.split(" ", 1)[1]) == 1

    @pytest.mark.parametrize("words", ["inside the experiment", "after the experiment"])
    def test_a_handler_of_one_logger_is_kept(self, user: User, words: str) -> None:
        said = lines(user, "handler", "INFO")
        assert times(said, words) == 1
        assert f"OWN {words}" in said
