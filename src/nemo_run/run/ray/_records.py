"""What is remembered of a Ray cluster or job, by the process that submits it and by any other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from nemo_run._jobs.records import JobRecord, JobRef, RoleSize
from nemo_run._jobs.store import JobStore


class Records:
    """The record of one cluster or job, by its name and where it was submitted to."""

    def __init__(self, scheduler: str, app_id: str, name: str) -> None:
        self._scheduler, self._app_id, self._name = scheduler, app_id, name

    def find(self) -> JobRecord | None:
        return JobStore().find(self._app_id, self._scheduler)

    def where(self) -> Mapping[str, str]:
        """Return where the last one was submitted to; empty where none was from here."""
        record = self.find()
        return record.ref.where if record is not None and record.ref is not None else {}

    @property
    def native_id(self) -> str:
        """What its backend calls the last one; empty where none was submitted from here."""
        record = self.find()
        return record.ref.native_id if record is not None and record.ref is not None else ""

    def begin(self, tag: str, where: Mapping[str, str], native_id: str = "") -> None:
        """Write down that one is about to be submitted: a later process looks for it there."""
        now = time.time()
        # The one before has ended, and an ended job would stay as it was.
        JobStore().delete(self._app_id, self._scheduler)
        JobStore().put(
            JobRecord(
                app_id=self._app_id,
                scheduler=self._scheduler,
                roles=(RoleSize(self._name, 1),),
                ref=JobRef(native_id=native_id, where={**where, "tag": tag}),
                tag=tag,
                submitted_at=now,
                last_seen_at=now,
                job_dir="",
            )
        )

    def submitted(self, native_id: str = "") -> None:
        record = self.find()
        if record is not None and record.ref is not None:
            ref = replace(record.ref, native_id=native_id or record.ref.native_id)
            JobStore().put(replace(record, ref=ref, state="SUBMITTED"))

    def ended(self, state: str, message: str = "") -> None:
        """Write down how it ended, as one of ``SUCCEEDED``, ``FAILED`` and ``CANCELLED``."""
        record = self.find()
        if record is not None and not record.is_terminal:
            JobStore().put(replace(record, state=state, message=message, ended_at=time.time()))
