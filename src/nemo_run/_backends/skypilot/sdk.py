"""SkyPilot's SDK: how it is found, what it raises, and what it prints."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TextIO

from nemo_run._extras import require
from nemo_run._secrets.masking import masked_text
from nemo_run.exceptions import (
    AuthenticationError,
    BackendError,
    BackendUnavailableError,
    JobNotFoundError,
)

BACKEND = "skypilot"


def sdk() -> Any:
    """Return the package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    package = require("sky", extra="skypilot", needed_by="SkyPilot")
    session = getattr(sys.modules.get("sky.server.rest"), "_session", None)
    if session is not None:
        from nemo_run._transport.bounded import bound

        # Its server answers when what was asked for is done: a launch takes minutes.
        bound(session, waits=True)
    return package


_asked: ContextVar[bool] = ContextVar("_asked", default=False)
"""Whether SkyPilot is at work for us here, so that what it says is not for the user."""


def _is_for_user(record: logging.LogRecord) -> bool:
    return not _asked.get()


class _Muted(io.TextIOBase):
    """Takes what muted threads print; others print as before."""

    def __init__(self, real: TextIO) -> None:
        self.real = real

    def write(self, text: str) -> int:
        if threading.get_ident() in _silent:
            return len(text)
        return self.real.write(text)

    def flush(self) -> None:
        self.real.flush()


_silent: list[int] = []
"""The threads that are muted, as often as they are."""
_changing = threading.Lock()


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Take what this thread prints; the first redirects the standard output, the last ends that."""
    thread = threading.get_ident()
    with _changing:
        if not isinstance(sys.stdout, _Muted):
            sys.stdout = _Muted(sys.stdout)
        _silent.append(thread)
    try:
        yield
    finally:
        with _changing:
            _silent.remove(thread)
            # A caller that has redirected it meanwhile puts it back itself.
            if not _silent and isinstance(sys.stdout, _Muted):
                sys.stdout = sys.stdout.real


@contextlib.contextmanager
def asking(operation: str) -> Iterator[None]:
    """Turn what the SDK raises into errors of ours, and keep what it logs to itself."""
    errors = sdk().exceptions
    # A client that is imported again makes new handlers.
    for handler in logging.getLogger("sky").handlers:
        handler.addFilter(_is_for_user)
    passing: tuple[type[Exception], ...] = (
        *_present(errors, *_PASSING),
        ConnectionError,
        TimeoutError,
    )
    others: tuple[type[Exception], ...] = (*_all_of(errors), RuntimeError, ValueError, OSError)
    token = _asked.set(True)
    try:
        yield
    except _present(errors, *_NOT_THERE) as err:
        raise JobNotFoundError(str(err), backend=BACKEND, operation=operation) from err
    except _present(errors, "ApiServerAuthenticationError", "PermissionDeniedError") as err:
        raise _forbidden(operation, err) from err
    except passing as err:
        raise _unavailable(operation, err) from err
    except Exception as err:
        if _refuses(err):
            raise _forbidden(operation, err) from err
        if _library(err) in _NETWORK or is_about_server(err) or is_unreadable(err):
            raise _unavailable(operation, err) from err
        # It also raises plain exceptions, for example when logs cannot be packed.
        if type(err) is not Exception and not isinstance(err, others):
            raise
        said = _without_password(err)
        raise BackendError(
            f"SkyPilot could not {operation}: {said}",
            backend=BACKEND,
            operation=operation,
            detail=said,
        ) from err
    finally:
        _asked.reset(token)


_NOT_THERE = ("ClusterDoesNotExist", "ClusterNotUpError", "JobNotFoundError")
"""There is nothing to ask about the job, now."""

_PASSING = (
    "ApiServerConnectionError",
    "ConcurrentWorkerExhaustedError",
    "RequestInterruptedError",
    "ServerTemporarilyUnavailableError",
    "SkyletUnavailableError",
)
"""Trouble that says nothing about the job."""


def is_about_server(err: BaseException | None) -> bool:
    """Tell whether the SDK could not start an API server of this machine, or wait for it.

    It tries to where one is that takes long to answer.
    """
    return type(err) is RuntimeError and "SkyPilot API server" in str(err)


def is_unreadable(err: BaseException | None) -> bool:
    """Tell whether the SDK, or we, could not make sense of an answer that came."""
    return isinstance(err, _ODD) or (err is not None and _library(err) in _PARSERS)


_NETWORK = frozenset({"requests", "urllib3", "httpx", "httpcore", "aiohttp"})
_PARSERS = frozenset({"pydantic", "pydantic_core", "json"})
_ODD = (AttributeError, KeyError, IndexError, TypeError, RecursionError)


def _library(err: BaseException) -> str:
    return type(err).__module__.partition(".")[0]


def _refuses(err: Exception) -> bool:
    return getattr(getattr(err, "response", None), "status_code", None) in (401, 403)


def _forbidden(operation: str, err: Exception) -> AuthenticationError:
    return AuthenticationError(
        f"The SkyPilot API server does not let us {operation}: {_without_password(err)} "
        "Try: sky api login",
        backend=BACKEND,
        operation=operation,
    )


def _unavailable(operation: str, err: Exception) -> BackendUnavailableError:
    said = _without_password(err)
    what = (
        f"answers what its client cannot read: {type(err).__name__}" if is_unreadable(err) else ""
    )
    return BackendUnavailableError(
        f"The SkyPilot API server {what or 'does not answer'}: {said}",
        backend=BACKEND,
        operation=operation,
    )


def _without_password(err: Exception) -> str:
    """Return what an error says; it may name the server by a URL that has a password in it.

    The error is changed, too: tracebacks show it as the cause of ours.
    """
    err.args = tuple(masked_text(item) for item in err.args)
    return masked_text(str(err))


def value_of(record: Any, name: str) -> Any:
    """Read a record, which is a model in new versions and a dict in old ones."""
    return record.get(name) if isinstance(record, dict) else getattr(record, name, None)


def _present(errors: Any, *names: str) -> tuple[type[Exception], ...]:
    """Return those of SkyPilot's exceptions that this version has."""
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))


def _all_of(errors: Any) -> tuple[type[Exception], ...]:
    """Return all of SkyPilot's own exceptions, which have no common base."""
    kinds = (kind for kind in vars(errors).values() if isinstance(kind, type))
    return tuple(
        kind for kind in kinds if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    )
