"""What is known of Slurm jobs, put together from what several tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nemo_run._backends.slurm.answers import NOT_FOR_GOOD, Exit, Row, array_elements


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is known of a job: rows of Slurm's, or what its script left behind."""

    rows: Sequence[Row] = ()
    exits: Sequence[Exit] = ()
    cancelled: bool = False

    @property
    def elements(self) -> frozenset[str]:
        """The elements that are told of, by a row or by what their script left."""
        lists = [array_elements(row.element) for row in self.rows if "[" in row.element]
        left = {item.element for item in self.exits}
        return frozenset(row.element for row in self.rows).union(left, *lists)

    def after(self, rows: Sequence[Row]) -> Report:
        """Return this, but with what the queue says where it says something."""
        known = Report(rows=rows).elements
        others = [row for row in self.rows if row.element not in known]
        left = [item for item in self.exits if item.element not in known]
        return replace(self, rows=[*rows, *others], exits=left)

    def proven(self, *, by_element: bool) -> Report:
        """Return what of this is true also while the controller cannot be asked.

        Accounting lags behind: of a job that is not over it may say what was true before. And a
        job that Slurm itself ended, or a script that it had asked to end, may be started again.
        One part that has ended proves nothing of the others, unless it is known which others there
        are.
        """
        ended = [row for row in self.rows if row.has_ended and row.state not in NOT_FOR_GOOD]
        return replace(
            self,
            rows=ended if by_element or len(ended) == len(self.rows) else [],
            exits=[item for item in self.exits if self.cancelled or not item.asked],
        )


@dataclass(frozen=True)
class Watched:
    """A job that a caller waits for; ``elements`` are those of an array."""

    state_dir: str
    elements: frozenset[str]

    def is_told_by(self, report: Report) -> bool:
        """Whether something is known of all elements: the queue forgets them one by one."""
        if self.elements:
            # Slurm abbreviates long lists.
            return self.elements <= report.elements or any("..." in row.id for row in report.rows)
        return bool(report.rows or report.exits)

    def completed(self, job_id: str, report: Report) -> Report:
        """Return what is known of a job that we cancelled and the controller has forgotten.

        What had not started by then has left nothing behind.
        """
        if not report.cancelled or self.is_told_by(report):
            return report
        untold = sorted(self.elements - report.elements) if self.elements else [""]
        rows = [Row(id=f"{job_id}{element}", state="CANCELLED") for element in untold]
        return replace(report, rows=[*report.rows, *rows])
