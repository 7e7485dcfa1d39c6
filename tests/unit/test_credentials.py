"""Secrets: where they come from, where they are kept, and where they are never seen."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nemo_run._credentials import (
    CredentialStore,
    is_reference,
    mask,
    redact,
    resolve,
    secret,
    secret_fields,
)
from nemo_run.exceptions import ConfigError, RecordError

HIDDEN = "hunter2"


@dataclass(kw_only=True)
class Login:
    user: str
    password: str | None = secret(default=None)


@dataclass(kw_only=True)
class Cluster:
    server: str
    client_secret: str = secret()
    tokens: dict[str, str] = secret(default_factory=dict)  # noqa: RUF009 - it makes a field
    login: Login | None = None
    others: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    internal: int = field(default=0, repr=False)


# Fields


def test_a_secret_field_is_required_unless_it_has_a_default() -> None:
    with pytest.raises(TypeError, match="client_secret"):
        Cluster(server="x")  # mypy takes secret() for a default
    assert Login(user="me").password is None


def test_a_secret_field_is_known_on_class_and_instance() -> None:
    assert secret_fields(Cluster) == {"client_secret", "tokens"}
    assert secret_fields(Cluster(server="x", client_secret="y")) == {"client_secret", "tokens"}


def test_a_secret_field_keeps_other_metadata() -> None:
    declared = secret(metadata={"help": "from the web page"}, default="")
    assert dict(declared.metadata) == {"help": "from the web page", "secret": True}


def test_a_secret_is_in_no_repr() -> None:
    login = Login(user="me", password=HIDDEN)
    cluster = Cluster(server="x", client_secret=HIDDEN, login=login, others=[login])
    for text in (repr(cluster), str(cluster), f"{cluster}"):
        assert HIDDEN not in text


# References


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("env:NAME", True),
        ("file:~/x", True),
        ("env:", True),
        ("hunter2", False),
        ("ENV:NAME", False),
        (" env:NAME", False),
        ("https://x", False),
        ("", False),
        (None, False),
        (3, False),
    ],
)
def test_a_reference_says_where_a_secret_is(value: object, expected: bool) -> None:
    assert is_reference(value) is expected


@pytest.mark.parametrize("value", ["hunter2", "", " x ", "a:b", "line\n"])
def test_a_literal_resolves_to_itself(value: str) -> None:
    assert resolve(value) == value


def test_a_variable_is_read_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNAI_SECRET", " a b\n")
    assert resolve("env:RUNAI_SECRET") == " a b\n"
    monkeypatch.setenv("RUNAI_SECRET", "later")
    assert resolve("env:RUNAI_SECRET") == "later"


def test_an_environment_can_be_given() -> None:
    assert resolve("env:A", {"A": "b"}) == "b"


@pytest.mark.parametrize(
    ("environ", "why"),
    [({}, "'A' is not set"), ({"A": ""}, "'A' is empty")],
    ids=["unset", "empty"],
)
def test_a_variable_without_a_value_is_an_error_that_names_it(
    environ: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"'env:A' .*{why}.*Set it"):
        resolve("env:A", environ)


def test_a_reference_to_no_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'env:' could not be read"):
        resolve("env:")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"abc\n\n", "abc\n"),
        (b" a b ", " a b "),
        (b"a\nb\n", "a\nb"),
        ("naïve".encode(), "naïve"),
    ],
)
def test_a_file_is_read_without_its_last_line_break(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "a b"
    path.write_bytes(content)
    path.chmod(0o600)
    assert resolve(f"file:{path}") == expected


def test_a_file_may_be_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".runai").write_text(HIDDEN)
    assert resolve("file:~/.runai") == HIDDEN


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("file:/no/such", "No such file"),
        ("file:/", "Is a directory"),
        ("file:", "directory"),
        ("file:~nobody-of-that-name/x", "home directory"),
        ("file:/a\0b", "null"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_that_says_why(reference: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"could not be read: .*{why}") as caught:
        resolve(reference)
    assert repr(reference) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="the file is empty"):
        resolve(f"file:{path}")


def test_a_file_that_is_not_text_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"hunter2\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text") as caught:
        resolve(f"file:{path}")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_everybody_can_read_is_used_with_a_warning(
    tmp_path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    path.write_text(HIDDEN)
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        assert resolve(f"file:{path}") == HIDDEN
    assert (f"chmod 600 {path}" in caplog.text) is warns
    assert HIDDEN not in caplog.text


# Redacting


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("hunter2", "***"),
        ("env:A", "env:A"),
        ("file:~/a", "file:~/a"),
        ("", ""),
        (None, None),
        (1234, "***"),
        (["a", "env:A"], ["***", "env:A"]),
        (("a",), ["***"]),
        ({"k": "a", "l": "env:A"}, {"k": "***", "l": "env:A"}),
    ],
)
def test_only_references_are_shown(value: object, shown: object) -> None:
    assert mask(value) == shown


def test_redacting_gives_plain_data_without_secrets_at_any_depth() -> None:
    login = Login(user="me", password=HIDDEN)
    cluster = Cluster(
        server="x",
        client_secret="env:S",
        tokens={"a": HIDDEN},
        login=login,
        others=[login, (login, 1)],
        options={"deep": {"login": Login(user="you")}, "n": 1.5},
    )
    me = {"user": "me", "password": "***"}
    data = redact(cluster)
    assert data == {
        "server": "x",
        "client_secret": "env:S",
        "tokens": {"a": "***"},
        "login": me,
        "others": [me, [me, 1]],
        "options": {"deep": {"login": {"user": "you", "password": None}}, "n": 1.5},
        "internal": 0,
    }
    assert HIDDEN not in json.dumps(data)
    assert login.password == HIDDEN


def test_what_is_no_dataclass_is_left_as_it_is() -> None:
    assert redact("text") == "text"
    assert redact(Login) is Login
    assert redact(None) is None


# The store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> CredentialStore:
    return CredentialStore(home)


def test_what_was_put_is_found_by_server_and_client(store: CredentialStore, home: Path) -> None:
    store.put("https://a", "me", "1")
    store.put("https://a", "you", "2")
    store.put("https://b", "me", "3")
    other = CredentialStore(home)
    assert other.find("https://a", "me") == "1"
    assert other.find("https://a", "you") == "2"
    assert other.find("https://b", "me") == "3"
    assert other.find("https://b", "you") is None


def test_a_server_is_the_same_with_a_slash_at_its_end(store: CredentialStore) -> None:
    store.put("https://a/api/", "me", "1")
    assert store.find("https://a/api", "me") == "1"


def test_a_later_secret_takes_the_place_of_an_earlier_one(store: CredentialStore) -> None:
    store.put("https://a", "me", "1")
    store.put("https://a", "me", "2")
    assert store.find("https://a", "me") == "2"
    assert '"1"' not in store.path.read_text()


def test_a_deleted_secret_is_gone_from_the_file(store: CredentialStore) -> None:
    store.put("https://a", "me", HIDDEN)
    store.put("https://b", "me", "other")
    store.delete("https://a", "me")
    store.delete("https://a", "me")
    assert store.find("https://a", "me") is None
    assert store.find("https://b", "me") == "other"
    assert HIDDEN not in store.path.read_text()


def test_asking_an_empty_home_creates_nothing(store: CredentialStore, home: Path) -> None:
    assert store.find("https://a", "me") is None
    store.delete("https://a", "me")
    assert not home.exists()


@pytest.mark.parametrize("value", ["naïve 🙂", "a\nb", '"', "\\", " ", "x" * 10_000])
def test_any_secret_can_be_kept(store: CredentialStore, value: str) -> None:
    store.put("https://a", "me", value)
    assert store.find("https://a", "me") == value


def test_an_empty_secret_is_refused(store: CredentialStore, home: Path) -> None:
    with pytest.raises(ConfigError, match=r"client 'me' for https://a is empty.*env:NAME"):
        store.put("https://a", "me", "")
    assert not home.exists()


def test_without_a_home_the_one_of_the_moment_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CredentialStore()
    monkeypatch.setenv("NEMORUN_HOME", str(home))
    store.put("https://a", "me", "1")
    assert store.path == home / "credentials.json"
    assert store.path.exists()


def test_secrets_are_for_their_owner_only_and_in_one_file(
    store: CredentialStore, home: Path
) -> None:
    before = os.umask(0)
    try:
        store.put("https://a", "me", HIDDEN)
        store.put("https://a", "you", HIDDEN)
    finally:
        os.umask(before)
    assert home.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in home.iterdir())
    assert [p.name for p in home.iterdir() if HIDDEN in p.read_text()] == ["credentials.json"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o777])
def test_a_file_others_can_get_at_is_not_used(store: CredentialStore, mode: int) -> None:
    store.put("https://a", "me", HIDDEN)
    store.path.chmod(mode)
    before = store.path.read_bytes()
    for use in (
        lambda: store.find("https://a", "me"),
        lambda: store.put("https://a", "me", "new"),
        lambda: store.delete("https://a", "me"),
    ):
        with pytest.raises(RecordError, match=f"mode {mode:04o}.*chmod 600 {store.path}") as caught:
            use()
        assert caught.value.path == store.path
        assert HIDDEN not in str(caught.value)
    assert store.path.read_bytes() == before
    store.path.chmod(0o600)
    assert store.find("https://a", "me") == HIDDEN


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", '"hunter2', '{"format": 1}', '{"format": 1, "credentials": ["hunter2"]}'],
)
def test_a_damaged_file_is_an_error_that_does_not_show_it(
    store: CredentialStore, content: str
) -> None:
    store.put("https://a", "me", "x")
    store.path.write_text(content)
    for use in (
        lambda: store.find("https://a", "me"),
        lambda: store.put("https://a", "me", "y"),
    ):
        with pytest.raises(RecordError, match=r"damaged.*Delete it") as caught:
            use()
        assert caught.value.__suppress_context__
        assert str(store.path) in str(caught.value)
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert store.path.read_text() == content


def test_a_file_of_a_later_release_is_not_read_and_not_overwritten(store: CredentialStore) -> None:
    store.put("https://a", "me", "x")
    store.path.write_text('{"format": 2, "vault": {}}')
    with pytest.raises(RecordError, match="Upgrade nemo_run"):
        store.put("https://a", "me", "y")
    assert store.path.read_text() == '{"format": 2, "vault": {}}'


def test_a_directory_in_its_place_is_an_error_that_names_it(store: CredentialStore) -> None:
    store.path.mkdir(parents=True, mode=0o700)
    with pytest.raises(RecordError, match="Is a directory"):
        store.find("https://a", "me")


def test_putting_what_is_kept_does_not_touch_the_file(store: CredentialStore) -> None:
    store.put("https://a", "me", "1")
    before = store.path.stat()
    store.put("https://a", "me", "1")
    assert store.path.stat().st_ino == before.st_ino


WRITER = """
import sys
from pathlib import Path
from nemo_run._credentials import CredentialStore
store = CredentialStore(Path(sys.argv[1]))
for number in range(25):
    store.put(f"https://{number}", sys.argv[2], f"{sys.argv[2]}-{number}")
    assert store.find("https://0", sys.argv[2]) == f"{sys.argv[2]}-0"
"""


def test_four_processes_at_once_lose_no_secret(store: CredentialStore, home: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(home), name]) for name in "abcd"]
    assert [writer.wait() for writer in writers] == [0] * 4
    missing = [
        (name, number)
        for name in "abcd"
        for number in range(25)
        if store.find(f"https://{number}", name) != f"{name}-{number}"
    ]
    assert missing == []
    assert sorted(path.name for path in home.iterdir()) == ["credentials.json", "credentials.lock"]


def test_a_writer_that_was_killed_does_not_block_the_next(
    store: CredentialStore, home: Path
) -> None:
    store.put("https://a", "me", "1")
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(home / "credentials.lock")], stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
        holder.wait()
        store.put("https://a", "me", "2")
    assert store.find("https://a", "me") == "2"
