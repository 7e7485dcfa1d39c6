"""Everything nemo_run raises on purpose.

Messages have three parts: what could not be done, why, and what to do about it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run._jobs.shown_text import in_message

if TYPE_CHECKING:
    from torchx.specs import AppState

    from nemo_run._transport.ssh.result import Result


class NemoRunError(Exception):
    """Base of every error below: catch this to catch them all.

    What jobs and servers said may be part of a message, and shown on a terminal by any program.
    """

    def __str__(self) -> str:
        return in_message(super().__str__())


class ConfigError(NemoRunError, ValueError, AssertionError):
    """A setting is wrong. Found before anything was submitted.

    Also an ``AssertionError``, since scripts may have caught that for wrong settings.
    """


class SetValueError(ConfigError):
    """A value could not be assigned at the given path of a config."""


class UnserializableError(ConfigError):
    """A value cannot travel to where the task runs.

    Attributes:
        path: where the value sits inside the config, such as ``<root>.model.layers[0]``.
        value: the value itself.
    """

    def __init__(self, message: str, *, path: str, value: object) -> None:
        super().__init__(message)
        self.path = path
        self.value = value


class UnsupportedError(ConfigError):
    """The chosen executor cannot do what was asked of it."""


class UnknownNameError(ConfigError, KeyError):
    """There is nothing of that name; also a ``KeyError``, since scripts may have caught that."""

    def __str__(self) -> str:
        return in_message(str(self.args[0]))  # a KeyError would show the message in quotes


class ExperimentNotFoundError(ConfigError, FileNotFoundError):
    """No experiment of that id or title is stored where it was looked for."""


class MissingDependencyError(ConfigError, ImportError):
    """An optional package is not installed, or not in a version we can use.

    Attributes:
        extra: the extra to install, as in ``pip install 'nemo_run[extra]'``.
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class PackagingError(NemoRunError):
    """The code that should travel could not be collected or staged."""


class UncommittedChangesError(PackagingError, RuntimeError, AssertionError):
    """A packager that was told to accept only what is committed found something that is not.

    Also a ``RuntimeError`` and an ``AssertionError``, since scripts may have caught those.
    """


class BackendError(NemoRunError):
    """A cluster, or the way to it, said no.

    Attributes:
        backend: name of the scheduler, such as ``local_persistent``.
        operation: what was being done, such as ``submit``.
        detail: what the cluster said, word for word.
    """

    def __init__(
        self, message: str, *, backend: str = "", operation: str = "", detail: str = ""
    ) -> None:
        super().__init__(message)
        self.backend = backend
        self.operation = operation
        self.detail = detail


class AuthenticationError(BackendError, RuntimeError):
    """The cluster does not accept our credentials; also a ``RuntimeError``, as it was once."""


class SubmitError(BackendError, RuntimeError):
    """The cluster did not accept a job; also a ``RuntimeError``, as scripts may have caught it."""


class JobNotFoundError(BackendError, RuntimeError):
    """Neither our records nor the cluster know the job.

    Also a ``RuntimeError``, since scripts may have caught that where a log is not there.
    """


class JobLostError(JobNotFoundError):
    """The cluster had the job, has it no more, and will never say how it ended."""


class BackendUnavailableError(BackendError):
    """The cluster cannot be reached right now. Worth trying again; says nothing about the job."""


class ConnectionLostError(BackendUnavailableError):
    """The connection broke, or the time was up, with a command under way: it may have run.

    A `BackendUnavailableError` that is not one of these says that nothing was run.
    """


class CommandFailedError(BackendError):
    """A command was run and did not succeed.

    Attributes:
        result: its exit code and what it wrote.
    """

    def __init__(
        self, message: str, *, result: Result, backend: str = "", operation: str = "run"
    ) -> None:
        super().__init__(message, backend=backend, operation=operation, detail=result.stderr)
        self.result = result


class MissingFileError(ConfigError, BackendError, FileNotFoundError):
    """What should be copied is not there; also a ``FileNotFoundError``.

    Attributes:
        filename: the path.
    """

    def __init__(self, path: str, *, host: str = "") -> None:
        where = f" on {host}" if host else ""
        super().__init__(f"{path!r} cannot be copied: there is no such file or directory{where}.")
        self.filename = path
        self.errno = errno.ENOENT
        self.host = host

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _missing_file, (self.filename, self.host)


def _missing_file(path: str, host: str) -> MissingFileError:
    return MissingFileError(path, host=host)


class JobFailedError(NemoRunError):
    """A job of the user's did not succeed.

    Attributes:
        state: how it ended.
        exit_code: of the job's process, or None where it is not known.
        tail: the last lines of its log; of what failed first, where it has several ranks.
        job: its id in the experiment.
        cause: the class of what went wrong, such as ``out_of_memory`` or ``import_error``; empty
            where nothing is known but the exit code.
        rank: which rank of a distributed task failed first, where its log says so.
    """

    def __init__(
        self,
        message: str,
        *,
        state: AppState,
        exit_code: int | None = None,
        tail: Sequence[str] = (),
        job: str = "",
        cause: str = "",
        rank: int | None = None,
    ) -> None:
        super().__init__(message)
        self.state = state
        self.exit_code = exit_code
        self.tail = tuple(tail)
        self.job = job
        self.cause = cause
        self.rank = rank


class UnknownStatusError(NemoRunError):
    """The state of a job could not be found out."""


class PersistentSacctFailure(NemoRunError):
    """Slurm's accounting could not be asked. Kept for scripts that catch it; never ends a job."""


class RecordError(NemoRunError):
    """A file of ours cannot be read.

    Attributes:
        path: the file.
    """

    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.path = path


class RecordUnavailableError(RecordError):
    """A file of ours cannot be read or written right now: the disk is full, or does not answer.

    Says nothing about what is in it. Worth trying again.
    """
