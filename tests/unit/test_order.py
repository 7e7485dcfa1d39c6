"""The order in which jobs may start."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchx.specs import AppState

from nemo_run._order import RUN_IF, combined, put_in_a_row, reason, verdict, waves
from nemo_run.exceptions import ConfigError

ENDED = [AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED]
GOING_ON = [AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING]


class TestWaves:
    def test_no_jobs_make_no_wave(self) -> None:
        assert waves({}) == []

    def test_jobs_without_dependencies_start_together_sorted(self) -> None:
        assert waves({"b": [], "a": [], "c": []}) == [["a", "b", "c"]]

    def test_a_diamond_has_three_waves(self) -> None:
        order = waves({"top": [], "left": ["top"], "right": ["top"], "end": ["left", "right"]})
        assert order == [["top"], ["left", "right"], ["end"]]

    def test_jobs_that_wait_for_each_other_are_named(self) -> None:
        with pytest.raises(ConfigError, match=r"(?s)a.*b|b.*a"):
            waves({"a": ["b"], "b": ["a"]})

    def test_the_whole_circle_is_shown(self) -> None:
        with pytest.raises(ConfigError, match=r"(a -> b -> a|b -> a -> b)"):
            waves({"a": ["b"], "b": ["a"]})

    def test_a_job_cannot_wait_for_itself(self) -> None:
        with pytest.raises(ConfigError, match="a"):
            waves({"a": ["a"]})

    def test_an_unknown_dependency_is_named(self) -> None:
        with pytest.raises(ConfigError, match="nowhere"):
            waves({"a": ["nowhere"]})

    @given(st.data())
    def test_every_job_comes_once_and_one_wave_after_its_last_dependency(
        self, data: st.DataObject
    ) -> None:
        size = data.draw(st.integers(1, 12))
        graph = {
            f"job{number}": data.draw(
                st.lists(st.sampled_from([f"job{i}" for i in range(number)]), unique=True)
                if number
                else st.just([])
            )
            for number in range(size)
        }
        order = waves(graph)
        at = {job: index for index, wave in enumerate(order) for job in wave}
        assert sorted(at) == sorted(graph)
        assert sum(map(len, order)) == size
        for job, needed in graph.items():
            assert at[job] == max((at[other] + 1 for other in needed), default=0)
        assert all(wave == sorted(wave) for wave in order)


@dataclass
class Waiting:
    """What is looked at here of a job."""

    id: str
    dependencies: list[str] = field(default_factory=list)


class TestRow:
    @pytest.mark.parametrize("as_before", [True, False])
    def test_each_job_waits_for_the_one_before(self, as_before: bool) -> None:
        jobs = [Waiting("a"), Waiting("b"), Waiting("c")]
        put_in_a_row(jobs, as_before=as_before)
        assert [job.dependencies for job in jobs] == [[], ["a"], ["b"]]

    def test_jobs_that_are_in_a_row_already_may_stay_so_where_that_is_expected(self) -> None:
        jobs = [Waiting("a"), Waiting("b", ["a"])]
        put_in_a_row(jobs, as_before=True)
        assert [job.dependencies for job in jobs] == [[], ["a"]]
        with pytest.raises(ConfigError, match="dependencies of their own"):
            put_in_a_row(jobs, as_before=False)

    def test_jobs_with_another_order_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="dependencies of their own"):
            put_in_a_row([Waiting("a", ["b"]), Waiting("b")], as_before=True)


class TestVerdict:
    def test_there_are_three_policies(self) -> None:
        assert RUN_IF == ("succeeded", "ended", "failed")

    def test_a_job_that_needs_nothing_starts(self) -> None:
        assert verdict({}) == "start"

    @pytest.mark.parametrize("state", GOING_ON)
    @pytest.mark.parametrize("run_if", ["succeeded", "ended", "failed"])
    def test_a_job_waits_while_a_dependency_goes_on(self, state: AppState, run_if: str) -> None:
        assert verdict({"a": state}, run_if) == "wait"  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("run_if", "state", "expected"),
        [
            ("succeeded", AppState.SUCCEEDED, "start"),
            ("succeeded", AppState.FAILED, "skip"),
            ("succeeded", AppState.CANCELLED, "skip"),
            ("ended", AppState.SUCCEEDED, "start"),
            ("ended", AppState.FAILED, "start"),
            ("ended", AppState.CANCELLED, "start"),
            ("failed", AppState.SUCCEEDED, "skip"),
            ("failed", AppState.FAILED, "start"),
        ],
    )
    def test_what_follows_an_end_is_up_to_the_policy(
        self, run_if: str, state: AppState, expected: str
    ) -> None:
        assert verdict({"a": state}, run_if) == expected  # type: ignore[arg-type]

    def test_all_dependencies_have_to_succeed(self) -> None:
        assert verdict({"a": AppState.SUCCEEDED, "b": AppState.FAILED}) == "skip"
        assert verdict({"a": AppState.SUCCEEDED, "b": AppState.SUCCEEDED}) == "start"

    def test_an_unknown_state_is_not_an_end(self) -> None:
        assert verdict({"a": AppState.UNKNOWN}) == "wait"

    def test_the_reason_names_who_did_not_succeed_and_how(self) -> None:
        text = reason({"good": AppState.SUCCEEDED, "bad": AppState.FAILED})
        assert "bad" in text
        assert "FAILED" in text
        assert "good" not in text

    def test_the_whole_reason_is_a_sentence(self) -> None:
        states = {"a": AppState.FAILED, "b": AppState.RUNNING, "c": AppState.CANCELLED}
        assert reason(states) == "not started: a FAILED, c CANCELLED"
        assert reason(states, "failed") == "not started: no job it depends on failed"


class TestGroups:
    @pytest.mark.parametrize(
        ("states", "expected"),
        [
            ([AppState.SUCCEEDED, AppState.SUCCEEDED], AppState.SUCCEEDED),
            ([AppState.SUCCEEDED, AppState.RUNNING], AppState.RUNNING),
            ([AppState.SUCCEEDED, AppState.FAILED], AppState.FAILED),
            ([AppState.CANCELLED, AppState.FAILED], AppState.FAILED),
            ([AppState.CANCELLED, AppState.SUCCEEDED], AppState.CANCELLED),
            ([], AppState.UNSUBMITTED),
            ([AppState.UNSUBMITTED, AppState.UNSUBMITTED], AppState.UNSUBMITTED),
            ([AppState.UNSUBMITTED, AppState.SUCCEEDED], AppState.RUNNING),
            ([AppState.UNSUBMITTED, AppState.UNKNOWN], AppState.UNKNOWN),
            ([AppState.UNKNOWN, AppState.SUBMITTED], AppState.SUBMITTED),
            ([AppState.SUBMITTED, AppState.PENDING], AppState.PENDING),
            ([AppState.PENDING, AppState.RUNNING], AppState.RUNNING),
        ],
    )
    def test_a_group_is_as_good_as_its_worst_member(
        self, states: list[AppState], expected: AppState
    ) -> None:
        assert combined(states) is expected

    @given(st.lists(st.sampled_from(ENDED), min_size=1))
    def test_a_group_of_ended_members_has_ended(self, states: list[AppState]) -> None:
        assert combined(states) in states

    @given(st.lists(st.sampled_from(ENDED)), st.lists(st.sampled_from(ENDED)))
    def test_a_group_goes_on_while_a_member_does(
        self, before: list[AppState], after: list[AppState]
    ) -> None:
        assert combined([*before, AppState.RUNNING, *after]) is AppState.RUNNING
