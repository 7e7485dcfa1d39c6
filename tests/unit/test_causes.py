"""Why jobs failed: the rules against programs that really failed, and what they say of each."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from nemo_run._jobs.cause import KINDS, Cause
from nemo_run._jobs.causes import Evidence, explain

CORPUS = Path(__file__).parent / "failures"
NOTHING_CLAIMED = "exit_code"


class Case(NamedTuple):
    """A failure as it was found, and the class it belongs to."""

    name: str
    label: str
    evidence: Evidence


def read_case(path: Path) -> Case:
    head, _, log = path.read_text().partition("\n\n")
    fields = dict(line.partition(": ")[::2] for line in head.splitlines())
    code = fields.get("exit_code", "").strip(": ")
    message = fields.get("message", "")
    return Case(
        path.stem,
        fields["label"],
        Evidence(
            state=fields["state"],
            exit_code=int(code) if code else None,
            message=message,
            lines=log.splitlines(),
        ),
    )


def cases(part: str) -> list[Case]:
    return [read_case(path) for path in sorted((CORPUS / part).glob("*.txt"))]


def measured(part: str) -> tuple[float, float]:
    """Print what the rules get wrong; return precision and recall."""
    claimed = right = true = 0
    for case in cases(part):
        found = explain(case.evidence).kind
        claimed += found != NOTHING_CLAIMED
        true += case.label != NOTHING_CLAIMED
        right += found == case.label != NOTHING_CLAIMED
        if found != case.label:
            print(f"{part}/{case.name}: {case.label}, taken for {found}")
    precision, recall = right / claimed, right / true
    print(f"{part}: {len(cases(part))} failures, precision {precision:.1%}, recall {recall:.1%}")
    return precision, recall


@pytest.mark.parametrize("part", ["seen", "unseen"])
def test_the_classes_of_real_failures_are_found(part: str) -> None:
    precision, recall = measured(part)
    assert precision >= 0.95
    assert recall >= 0.85


def test_every_class_has_a_name_for_people() -> None:
    labels = {case.label for part in ("seen", "unseen") for case in cases(part)}
    assert labels <= KINDS.keys()
    assert {explain(case.evidence).kind for case in cases("seen")} <= KINDS.keys()


def failed(*lines: str, code: int | None = 1, message: str = "", state: str = "FAILED") -> Cause:
    return explain(Evidence(state=state, exit_code=code, message=message, lines=lines))


def test_the_rank_that_failed_first_is_the_one_that_is_shown() -> None:
    case = read_case(next(CORPUS.glob("*/torch-rank-gone-peer.txt")))
    cause = explain(case.evidence)
    assert cause.rank == 1
    assert cause.summary == "RuntimeError: bad batch"
    assert cause.lines[-1] == "RuntimeError: bad batch"
    assert not any("Connection closed" in line for line in cause.lines)


def test_a_traceback_that_the_program_survived_is_not_why_it_ended() -> None:
    survived = ["Traceback (most recent call last):", '  File "a.py", line 1', "ImportError: x"]
    steps = [f"step {number}" for number in range(50)]
    cause = failed(*survived, *steps, code=7)
    assert cause == Cause("exit_code", "last line: step 49", None, tuple(steps[-20:]))


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("OUT_OF_MEMORY: used more memory than it asked for", "out_of_memory"),
        ("TIMEOUT: reached its time limit", "time_limit"),
        ("PREEMPTED: had to make room for a job of higher priority", "preempted"),
        ("NODE_FAIL: a node failed on node3", "node_failure"),
        ("time limit of 2 s reached", "time_limit"),
        ("a process of it was killed for want of memory", "out_of_memory"),
        ("could not be launched: no such partition", "not_started"),
    ],
)
def test_what_the_backend_says_counts_more_than_the_log(message: str, kind: str) -> None:
    assert failed("KeyError: 'x'", message=message).kind == kind


def test_a_job_that_waited_for_one_that_failed_says_so() -> None:
    cause = failed(code=None, message="not started: left FAILED", state="CANCELLED")
    assert cause.kind == "dependency"


@pytest.mark.parametrize("line", ["\x00" * 9, "\x1b[31m\x1b[", "x" * 100_000, "\r\r\r", "\ud800"])
def test_odd_lines_do_no_harm(line: str) -> None:
    cause = failed(line, "Traceback (most recent call last):", line, code=3)
    assert len(cause.summary) <= 300


def test_a_cause_is_read_as_it_was_written() -> None:
    cause = failed("Traceback (most recent call last):", "ValueError: x")
    assert Cause.from_json(cause.to_json()) == cause
    nonsense: object
    for nonsense in (None, 3, [], {}, {"kind": "x"}):
        assert Cause.from_json(nonsense) is None
