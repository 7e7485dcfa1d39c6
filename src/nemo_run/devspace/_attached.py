"""What a user's terminal does while a devspace is used: wait for it, lead there, tell its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._transport.waiting import Waiting
from nemo_run.core.frontend.console.api import CONSOLE
from nemo_run.core.tunnel.client import Callback, KeepAliveOver
from nemo_run.devspace import _alias, _job, _reaching, _records
from nemo_run.devspace._reaching import Note
from nemo_run.devspace._records import Record
from nemo_run.devspace.editor import chosen_editor, launch_editor
from nemo_run.exceptions import BackendError, ConfigError

if TYPE_CHECKING:
    from nemo_run.devspace._jupyter import Jupyter
    from nemo_run.devspace.base import DevSpace

log = logging.getLogger(__name__)

CHECK_S = 10.0


class SlurmTunnelCallback(Callback):
    """Waits for the server of a devspace, has ssh know it, opens an editor, and tells the end.

    Nothing of the devspace depends on it: it can be ended, killed and started again at any time.

    Args:
        executor: what runs the devspace.
        space: the devspace.
        srun: of 0.12, and not used: a job is asked for by its record.
        tunnel_dir: where its server leaves notes, for one that another machine launched.
        record: what this machine knows of it; by default what is recorded under its name.
    """

    def __init__(
        self,
        executor: Any,
        space: DevSpace,
        srun: Any = None,
        tunnel_dir: str | Path | None = None,
        *,
        record: Record | None = None,
    ) -> None:
        self.executor = executor
        self.space = space
        self.srun = srun
        self.tunnel_dir = tunnel_dir
        self._record = record
        self._jupyter: Jupyter | None = None
        self._asked_at = 0.0

    @property
    def tunnel_name(self) -> str:
        """What comes after ``tunnel.`` in the alias."""
        return f"{self.space.name}.{self.space.name}"

    @property
    def record(self) -> Record:
        if self._record is None and self.tunnel_dir is None:
            self._record = _records.get(self.space.name)
        elif self._record is None:
            self._record = adopted(self.space.name, self.executor, str(self.tunnel_dir))
        return self._record

    def on_start(self) -> None:
        record = self.record
        note = wait_until_up(record, _told(record.name))
        _reaching.know(record, note)
        _alias.refresh()
        _reaching.check(record)
        self._asked_at = time.monotonic()
        show(f"Devspace {record.name} is up on {note.node}. Connect with: ssh {record.alias}")
        self._open_editor(note)

    def _open_editor(self, note: Note) -> None:
        editor = chosen_editor(self.space.editor)
        if editor == "jupyter":
            from nemo_run.devspace._jupyter import Jupyter

            self._jupyter = Jupyter(self.record)
            show(f"Jupyter: {self._jupyter.open()}")
        else:
            launch_editor(self.tunnel_name, note.workspace or self.record.workspace, editor)

    def on_interval(self) -> None:
        if self._jupyter is not None:
            self._jupyter.keep_open()
        if time.monotonic() - self._asked_at < CHECK_S:
            return
        self._asked_at = time.monotonic()
        try:
            over = _job.has_ended(self.record)
        except BackendError as err:
            log.info("%s: %s", self.record.name, err)
            return
        if over:
            forget(self.record)
            raise KeepAliveOver(f"devspace {self.record.name} has ended")

    def on_stop(self) -> None:
        if self._jupyter is not None:
            self._jupyter.close()
        name = self.space.name
        if self._record is not None and _records.find(name) == self._record:
            show(
                f"Devspace {name} goes on. Connect with: ssh {self._record.alias}   "
                f"End it with: nemorun devspace stop {name}"
            )
        else:
            show(f"Devspace {name} has ended.")


def adopted(name: str, executor: Any, directory: str) -> Record:
    """Return a record of a devspace that another machine launched, after writing it.

    Raises:
        ConfigError: its server is not up.
    """
    tunnel = executor.tunnel
    note = _reaching.read_note(tunnel, directory)
    if note is None:
        raise ConfigError(f"No devspace is up in {directory!r} on {tunnel.key}.")
    known = _records.find(name)
    if known is not None and known.label == note.label:
        return known
    record = Record(
        name=_records.checked_name(name),
        label=note.label,
        directory=directory,
        workspace=note.workspace,
        executor=type(executor).__name__,
        login=_records.login_of(tunnel),
    )
    record.save()
    _reaching.let_in(record)
    return record


def wait_until_up(record: Record, tell: Callable[[str], None]) -> Note:
    """Return where the server of a devspace is, once it is up.

    Raises:
        JobFailedError: its job failed; says why.
        BackendError: its job ended otherwise.
    """
    waiting = Waiting(0.1, 5, growth=1.5)
    while True:
        try:
            note = _reaching.find_server(record)
            if note is not None:
                return note
            state = _job.state(record)
        except BackendError as err:
            tell(f"cannot be asked: {err}")
        else:
            tell(state)
            if state in _job.ENDED:
                forget(record)
                _raise_ended(record, state)
        waiting.pause()


def _raise_ended(record: Record, state: str) -> None:
    exp = _job.experiment(record)
    if exp is not None:
        exp.raise_if_failed()
    raise BackendError(
        f"Devspace {record.name!r} ended before its server was up: {state}. "
        f"See: nemorun experiment logs {record.experiment}",
        backend="devspace",
        operation="launch",
    )


def forget(record: Record) -> None:
    """Take away the alias and record of a devspace that has ended."""
    record.forget()
    _alias.refresh()


def _told(name: str) -> Callable[[str], None]:
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if text != last:
            show(f"Devspace {name}: {text}")
            last = text

    return tell


def show(text: str) -> None:
    """Print a line for the user, as it is."""
    CONSOLE.print(text, markup=False, highlight=False, soft_wrap=True)
