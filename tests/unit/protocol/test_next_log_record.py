"""The next record of a log: after any history the answers are valid, take effect at once, and terminate."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distcommit.core.records.job_log_records import Cut, CutPhase, Generation, Head, Rebucket
from distcommit.core.records.log_records import (
    Checkpoint,
    DatasetState,
    DatasetStatus,
    Done,
    Failed,
    Fence,
    Gate,
    Intent,
    OperatorAction,
    Record,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import valid
from tests.models.strategies import FEW_URNS, records_after, watermarks

Asked = Callable[[Fold], Record | None]
LONGEST = 8
"""Upper bound of the records that any request needs."""


@st.composite
def folds(draw: st.DrawFn) -> Fold:
    fold = Fold()
    for number in range(1, draw(st.integers(1, 12))):
        apply(number, draw(records_after(fold)), fold)
    return fold


@st.composite
def questions(draw: st.DrawFn, fold: Fold) -> Asked:
    """Draw a request of any writer: possibly an older run, one with stale knowledge, or an operator."""
    epoch = draw(st.integers(0, fold.fence_epoch + 1))
    urns = draw(st.lists(st.sampled_from(FEW_URNS), min_size=1, unique=True))
    present = [SequenceName(urn, s.epoch) for urn in urns if (s := fold.state_of(urn).sequence) is not None]
    names = [*present, SequenceName(urns[0], draw(st.integers(0, epoch)))]
    names = list({name.dataset_urn: name for name in reversed(names)}.values())
    low = draw(st.none() | watermarks())
    sealed = [
        SealedSequence(urn, epoch, draw(st.sampled_from([low, fold.state_of(urn).watermark])), None, ()) for urn in urns
    ]
    before = draw(st.sampled_from([fold, Fold()]))
    new_watermarks = {urn: draw(watermarks()) for urn in urns}
    action = draw(st.sampled_from(OperatorAction))
    once, left_sequences = (
        draw(st.booleans()),
        [PostponedSequence(name.dataset_urn, name.epoch, "why") for name in names],
    )
    rebuilt = tuple(DatasetState(urn, watermark=new_watermarks[urn]) for urn in urns)
    failure = [DatasetReadFailure(urn, low, new_watermarks[urn], "why", outage=once) for urn in urns]
    heads = [Head(bucket, draw(st.integers(1, 9)), "0123456789abcdef") for bucket in range(2)]
    asked: list[Asked] = [
        partial(next_log_record.fence, epoch=epoch, run_id="run"),
        partial(next_log_record.fence_job, run_id="run", begun_at=before.fence_epoch),
        partial(next_log_record.seal, epoch=epoch, sequences=sealed, gate=draw(st.sampled_from(Gate))),
        partial(next_log_record.close, epoch=epoch, names=names),
        partial(next_log_record.drop, epoch=epoch, names=names),
        partial(next_log_record.fail, epoch=epoch, name=names[0], reason="why", for_good=once, max_attempts=epoch % 3),
        partial(next_log_record.postpone, epoch=epoch, postponed=left_sequences, outage=once),
        partial(next_log_record.read_failures, epoch=epoch, failures=failure, stop_after=epoch % 3),
        partial(next_log_record.decide, epoch=epoch),
        partial(next_log_record.operator_decision, action=action, name=names[0], user="person"),
        partial(
            next_log_record.set_watermark,
            before=before.state_of(urns[0]),
            watermark=new_watermarks[urns[0]],
            user="person",
        ),
        partial(
            next_log_record.set_watermarks,
            requested=new_watermarks,
            before={urn: before.state_of(urn).watermark for urn in urns},
            user="person",
        ),
        partial(
            next_log_record.rebuild, epoch=epoch, states=rebuilt, dataset_states=before.datasets.copy(), user="person"
        ),
        partial(next_log_record.checkpoint, at_least=epoch),
        partial(next_log_record.cut, epoch=epoch, phase=draw(st.sampled_from(CutPhase)), reported=heads),
        partial(next_log_record.heads, generation=fold.generation, reported=heads, user="person"),
        partial(next_log_record.end, epoch=epoch, reported=heads, at_least=2),
        partial(next_log_record.discard_heads, epoch=epoch, user="person"),
        partial(next_log_record.rebucket, epoch=epoch, generation=fold.generation + 1, buckets=2, settings={}),
        partial(next_log_record.move, epoch=epoch, generation=1),
        partial(next_log_record.switch, epoch=epoch, generation=fold.generation + once),
    ]
    return draw(st.sampled_from(asked))


@pytest.mark.thorough
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a history is drawn record by record
@given(st.data())
def test_answered_record_is_valid_and_once_written_completes_the_request(data: st.DataObject) -> None:
    fold = data.draw(folds())
    ask = data.draw(questions(fold))
    for _ in range(LONGEST):
        record = ask(fold)
        if record is None:
            return
        assert valid(record, fold), record
        apply(fold.number + 1, record, fold)
    pytest.fail(f"it never comes to an end: {ask}")


@pytest.mark.thorough
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a history is drawn record by record
@given(st.data())
def test_fenced_run_gets_no_record(data: st.DataObject) -> None:
    fold = data.draw(folds())
    apply(fold.number + 1, Fence(fold.fence_epoch + 2, "newer"), fold)
    epoch = fold.fence_epoch - 1
    names = [SequenceName(urn, s.epoch) for urn in FEW_URNS if (s := fold.state_of(urn).sequence) is not None]
    sealed = [SealedSequence(urn, epoch, fold.state_of(urn).watermark, None, ()) for urn in FEW_URNS]
    assert next_log_record.seal(fold, epoch, sealed) is None
    assert next_log_record.close(fold, epoch, names) is None
    assert next_log_record.drop(fold, epoch, names) is None
    failure = [DatasetReadFailure(urn, fold.state_of(urn).watermark, Watermark({"0": 9}), "why") for urn in FEW_URNS]
    assert next_log_record.read_failures(fold, epoch, failure, stop_after=1) is None
    assert next_log_record.decide(fold, epoch) is None
    for name in names:
        left_sequences = [PostponedSequence(name.dataset_urn, name.epoch, "why")]
        assert next_log_record.fail(fold, epoch, name, "why", for_good=True) is None
        assert next_log_record.postpone(fold, epoch, left_sequences, outage=False) is None


def sealed_by(epoch: int, urn: str = "d") -> Fold:
    fold = Fold()
    apply(1, Fence(epoch, "run"), fold)
    apply(2, Intent(epoch, (SealedSequence(urn, epoch, None, Watermark({"0": 5}), ()),)), fold)
    return fold


def test_repeated_attempt_counts_once_and_the_last_attempt_quarantines() -> None:
    fold, name = sealed_by(1), SequenceName("d", 1)
    assert next_log_record.fail(fold, 1, name, "why", for_good=False, max_attempts=2) == Failed(1, name, False, "why")
    apply(3, Failed(1, name, False, "why"), fold)
    assert next_log_record.fail(fold, 1, name, "why", for_good=False, max_attempts=2) is None
    apply(4, Fence(2, "next"), fold)
    assert next_log_record.fail(fold, 2, name, "why", for_good=False, max_attempts=2) == Failed(2, name, True, "why")


def test_quarantined_sequence_may_still_be_closed_by_the_run_that_published_it() -> None:
    fold, name = sealed_by(1), SequenceName("d", 1)
    apply(3, Failed(1, name, True, "why"), fold)
    assert next_log_record.close(fold, 1, [name]) == Done(1, (name,))


def test_sealable_sequences_of_a_batch_are_sealed() -> None:
    fold = sealed_by(1, "a")
    both = [SealedSequence(urn, 1, None, Watermark({"0": 9}), ()) for urn in ("a", "b")]
    record = next_log_record.seal(fold, 1, both)
    assert record is not None
    assert [sequence.dataset_urn for sequence in record.sequences] == ["b"]


def test_run_overtaken_before_its_fence_does_not_fence() -> None:
    fold = Fold()
    apply(1, Fence(1, "other"), fold)
    assert next_log_record.fence_job(fold, "mine", begun_at=0) is None
    assert next_log_record.fence_job(fold, "mine", begun_at=1) == Fence(2, "mine")


def test_watermark_is_set_only_from_the_state_that_the_operator_saw() -> None:
    fold, state = Fold(), DatasetState("d")
    apply(1, Fence(1, "run"), fold)
    assert next_log_record.set_watermark(fold, state, Watermark({"0": 3}), "person") is not None
    apply(2, Intent(1, (SealedSequence("d", 1, None, Watermark({"0": 5}), ()),)), fold)
    assert fold.state_of("d").status is DatasetStatus.PENDING
    assert next_log_record.set_watermark(fold, state, Watermark({"0": 3}), "person") is None


def test_cut_lowers_no_head_and_is_incomplete_without_the_heads_that_it_missed() -> None:
    fold = Fold()
    apply(1, Fence(1, "r1"), fold)
    first = next_log_record.cut(fold, 1, CutPhase.BEGAN, [Head(0, 5, "a"), Head(1, 7, "b")])
    assert first is not None
    apply(2, first, fold)
    assert next_log_record.cut(fold, 1, CutPhase.BEGAN, []) is None, "the head is there"
    second = next_log_record.cut(fold, 1, CutPhase.ENDED, [Head(0, 4, "c")])
    assert second is not None
    assert second.heads == (Head(0, 5, "a"), Head(1, 7, "b", is_complete=False))
    other = next_log_record.cut(fold, 1, CutPhase.ENDED, [Head(0, 5, "another segment there"), Head(1, 7, "b")])
    assert other is not None
    assert other.heads == first.heads, "the known head identifies a different log"
    apply(3, second, fold)
    by_hand = next_log_record.heads(fold, 0, [Head(0, 5, "a"), Head(1, 8, "d")], "me")
    assert by_hand is not None
    assert by_hand.heads == (Head(1, 8, "d", is_complete=False),), (
        "one log has nothing new, and the other's loss is not repaired"
    )
    apply(4, by_hand, fold)
    assert next_log_record.discard_heads(fold, 0, "me") is None, "a newer run has fenced it"
    forgotten = next_log_record.discard_heads(fold, 1, "me")
    assert forgotten is not None
    apply(5, forgotten, fold)
    assert not fold.heads


def test_newest_run_ends_with_a_cut_and_then_a_checkpoint_if_one_is_due() -> None:
    fold = Fold()
    apply(1, Fence(1, "r1"), fold)
    ended = next_log_record.end(fold, 1, [], at_least=2)
    assert isinstance(ended, Cut)
    apply(2, ended, fold)
    assert fold.has_ended
    assert next_log_record.end(fold, 1, [], at_least=3) is None
    assert isinstance(next_log_record.end(fold, 1, [], at_least=2), Checkpoint)
    apply(3, Fence(2, "r2"), fold)
    assert next_log_record.end(fold, 1, [], at_least=2) is None
    assert not fold.has_ended


def test_heads_of_superseded_logs_are_never_recorded() -> None:
    fold = Fold()
    records: list[Record] = [Fence(1, "r"), Rebucket(1, 1, 4), Generation(1, 1)]
    for number, record in enumerate(records, start=1):
        apply(number, record, fold)
    assert next_log_record.heads(fold, 0, [Head(3, 57, "a")], "me") is None, "a head that the new log will not have"
    assert next_log_record.heads(fold, 1, [Head(3, 1, "b")], "me") is not None


def test_rebuild_closes_its_sequences_for_all_runs_that_have_begun() -> None:
    fold, rebuilt = Fold(), DatasetState("d", watermark=Watermark({"0": 5}))
    apply(1, Fence(3, "rebuild"), fold)
    record = next_log_record.rebuild(fold, 3, (rebuilt,), {}, "me")
    assert record is not None
    apply(2, record, fold)
    assert fold.state_of("d").closed_epoch == 3
    assert next_log_record.is_rebuilt(fold, 3, rebuilt)
    assert next_log_record.rebuild(fold, 3, (rebuilt,), {"d": rebuilt}, "me") is None


def test_generation_begins_with_its_own_schema_ids() -> None:
    fold = Fold()
    apply(1, Checkpoint(3, "run", (), tuple(DatasetState(urn, schemas={"avro": (1,)}) for urn in ("d", "e")), 0), fold)
    [beginning] = next_log_record.beginnings([fold], 1, lambda urn: 0, schemas={"d": {"avro": (7, 8)}})
    assert [state.schemas for state in beginning.datasets] == [{"avro": (7, 8)}, {"avro": (1,)}]
    assert next_log_record.beginning() == Fold().checkpoint()
