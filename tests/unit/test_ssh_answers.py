"""What OpenSSH says, and what it means."""

from __future__ import annotations

import shlex

import pytest

from nemo_run._transport.ssh import openssh
from nemo_run._transport.ssh.openssh import Destination, Outcome, Route
from nemo_run.exceptions import AuthenticationError, BackendUnavailableError

ROUTE = Route(
    Destination("login", "me", 2222, "/keys/id"),
    "/usr/bin/ssh",
    {"hostname": "10.0.0.1", "port": "2222", "userknownhostsfile": "/k/known_hosts /k/known2"},
)

ALIVE = """\
debug2: mux_client_hello_exchange: master version 4
debug3: mux_client_request_session: entering
debug3: mux_client_request_alive: entering
debug3: mux_client_request_alive: done pid = 4263
"""
SENT = ALIVE + "debug3: mux_client_request_session: session request sent\n"
OPENED = SENT + "debug1: mux_client_request_session: master session id: 2\n"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("", Outcome.NOT_STARTED),
        ("Control socket connect(/x): Connection refused\n", Outcome.NOT_STARTED),
        (ALIVE, Outcome.NOT_STARTED),
        (SENT, Outcome.LOST),
        (
            SENT + "mux_client_request_session: session request failed: Session open refused\n",
            Outcome.REFUSED,
        ),
        (OPENED + "debug2: Control master terminated unexpectedly\n", Outcome.LOST),
        (OPENED + "debug2: Received exit status from master 255\n", Outcome.ITS_OWN),
    ],
)
def test_how_far_a_command_came(log: str, expected: Outcome) -> None:
    assert openssh.outcome(log) is expected


def test_the_connection_that_was_used_is_known() -> None:
    assert openssh.used_master(OPENED) == 4263
    assert openssh.used_master("") is None


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ("me@login: Permission denied (publickey).", AuthenticationError, "does not let us in"),
        ("Received disconnect: Too many authentication failures", AuthenticationError, "let us in"),
        ("Host key verification failed.", AuthenticationError, "ssh-keyscan -p 2222 10.0.0.1"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            AuthenticationError,
            "ssh-keygen -R '[10.0.0.1]:2222' -f /k/known_hosts",
        ),
        (
            "ssh: connect to host login port 22: Connection timed out",
            BackendUnavailableError,
            "cannot be reached",
        ),
        (
            "ssh: Could not resolve hostname login: Name or service not known",
            BackendUnavailableError,
            "Name or service not known",
        ),
        ("", BackendUnavailableError, "ssh said nothing"),
    ],
)
def test_why_there_is_no_connection(said: str, kind: type[Exception], words: str) -> None:
    error = openssh.connection_error(ROUTE, said)
    assert type(error) is kind
    assert words in str(error)
    assert "ssh -l me -p 2222" in str(error) or "ssh-key" in str(error)
    assert error.detail == said


@pytest.mark.parametrize(
    ("said", "brief"),
    [
        ("kex_exchange_identification: Connection closed by remote host", True),
        ("kex_exchange_identification: read: Connection reset by peer", True),
        ("ssh: connect to host x port 22: Connection refused", False),
        ("me@x: Permission denied (publickey).\nConnection closed by 10.0.0.1", False),
    ],
)
def test_only_what_may_pass_is_tried_again(said: str, brief: bool) -> None:
    assert openssh.is_brief(said) is brief


def test_words_that_come_several_times_are_kept() -> None:
    config = openssh.parse_config("host x\nidentityfile a\nidentityfile b\nControlPath none\n")
    assert config == {"host": "x", "identityfile": "a\nb", "controlpath": "none"}


class TestArguments:
    def test_they_name_what_the_user_named_and_nothing_else(self) -> None:
        assert Destination("login").argv() == ["--", "login"]
        assert Destination("login", "me", 22, "/id").argv() == [
            *["-l", "me", "-p", "22", "-i", "/id", "-o", "IdentitiesOnly=yes", "--", "login"]
        ]

    def test_settings_of_the_user_are_not_overruled(self) -> None:
        quiet = Route(ROUTE.destination, "ssh", {"connecttimeout": "3", "controlpersist": "yes"})
        assert not any(
            "ConnectTimeout" in arg for arg in quiet.master("/s", "/l", interactive=True)
        )
        assert not any(
            "ControlPersist" in arg for arg in quiet.master("/s", "/l", interactive=True)
        )
        assert "ConnectTimeout=20" in ROUTE.master("/s", "/l", interactive=True)

    @pytest.mark.parametrize(
        ("said", "expected"), [("none", None), ("/home/me/cm", "/home/me/cm"), ("~/%C", None)]
    )
    def test_a_socket_of_the_user_is_known(self, said: str, expected: str | None) -> None:
        assert Route(ROUTE.destination, "ssh", {"controlpath": said}).users_socket == expected
        assert ROUTE.users_socket is None

    def test_nobody_is_asked_where_nobody_is(self) -> None:
        assert "BatchMode=yes" in ROUTE.master("/s", "/l", interactive=False)
        assert "BatchMode=no" in ROUTE.master("/s", "/l", interactive=True)

    def test_other_programs_get_the_same_as_one_text(self) -> None:
        words = shlex.split(ROUTE.remote_shell("/a b"))
        assert words[0] == "/usr/bin/ssh"
        assert "/a b" in words
        assert "login" not in words

    def test_connections_differ_where_the_config_does(self) -> None:
        other = Route(ROUTE.destination, "ssh", {**ROUTE.config, "port": "23"})
        assert other.fingerprint != ROUTE.fingerprint
        assert Route(Destination("x"), "y", ROUTE.config).fingerprint == ROUTE.fingerprint
