"""Logs of jobs, line by line or in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from torchx.schedulers.api import Stream

from nemo_run._jobs.log_lines import LogQuery, line_filter, split_lines
from nemo_run._jobs.records import JobRef
from nemo_run.exceptions import JobNotFoundError
from nemo_run.run.torchx_backend.schedulers._hooks import ExecutorT, RequestT
from nemo_run.run.torchx_backend.schedulers._recorded import RecordedJobs


class ReadableLogs(RecordedJobs[ExecutorT, RequestT]):
    """Reads what the hooks ``_lines`` and ``_bytes`` give."""

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica, each with its newline.

        Raises:
            JobNotFoundError: the job, or that role or replica of it, is unknown.
            ConfigError: ``regex`` is not a regular expression.
        """
        matches = line_filter(regex)
        text = self.log_text(
            app_id,
            LogQuery(
                role=role_name,
                replica=k,
                stream=streams or Stream.COMBINED,
                follow=should_tail,
                since=since,
                until=until,
            ),
        )
        lines = (line for block in text for line in split_lines(block))
        return filter(matches, lines) if matches else lines

    def log_text(self, app_id: str, query: LogQuery) -> Iterator[str]:
        """Return log text in blocks of whole lines; see `log_iter`, which is slower."""
        ref = self._log_ref(app_id, query)
        return iter(()) if ref is None else self._lines(ref, query)

    def log_bytes(self, app_id: str, query: LogQuery) -> Iterator[bytes]:
        """Return the same as UTF-8, for copying; where logs are files they are not decoded."""
        ref = self._log_ref(app_id, query)
        return iter(()) if ref is None else self._bytes(ref, query)

    def _log_ref(self, app_id: str, query: LogQuery) -> JobRef | None:
        record = self._get(app_id)
        role = next((role for role in record.roles if role.name == query.role), None)
        if role is None or not 0 <= query.replica < role.replicas:
            known = ", ".join(f"{role.name} (0 to {role.replicas - 1})" for role in record.roles)
            raise JobNotFoundError(
                f"Job {app_id} has no replica {query.replica} of role {query.role!r}. "
                f"It has: {known}.",
                backend=record.scheduler,
                operation="logs",
            )
        return self._ref(record)

    def tail(self, app_id: str, query: LogQuery, lines: int) -> Sequence[str]:
        """Return the last lines of a log as it is now."""
        kept: deque[str] = deque(maxlen=lines)
        for block in self.log_text(app_id, replace(query, follow=False, last_only=True)):
            kept.extend(split_lines(block)[-lines:])
        return kept
