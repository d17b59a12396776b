"""Winning attempts, and when a dataset is ready."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distcommit.core.watermark import Watermark, as_offset
from distcommit.core.work_units import BranchResult, DatasetPlan, SkippedRange, TaskOutcome, TaskState, WorkUnit
from distcommit.protocol.seal_decision import CommitPolicy, NotReady, Ready, Wait, gap_free, readiness


def unit(name: str, low: dict[str, int], high: dict[str, int]) -> WorkUnit:
    return WorkUnit(name, "d", Watermark(dict(low)), Watermark(dict(high)), 1)


def state(of: WorkUnit, attempt: str = "a", high: dict[str, int] | None = None, failed: bool = False) -> TaskState:
    actual = of.low if failed else Watermark(dict(high)) if high is not None else of.expected_high
    outcome = TaskOutcome.FAILED if failed else TaskOutcome.SUCCEEDED
    return TaskState("r", 1, "d", of.work_unit_id, attempt, outcome, of.low, of.expected_high, actual, error="boom")


def prefix(of: WorkUnit, attempt: str, high: dict[str, int], records: int = 1) -> TaskState:
    fields = {"outcome": TaskOutcome.PARTIAL, "records_read": records, "error": f"boom {attempt}"}
    return replace(state(of, attempt, high), **fields)


FIRST, SECOND = unit("u1", {"0": 0}, {"0": 5}), unit("u2", {"0": 5}, {"0": 9})
PLAN = DatasetPlan("d", None, Watermark({"0": 0}), (FIRST, SECOND))


def decide(
    *states: TaskState,
    plan: DatasetPlan = PLAN,
    policy: CommitPolicy = CommitPolicy.FULL,
    ended: bool = False,
    missing: str = "",
) -> Wait | NotReady | Ready:
    return readiness(plan, states, policy=policy, ingest_ended=ended, staged=lambda s: s.attempt != missing)


def test_dataset_waits_until_every_work_unit_has_a_success() -> None:
    assert decide(state(FIRST)) == Wait()
    assert decide(state(FIRST), state(SECOND, failed=True)) == Wait(), "a failure is decided only after ingest"
    assert isinstance(decide(state(FIRST), state(SECOND)), Ready)


def test_success_beats_failure_whatever_the_order() -> None:
    both = [state(SECOND, "b", failed=True), state(SECOND, "c"), state(FIRST)]
    for states in (both, both[::-1]):
        assert isinstance(decide(*states), Ready)


def test_one_attempt_wins_and_gives_outputs_and_watermark_together() -> None:
    short, full = state(SECOND, "a", {"0": 7}), state(SECOND, "b", {"0": 9})
    ready = decide(state(FIRST), short, full)
    assert isinstance(ready, Ready)
    assert (ready.winners[1], ready.high) == (short, Watermark({"0": 7}))
    other = decide(state(FIRST, "z"), short, full, missing="a")
    assert isinstance(other, Ready)
    assert (other.winners[1], other.high) == (full, Watermark({"0": 9}))


def test_policy_full_commits_nothing_if_a_work_unit_failed() -> None:
    answer = decide(state(FIRST), state(SECOND, failed=True), ended=True)
    assert answer == NotReady("boom", failed=True)


def test_policy_successful_commits_work_units_without_a_gap_before_them() -> None:
    only_first = decide(state(FIRST), ended=True, policy=CommitPolicy.SUCCESSFUL)
    assert isinstance(only_first, Ready)
    assert only_first.high == Watermark({"0": 5})
    only_second = decide(state(SECOND), ended=True, policy=CommitPolicy.SUCCESSFUL)
    assert isinstance(only_second, NotReady), "work units beyond a gap wait for the next run"


def test_short_read_is_a_gap_for_later_work_units() -> None:
    answer = decide(state(FIRST, high={"0": 3}), state(SECOND))
    assert isinstance(answer, Ready)
    assert ([w.work_unit_id for w in answer.winners], answer.high) == (["u1"], Watermark({"0": 3}))


def test_work_unit_beyond_a_gap_in_one_partition_is_left_out_in_all() -> None:
    a = unit("a", {"0": 0}, {"0": 5})
    b = unit("b", {"0": 5, "1": 0}, {"0": 9, "1": 4})
    c = unit("c", {"1": 4}, {"1": 8})
    winners, reached = gap_free([state(c), state(b), state(a, high={"0": 2})], {"0": 0, "1": 0})
    assert [w.work_unit_id for w in winners] == ["a"]
    assert reached == {"0": 2, "1": 0}


PARTIAL = CommitPolicy.PARTIAL


@pytest.mark.parametrize("policy", [CommitPolicy.FULL, CommitPolicy.SUCCESSFUL])
def test_prefix_is_a_failure_under_other_policies(policy: CommitPolicy) -> None:
    answer = decide(prefix(FIRST, "a", {"0": 3}), ended=True, policy=policy)
    assert answer == NotReady("boom a (and 1 more)", failed=True)


def test_prefix_is_taken_once_ingest_has_ended_and_later_work_units_wait() -> None:
    states = (prefix(FIRST, "a", {"0": 3}), state(SECOND))
    assert decide(*states, policy=PARTIAL) == Wait(), "a success may still come"
    answer = decide(*states, policy=PARTIAL, ended=True)
    assert isinstance(answer, Ready)
    assert ([w.work_unit_id for w in answer.winners], answer.high) == (["u1"], Watermark({"0": 3}))
    assert answer.partial_reason == f"work unit u1 is read up to {Watermark({'0': 3})} only: boom a"


def test_success_beats_a_prefix_unless_its_files_are_gone() -> None:
    states = (prefix(FIRST, "a", {"0": 4}, records=9), state(FIRST, "b"), state(SECOND))
    for ended in (False, True):
        answer = decide(*states, policy=PARTIAL, ended=ended)
        assert isinstance(answer, Ready)
        assert (answer.winners[0].attempt, answer.high, answer.partial_reason) == ("b", Watermark({"0": 9}), "")
    answer = decide(*states, policy=PARTIAL, ended=True, missing="b")
    assert isinstance(answer, Ready)
    assert (answer.winners[0].attempt, answer.high) == ("a", Watermark({"0": 4}))
    assert "are missing" in answer.partial_reason


def test_one_of_several_prefixes_is_taken_whole() -> None:
    both = unit("u", {"0": 0, "1": 0}, {"0": 5, "1": 5})
    plan = DatasetPlan("d", None, Watermark({"0": 0, "1": 0}), (both,))
    states = (
        prefix(both, "a", {"0": 4, "1": 0}, records=4),
        prefix(both, "c", {"0": 1, "1": 5}, records=6),
        prefix(both, "b", {"0": 3, "1": 3}, records=6),
    )
    for order in (states, states[::-1]):
        answer = decide(*order, plan=plan, policy=PARTIAL, ended=True)
        assert isinstance(answer, Ready)
        assert ([w.attempt for w in answer.winners], answer.high) == (["b"], Watermark({"0": 3, "1": 3}))
    answer = decide(*states, plan=plan, policy=PARTIAL, ended=True, missing="b")
    assert isinstance(answer, Ready)
    assert [w.attempt for w in answer.winners] == ["c"]


@pytest.mark.parametrize("high", [{"0": 0}, {"0": 6}, {"1": 3}], ids=str)
def test_prefix_that_has_not_moved_or_has_an_impossible_range_is_not_taken(high: dict[str, int]) -> None:
    answer = decide(prefix(FIRST, "a", high), ended=True, policy=PARTIAL)
    assert isinstance(answer, NotReady)
    assert answer.failed
    assert "attempt a reports the range" in answer.reason


def test_work_unit_after_a_complete_prefix_does_not_wait() -> None:
    answer = decide(prefix(FIRST, "a", {"0": 5}), state(SECOND), ended=True, policy=PARTIAL)
    assert isinstance(answer, Ready)
    assert (len(answer.winners), answer.high) == (2, Watermark({"0": 9}))


@pytest.mark.parametrize("high", [{"0": 4}, {"0": 10}, {"1": 9}, {"0": 9, "1": 9}, {}, {"0": float("nan")}], ids=str)
def test_success_with_an_impossible_range_is_a_failure_with_that_reason(high: dict[str, int]) -> None:
    odd = state(SECOND, "a", high)
    assert decide(state(FIRST), odd) == Wait(), "another attempt may still succeed"
    answer = decide(state(FIRST), odd, ended=True)
    assert isinstance(answer, NotReady)
    assert answer.failed
    assert "work unit u2: attempt a reports the range" in answer.reason
    ready = decide(state(FIRST), odd, state(SECOND, "b"))
    assert isinstance(ready, Ready)
    assert [w.attempt for w in ready.winners] == ["a", "b"]
    part = decide(state(FIRST), odd, ended=True, policy=CommitPolicy.SUCCESSFUL)
    assert isinstance(part, Ready)
    assert part.high == Watermark({"0": 5})


def test_success_that_began_elsewhere_is_a_failure() -> None:
    answer = decide(state(FIRST), state(unit("u2", {"0": 6}, {"0": 9})), ended=True)
    assert isinstance(answer, NotReady)
    assert answer.failed


def test_range_without_new_records_is_not_a_failure() -> None:
    empty = unit("u", {"0": 5}, {"0": 5})
    plan = DatasetPlan("d", Watermark({"0": 5}), Watermark({}), (empty,))
    assert decide(state(empty), plan=plan) == NotReady("nothing new was read", failed=False)


@pytest.mark.parametrize("policy", CommitPolicy)
def test_failed_work_unit_beside_an_empty_one_is_a_failure(policy: CommitPolicy) -> None:
    first, second = unit("u1", {"0": 0}, {"0": 5}), unit("u2", {"1": 0}, {"1": 5})
    plan = DatasetPlan("d", Watermark({"0": 0, "1": 0}), Watermark({}), (first, second))
    decision = decide(state(first, high={"0": 0}), state(second, failed=True), plan=plan, policy=policy, ended=True)
    assert decision == NotReady("boom", failed=True)


def test_prepared_commit_is_committed_although_the_watermark_stays() -> None:
    empty = unit("u", {"0": 5}, {"0": 5})
    plan = DatasetPlan("d", Watermark({"0": 5}), Watermark({}), (empty,))
    prepared = replace(state(empty), branches=(BranchResult("main", "rows", infos=("info",)),))
    assert decide(prepared, plan=plan) == Ready((prepared,), Watermark({"0": 5}))


def test_empty_partition_seen_for_the_first_time_keeps_its_start() -> None:
    empty = unit("u", {"0": 7}, {"0": 7})
    answer = decide(state(empty), plan=DatasetPlan("d", None, Watermark({"0": 7}), (empty,)))
    assert isinstance(answer, Ready)
    assert answer.high == Watermark({"0": 7})


def test_skipped_range_advances_the_watermark() -> None:
    late = unit("u", {"0": 5}, {"0": 9})
    plan = DatasetPlan("d", Watermark({"0": 2}), Watermark({}), (late,), (SkippedRange("0", 2, 5, "expired"),))
    answer = decide(state(late), plan=plan)
    assert isinstance(answer, Ready)
    assert answer.high == Watermark({"0": 9})


@given(st.data())
def test_winners_always_form_gap_free_ranges_from_the_low_watermark(data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True).map(sorted))
    units = [
        unit(f"u{i}", {"0": low}, {"0": high}) for i, (low, high) in enumerate(zip([0, *cuts], cuts, strict=False))
    ]
    states = []
    for one in data.draw(st.permutations(units)):
        if data.draw(st.booleans()):
            low, high = as_offset(one.low.positions["0"]), as_offset(one.expected_high.positions["0"])
            states.append(state(one, high={"0": data.draw(st.integers(low, high))}))
    winners, reached = gap_free(states, {"0": 0})
    covered = sorted((as_offset(w.low.positions["0"]), as_offset(w.actual_high.positions["0"])) for w in winners)
    place = 0
    for low, high in covered:
        assert low == place
        place = high
    assert reached["0"] == place
    beyond = [s for s in states if s not in winners]
    assert all(s.low.positions["0"] != place or s.actual_high == s.low for s in beyond)


def test_winning_attempt_supplies_an_end_that_was_not_known() -> None:
    opened = WorkUnit("u1", "d", Watermark({"0": 0, "f": (1,)}), Watermark({"f": (2, "b")}), 1)
    plan = DatasetPlan("d", None, Watermark({"0": 0, "f": (1,)}), (opened,))

    def attempt(name: str, offset: int, place: tuple[int | str, ...]) -> TaskState:
        return replace(state(opened, name), actual_high=Watermark({"0": offset, "f": place}))

    one, other = attempt("a", 70, (2, "a")), attempt("b", 5, (2, "b"))
    assert decide(other, one, plan=plan) == Ready((one,), one.actual_high)
    assert decide(other, one, plan=plan, missing="a") == Ready((other,), other.actual_high)
    for wrong in (attempt("a", -1, (2,)), attempt("a", 5, (2, "c")), attempt("a", 5, (0, "z"))):
        assert isinstance(decide(wrong, plan=plan, ended=True), NotReady)


def test_only_a_work_unit_that_begins_there_joins_an_end_that_was_not_known() -> None:
    opened, behind = WorkUnit("u1", "d", Watermark({"0": 0}), Watermark({}), 1), unit("u2", {"0": 5}, {"0": 9})
    plan = DatasetPlan("d", None, Watermark({"0": 0}), (opened, behind))
    for reached, high in ((5, 9), (7, 7)):
        answer = decide(replace(state(opened), actual_high=Watermark({"0": reached})), state(behind), plan=plan)
        assert isinstance(answer, Ready)
        assert answer.high == Watermark({"0": high})
