"""Submit jobs to a Slurm cluster, many with one remote command, and find one that was submitted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nemo_run import _shell
from nemo_run._backends.slurm import remote
from nemo_run._backends.slurm.files import File, packed
from nemo_run._backends.slurm.remote import BACKEND, Answer, Shell
from nemo_run.exceptions import (
    BackendError,
    BackendUnavailableError,
    NemoRunError,
    SubmitError,
)

TIMEOUT_S = 600.0
"""Longer than for a question, since code is unpacked; a lost connection is noticed long before."""

_TRANSIENT = re.compile(remote.TRANSIENT, re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be submitted.

    Attributes:
        state_dir: on the cluster, unlike that of any other submission.
        files: what has to be there first; absolute paths.
        array: which elements it has; empty for a job that is no array.
        archive: where the job's code is kept on the cluster; empty for none.
        local_archive: the same on this machine, sent where the cluster does not have it.
    """

    state_dir: str
    argv: Sequence[str]
    files: Sequence[File]
    array: str = ""
    archive: str = ""
    local_archive: Path = Path()


@dataclass(frozen=True)
class Submitter:
    """Submits by way of ``shell``."""

    shell: Shell

    def submit_all(self, batch: Sequence[Submission]) -> list[str | Exception]:
        """Return the number of each job, or why it has none."""
        stream = packed([file for item in batch for file in _all_files(item)])
        command = remote.submit([(item.state_dir, item.archive) for item in batch])
        answer = self.shell(command, stream, TIMEOUT_S)
        if answer.code == remote.BAD_STREAM and len(batch) > 1:
            # One of them does not fit; the others may.
            return [self.submit_all([item])[0] for item in batch]
        if answer.code == remote.BAD_STREAM:
            return [_refused(f"its files could not be written: {answer.err.strip()}")]
        blocks = remote.blocks(answer.out)
        if len(blocks) != len(batch):
            return [remote.unavailable("submit", answer.err)] * len(batch)
        outcomes = dict(zip([item.state_dir for item in batch], blocks, strict=True))
        lacking = [item for item in batch if outcomes[item.state_dir][:1] == ["nocode"]]
        results = {
            item.state_dir: self._outcome(item, outcomes[item.state_dir])
            for item in batch
            if item not in lacking
        }
        if lacking:
            results |= self._submit_with_code(lacking)
        return [results[item.state_dir] for item in batch]

    def _submit_with_code(self, batch: Sequence[Submission]) -> dict[str, str | Exception]:
        """Send the archives that the cluster does not have, each once, and submit again."""
        for item in {item.archive: item for item in batch}.values():
            try:
                self.shell.send(item.local_archive, item.archive)
            except BackendUnavailableError:
                raise
            except BackendError as err:
                error = _refused(f"its code could not be sent: {err}")
                return {item.state_dir: error for item in batch}
        return dict(zip([i.state_dir for i in batch], self.submit_all(batch), strict=True))

    def _outcome(self, item: Submission, lines: Sequence[str]) -> str | Exception:
        verdict = lines[0] if lines else ""
        said = _said(lines, None)
        try:
            if verdict == "done 0":
                return _job_id(lines)
            if verdict == "twice":
                return self.find(item.state_dir) or remote.unavailable(
                    "submit", "submitted by another"
                )
        except NemoRunError as err:
            return err
        if not verdict.startswith("done") or _TRANSIENT.search(said):
            return remote.unavailable("submit", said)
        return _refused(said)

    def find(self, state_dir: str, *, patience_s: int = 60) -> str | None:
        """Return the number of the job with that state directory; None if there is none.

        Raises:
            BackendUnavailableError: Slurm cannot say now.
        """
        answer = self.shell(remote.ask(state_dir, patience_s), b"", remote.TIMEOUT_S)
        lines = remote.ours(answer.out)
        verdict = lines[0] if lines else ""
        if verdict == "never":
            return None
        if verdict.startswith("done"):
            return _job_id(lines)
        raise remote.unavailable("find a job again", _said(lines, answer))


def _all_files(item: Submission) -> list[File]:
    own = [
        File(
            path=f"{item.state_dir}/submit.sh", data=f"exec {_shell.render(item.argv)}\n".encode()
        ),
        # The last of a stream that may be cut.
        File(path=f"{item.state_dir}/ready"),
    ]
    return [*item.files, *own]


def _job_id(lines: Sequence[str]) -> str:
    said = [line.removeprefix("out ") for line in lines if line.startswith("out ")]
    # With several clusters it is "number;cluster".
    numbers = [line.strip().partition(";")[0] for line in said]
    found = next((number for number in reversed(numbers) if number.isdigit()), None)
    if found is None:
        raise _refused(f"sbatch did not say what number it gave: {said!r}")
    return found


def _said(lines: Sequence[str], answer: Answer | None) -> str:
    said = [line.removeprefix("err ") for line in lines if line.startswith("err ")]
    return "\n".join(said) or (answer.err.strip() if answer is not None else "")


def _refused(said: str) -> SubmitError:
    return SubmitError(
        f"Slurm did not accept the job: {said}", backend=BACKEND, operation="submit", detail=said
    )
