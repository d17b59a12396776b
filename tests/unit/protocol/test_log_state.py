"""Record validity: one hazard a test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Rebucket
from distcommit.core.records.log_records import (
    DatasetState,
    DatasetStatus,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    Moved,
    OperatorAction,
    OperatorDecision,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.previous_run import PreviousRun
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import valid


def at(offset: int) -> Watermark:
    return Watermark({"0": offset})


def sequence(epoch: int, low: Watermark | None, high: Watermark, urn: str = "d") -> SealedSequence:
    return SealedSequence(urn, epoch, low, high, (), {"0": 0}, (), 1, 1)


def folded(*records: Record) -> Fold:
    fold = Fold()
    for number, record in enumerate(records, 1):
        apply(number, record, fold)
    assert fold.ignored == []
    return fold


FENCED = Fence(1, "r1")
SEALED = Intent(1, (sequence(1, None, at(5)),))
D1 = SequenceName("d", 1)


def test_sequence_goes_from_sealed_to_published_and_moves_the_watermark_with_done() -> None:
    fold = folded(FENCED, SEALED)
    assert fold.state_of("d").watermark is None
    apply(3, Done(1, (D1,)), fold)
    state = fold.state_of("d")
    assert (state.status, state.watermark, state.done_epoch) == (DatasetStatus.IDLE, at(5), 1)


def test_watermark_before_it_was_unset_is_remembered_until_a_sequence_sets_a_new_one() -> None:
    reprocessed = SealedSequence("d", 2, None, None, (), {}, (), 1, 1)
    fold = folded(FENCED, SEALED, Done(1, (D1,)), SetWatermark("d", None, "ann"), Fence(5, "r2"))
    assert fold.state_of("d").unset_watermark == at(5)
    apply(6, Intent(5, (replace(reprocessed, epoch=5),)), fold)
    apply(7, Done(5, (SequenceName("d", 5),)), fold)
    assert fold.ignored == []
    assert (fold.state_of("d").watermark, fold.state_of("d").unset_watermark) == (None, at(5))
    fence = Fence(8, "r3")
    apply(8, fence, fold)
    apply(9, Intent(8, (sequence(8, None, at(7)),)), fold)
    apply(10, Done(8, (SequenceName("d", 8),)), fold)
    assert fold.ignored == []
    assert (fold.state_of("d").watermark, fold.state_of("d").unset_watermark) == (at(7), None)


@pytest.mark.parametrize(
    ("record", "hazard"),
    [
        (Intent(0, (sequence(0, None, at(5)),)), "an epoch without a fence seals"),
        (Intent(2, (sequence(2, None, at(5)),)), "an epoch seals before its fence"),
        (Intent(1, (sequence(1, at(3), at(5)),)), "planned on another watermark"),
        (Intent(1, (sequence(2, None, at(5)),)), "sealed under another's name"),
        (Intent(1, (sequence(1, None, at(5)), sequence(1, None, at(6)))), "two sequences of one dataset"),
        (Intent(1, (sequence(1, at(3), at(5)),), Gate.PASSED), "published from another watermark"),
        (Done(1, (D1,)), "closing what was never sealed"),
        (Failed(1, D1, True, ""), "failing what was never sealed"),
        (Fence(1, "other"), "two runs of one epoch"),
        (Decide(2), "deciding for another epoch"),
        (OperatorDecision(OperatorAction.RETRY, D1, "me"), "releasing what is not quarantined"),
    ],
)
def test_invalid_record_at_its_position_changes_nothing(record: Record, hazard: str) -> None:
    fold = folded(FENCED)
    assert not valid(record, fold), hazard
    before = dict(fold.datasets)
    apply(2, record, fold)
    assert (fold.datasets, fold.fence_epoch, fold.decided_epochs) == (before, 1, frozenset())
    assert fold.ignored == [(2, type(record).__name__)]


def test_fenced_epoch_can_neither_seal_nor_close_nor_fail() -> None:
    fold = folded(FENCED, SEALED, Fence(2, "r2"))
    assert not valid(Intent(1, (sequence(1, None, at(5), "e"),)), fold)
    assert not valid(Done(1, (D1,)), fold)
    assert not valid(Failed(1, D1, False, ""), fold)
    assert valid(Done(2, (D1,)), fold), "the newer run closes the older run's sequence"


def test_sequence_published_at_its_seal_is_closed_and_cannot_be_sealed_again() -> None:
    unsealed = Intent(1, (sequence(1, None, at(5)),), Gate.PASSED)
    fold = folded(FENCED, unsealed)
    state = fold.state_of("d")
    assert (state.status, state.sequence, state.watermark) == (DatasetStatus.IDLE, None, at(5))
    assert (state.closed_epoch, state.done_epoch, state.done_files) == (1, 1, 1)
    assert not valid(unsealed, fold)
    assert not valid(Intent(1, (sequence(1, at(5), at(6)),), Gate.PASSED), fold)
    assert not valid(Done(1, (D1,)), fold)


def test_twins_cannot_seal_again_after_done_even_if_the_watermark_did_not_move() -> None:
    still = Intent(1, (sequence(1, None, at(0)),))
    fold = folded(FENCED, still, Done(1, (D1,)))
    assert not valid(Intent(1, (sequence(1, at(0), at(0)),)), fold)


def test_set_by_an_operator_stops_a_running_plan() -> None:
    fold = folded(FENCED, SetWatermark("d", None, "me"))
    assert not valid(SEALED, fold)
    assert valid(Intent(2, (sequence(2, None, at(5)),)), folded(FENCED, SetWatermark("d", None, "me"), Fence(2, "r2")))


def test_set_is_rejected_while_a_sequence_is_pending() -> None:
    assert not valid(SetWatermark("d", at(0), "me"), folded(FENCED, SEALED))


def test_retry_makes_a_quarantined_sequence_pending_without_counted_attempts() -> None:
    fold = folded(FENCED, SEALED, Failed(1, D1, True, "gone"))
    assert fold.state_of("d").status is DatasetStatus.QUARANTINED
    assert fold.pending() == []
    apply(4, OperatorDecision(OperatorAction.RETRY, D1, "me"), fold)
    assert fold.state_of("d").status is DatasetStatus.PENDING
    assert fold.state_of("d").tried_epochs == ()


def test_done_ends_a_quarantine_but_never_a_revocation() -> None:
    quarantined = folded(FENCED, SEALED, Failed(1, D1, True, "gone"))
    assert valid(Done(1, (D1,)), quarantined)
    apply(4, OperatorDecision(OperatorAction.REVOKING, D1, "me"), quarantined)
    assert not valid(Done(1, (D1,)), quarantined)
    assert valid(OperatorDecision(OperatorAction.ABANDONED, D1, "me"), quarantined)


def test_abandon_keeps_the_watermark_and_accept_moves_it_with_a_mark() -> None:
    fold = folded(FENCED, SEALED, Failed(1, D1, True, "x"), OperatorDecision(OperatorAction.REVOKING, D1, "me"))
    apply(5, OperatorDecision(OperatorAction.ABANDONED, D1, "me"), fold)
    assert fold.state_of("d").watermark is None
    fold = folded(FENCED, SEALED, Failed(1, D1, True, "x"), OperatorDecision(OperatorAction.ACCEPT, D1, "me"))
    state = fold.state_of("d")
    assert (state.watermark, state.accepted_epochs, state.status) == (at(5), (1,), DatasetStatus.IDLE)


def test_newest_accepted_sequences_are_kept_however_many_are_accepted() -> None:
    fold = folded(FENCED)
    for number, epoch in enumerate(range(2, 50), 2):
        sequence = SequenceName("d", epoch)
        low = at(epoch) if epoch > 2 else None
        sealed = SealedSequence("d", epoch, low, at(epoch + 1), ())
        apply(4 * number, Fence(epoch, "r"), fold)
        apply(4 * number + 1, Intent(epoch, (sealed,)), fold)
        apply(4 * number + 2, Failed(epoch, sequence, True, "x"), fold)
        apply(4 * number + 3, OperatorDecision(OperatorAction.ACCEPT, sequence, "me"), fold)
    assert fold.state_of("d").accepted_epochs == (49,)


def test_attempts_count_runs_not_retries() -> None:
    fold = folded(FENCED, SEALED, Failed(1, D1, False, "x"), Failed(1, D1, False, "y"))
    assert fold.state_of("d").tried_epochs == (1,)


def test_held_sequences_are_dropped_only_by_a_newer_epoch() -> None:
    fold = folded(FENCED, replace(SEALED, gate=Gate.HELD))
    assert not valid(Dropped(1, (D1,)), fold)
    apply(3, Fence(2, "r2"), fold)
    assert valid(Dropped(2, (D1,)), fold)
    assert not valid(Dropped(2, (D1,)), folded(FENCED, SEALED, Fence(2, "r2"))), "only the held sequence"


def test_decision_counts_only_before_the_next_fence() -> None:
    assert valid(Decide(1), folded(FENCED))
    assert not valid(Decide(1), folded(FENCED, Fence(2, "r2")))


def test_checkpoint_carries_the_whole_fold() -> None:
    fold = folded(FENCED, SEALED, Decide(1), Intent(1, (sequence(1, None, at(7), "e"),), Gate.HELD))
    apply(5, fold.checkpoint(), fold)
    again = Fold()
    apply(5, fold.checkpoint(), again)
    assert (again.datasets, again.fence_epoch, again.fence_run_id) == (fold.datasets, 1, "r1")
    assert again.decided_epochs == frozenset({1})


def test_origin_is_the_first_position_that_was_read() -> None:
    fold = folded(FENCED, SEALED, Done(1, (D1,)), Fence(2, "r2"))
    second = replace(sequence(2, at(5), Watermark({"0": 9, "1": 4})), start={"0": 5, "1": 2})
    apply(5, Intent(2, (second,)), fold)
    apply(6, Done(2, (SequenceName("d", 2),)), fold)
    assert fold.state_of("d").origin == {"0": 0, "1": 2}


def test_schemas_are_those_of_published_sequences_by_converter() -> None:
    def sealed(epoch: int, low: Watermark | None, **schemas: tuple[int, ...]) -> Intent:
        return Intent(epoch, (replace(sequence(epoch, low, at(5)), schemas=schemas),))

    first = folded(FENCED, sealed(1, None, avro=(1, 2), key=(9,)))
    assert first.state_of("d").schemas == {}
    apply(3, Done(1, (D1,)), first)
    assert first.state_of("d").schemas == {"avro": (1, 2), "key": (9,)}
    apply(4, Fence(2, "r"), first)
    apply(5, sealed(2, at(5), avro=(1, 2, 3)), first)
    apply(6, Done(2, (SequenceName("d", 2),)), first)
    assert first.state_of("d").schemas == {"avro": (1, 2, 3), "key": (9,)}, "a record without schemas changes none"
    dropped = folded(FENCED, sealed(1, None, avro=(1,)))
    for action in (OperatorAction.QUARANTINE, OperatorAction.REVOKING, OperatorAction.ABANDONED):
        apply(3, OperatorDecision(action, D1, "me"), dropped)
    assert (dropped.state_of("d").open, dropped.state_of("d").schemas) == (None, {})


def test_watermarks_are_set_together_or_not_at_all() -> None:
    new_watermarks = SetWatermarks({"d": at(9), "e": at(3)}, "me")
    assert not valid(new_watermarks, folded(FENCED, SEALED))
    fold = folded(FENCED, new_watermarks)
    assert (fold.state_of("d").watermark, fold.state_of("e").watermark) == (at(9), at(3))
    assert fold.state_of("e").origin == {"0": 3}
    assert not valid(Intent(1, (sequence(1, at(9), at(10)),)), fold), "a run that had planned before the set"


def test_rebuilt_state_replaces_any_other_only_under_the_fence() -> None:
    state = DatasetState("d", watermark=at(9), closed_epoch=2, done_epoch=1, origin={"0": 0})
    fold = folded(FENCED, SEALED, Fence(2, "r2"))
    assert not valid(Rebuilt(1, (state,), "me"), fold), "by a fenced writer"
    assert not valid(Rebuilt(2, (state, state), "me"), fold)
    assert not valid(Rebuilt(2, (replace(state, closed_epoch=3),), "me"), fold), "closed for any future run"
    apply(4, Rebuilt(2, (state,), "me"), fold)
    assert fold.state_of("d") == state
    assert not valid(Done(2, (D1,)), fold), "the pending sequence is gone"


def test_run_has_ended_when_its_last_cut_follows_the_newest_fence() -> None:
    fold = folded(FENCED, Cut(1, CutPhase.BEGAN, ()))
    assert not fold.has_ended
    apply(3, fold.checkpoint(), fold)
    assert not fold.has_ended
    apply(4, Cut(1, CutPhase.ENDED, ()), fold)
    assert fold.has_ended
    apply(5, fold.checkpoint(), fold)
    assert fold.has_ended
    apply(6, Fence(3, "r3"), fold)
    assert not fold.has_ended


# -- read failures

END = Watermark({"0": 8, "1": 4})


def not_read(
    epoch: int, low: Watermark | None, *, stops: bool = False, outage: bool = False, urn: str = "d"
) -> ReadFailures:
    return ReadFailures(epoch, (DatasetReadFailure(urn, low, END, f"SourceError: {epoch}", stops, outage),))


def test_consecutive_failed_reads_are_counted_and_outages_only_reported() -> None:
    fold = folded(FENCED, not_read(1, None))
    assert fold.state_of("d").read_failure == ReadFailure(1, 1, END, "SourceError: 1")
    apply(3, Fence(2, "r2"), fold)
    apply(4, not_read(2, None, outage=True), fold)
    assert fold.state_of("d").read_failure == ReadFailure(2, 1, END, "SourceError: 2", outage=True)
    apply(5, Fence(3, "r3"), fold)
    apply(6, not_read(3, None, stops=True), fold)
    assert fold.state_of("d").read_failure == ReadFailure(3, 2, END, "SourceError: 3", stopped=True)
    assert fold.state_of("d").is_stopped
    assert fold.ignored == []


@pytest.mark.parametrize(
    ("before", "record"),
    [
        ([FENCED, Fence(2, "r2")], not_read(1, None)),
        ([FENCED, not_read(1, None)], not_read(1, None)),
        ([FENCED, SEALED], not_read(1, None)),
        ([FENCED, SEALED, Done(1, (D1,))], not_read(1, None)),
        ([FENCED, SEALED, Done(1, (D1,))], not_read(1, at(5))),
        ([FENCED, SetWatermark("d", None, "me")], not_read(1, None)),
        ([FENCED], ReadFailures(1, not_read(1, None).datasets * 2)),
        ([FENCED, SetWatermark("d", at(3), "me"), Fence(2, "r2")], not_read(2, None)),
    ],
    ids=["fenced", "twice", "sealed", "done", "done whole", "set since", "named twice", "another watermark"],
)
def test_read_failures_of_invalid_writers_are_ignored(before: list[Record], record: Record) -> None:
    assert not valid(record, folded(*before))


def test_rest_of_a_partially_published_range_can_be_recorded_as_a_read_failure() -> None:
    part = replace(sequence(1, None, at(5)), partial_reason="SourceError: 1")
    fold = folded(FENCED, Intent(1, (part,)), Done(1, (D1,)), not_read(1, at(5)))
    failure = fold.state_of("d").read_failure
    assert failure is not None
    assert failure.failed_runs == 1


@pytest.mark.parametrize(("stays", "whole"), [(True, False), (False, False), (True, True)])
def test_partial_commit_resets_the_failures_of_moved_partitions_and_a_full_one_those_of_all(
    stays: bool, whole: bool
) -> None:
    low, high = Watermark({"0": 5, "1": 4}), Watermark({"0": 5 if stays else 8, "1": 4, "2": 1})
    part = replace(sequence(2, low, high), partial_reason="" if whole else "SourceError: 2")
    fold = folded(FENCED, SetWatermark("d", low, "me"), Fence(2, "r2"))
    fold.datasets["d"] = replace(
        fold.state_of("d"), read_failure=ReadFailure(1, 2, Watermark({"0": 8}), "SourceError: 1")
    )
    apply(4, Intent(2, (part,)), fold)
    apply(5, Done(2, (SequenceName("d", 2),)), fold)
    failure = fold.state_of("d").read_failure
    assert failure == (ReadFailure(1, 2, Watermark({"0": 8}), "SourceError: 1") if stays and not whole else None)


def test_moved_watermark_set_and_rebuild_reset_failures_and_an_unmoved_watermark_does_not() -> None:
    failure = ReadFailure(1, 2, END, "SourceError: 1", True)
    fold = folded(FENCED, Fence(2, "r2"))
    fold.datasets["d"] = DatasetState("d", watermark=at(5), read_failure=failure)
    fed_again = Intent(2, (sequence(2, at(5), at(5)),))
    apply(3, fed_again, fold)
    apply(4, Done(2, (SequenceName("d", 2),)), fold)
    assert fold.state_of("d").read_failure == failure, "nothing was read from the source"
    for record in (
        SetWatermark("d", at(7), "me"),
        SetWatermarks({"d": at(7)}, "me"),
        Rebuilt(2, (DatasetState("d", watermark=at(5)),), "me"),
    ):
        after = folded(FENCED, Fence(2, "r2"))
        after.datasets["d"] = DatasetState("d", watermark=at(5), read_failure=failure)
        apply(3, record, after)
        assert after.state_of("d").read_failure is None


def test_newest_run_that_committed_or_failed_is_the_previous_run_until_the_watermark_is_set() -> None:
    runs = [PreviousRun(epoch, (), epoch) for epoch in range(4)]
    sealed = Intent(1, (replace(sequence(1, None, at(5)), run=runs[1]),))
    failed = DatasetReadFailure("d", at(5), END, "SourceError: 2", run=runs[2])
    fold = folded(FENCED, sealed)
    assert fold.state_of("d").previous_run is None, "a sealed sequence is not done"
    for number, record, expected in (
        (3, Done(1, (D1,)), runs[1]),
        (4, Fence(2, "r2"), runs[1]),
        (5, ReadFailures(2, (failed,)), runs[2]),
        (6, Intent(2, (replace(sequence(2, at(5), at(6)), run=runs[3]),)), runs[2]),
        (7, Done(2, (SequenceName("d", 2),)), runs[3]),
        (8, Fence(3, "r3"), runs[3]),
        (9, Intent(3, (sequence(3, at(6), at(6)),)), runs[3]),
        (10, Done(3, (SequenceName("d", 3),)), runs[3]),
        (11, SetWatermark("d", at(2), "me"), None),
    ):
        apply(number, record, fold)
        assert fold.state_of("d").previous_run == expected
    assert fold.ignored == []


def test_operator_resumes_only_a_stopped_dataset() -> None:
    fold = folded(FENCED, not_read(1, None, stops=True), not_read(1, None, urn="e"))
    again = OperatorDecision(OperatorAction.READ_AGAIN, D1, "me")
    for other in (SequenceName("d", 2), SequenceName("e", 1), SequenceName("f", 1)):
        assert not valid(OperatorDecision(OperatorAction.READ_AGAIN, other, "me"), fold)
    for action in OperatorAction:
        assert valid(OperatorDecision(action, D1, "me"), fold) is (action is OperatorAction.READ_AGAIN)
    apply(4, again, fold)
    assert fold.state_of("d").read_failure == ReadFailure(1, 0, END, "SourceError: 1")
    assert not valid(again, fold), "it is resumed already"
    assert not valid(not_read(1, None), fold), "the run has recorded it already"


def test_read_failures_survive_checkpoints_and_rebucketing() -> None:
    fold, again = folded(FENCED, not_read(1, None, stops=True)), Fold()
    apply(3, fold.checkpoint(), again)
    assert again.datasets == fold.datasets
    apply(4, Moved(1, 1), fold)
    assert next_log_record.beginnings([fold], 1, lambda urn: 0)[0].datasets == (fold.state_of("d"),)


POSITIONS = st.dictionaries(st.sampled_from("012"), st.integers(0, 9), min_size=1)


@given(before=POSITIONS, origin=POSITIONS, after=POSITIONS, incarnations=st.sampled_from(["same", "other"]))
def test_each_partition_begins_where_it_began_unless_an_operator_goes_behind_that(
    before: dict[str, int], origin: dict[str, int], after: dict[str, int], incarnations: str
) -> None:
    """Positions of another incarnation, and of new partitions, begin at their own origin. `tests/spec/set_model.py` is
    the model.
    """
    old, new_watermark = Watermark({**before}, "same"), Watermark({**after}, incarnations)
    rebuilt = DatasetState("d", watermark=old, origin={**origin})
    for record in (SetWatermark("d", new_watermark, "me"), SetWatermarks({"d": new_watermark}, "me")):
        rebuilt_origin = folded(FENCED, Rebuilt(1, (rebuilt,), "me"), record).state_of("d").origin
        for partition, at in after.items():
            if incarnations == "same" and partition in before:
                first = origin.get(partition)
                is_behind = first is not None and at < min(first, before[partition])
                assert rebuilt_origin.get(partition) == (at if is_behind else first)
            else:
                assert rebuilt_origin.get(partition) == at
    forgotten = folded(FENCED, Rebuilt(1, (rebuilt,), "me"), SetWatermark("d", None, "me")).state_of("d")
    assert (forgotten.origin, forgotten.watermark, forgotten.reached) == (origin, None, old)


def with_targets(epoch: int, low: Watermark | None, high: Watermark, **targets: tuple[int, ...]) -> SealedSequence:
    return replace(sequence(epoch, low, high), targets=targets)


def test_done_records_the_committed_epoch_of_each_target() -> None:
    fold = folded(FENCED, Intent(1, (with_targets(1, None, at(5), main=(1,), late=(0,)),)))
    assert (fold.state_of("d").bases("main"), fold.state_of("d").bases("late")) == ((0,), (0,))
    apply(3, Done(1, (D1,)), fold)
    state = fold.state_of("d")
    assert (state.bases("main"), state.bases("late")) == ((1,), (0,))
    assert state.bases("new") == (), "an epoch that was never recorded is unknown"
    assert folded(fold.checkpoint()).state_of("d") == state


def test_accept_keeps_both_epochs_and_abandon_or_drop_keeps_the_old() -> None:
    failed = Failed(1, D1, True, "no")
    sealed = Intent(1, (with_targets(1, None, at(5), main=(1,), late=(0,)),))
    accepted = folded(FENCED, sealed, failed, OperatorDecision(OperatorAction.ACCEPT, D1, "p")).state_of("d")
    assert (accepted.bases("main"), accepted.bases("late")) == ((0, 1), (0,))
    by_hand = [OperatorDecision(action, D1, "p") for action in (OperatorAction.REVOKING, OperatorAction.ABANDONED)]
    assert folded(FENCED, sealed, failed, *by_hand).state_of("d").bases("main") == (0,)


def test_unknown_target_epoch_stays_unknown_after_accept_and_is_known_after_done() -> None:
    """Older programs committed the first sequence."""
    older: list[Record] = [FENCED, SEALED, Done(1, (D1,)), Fence(2, "r2")]
    name = SequenceName("d", 2)
    then = Intent(2, (with_targets(2, at(5), at(6), main=(2,)),))
    assert folded(*older).state_of("d").bases("main") == ()
    assert folded(*older, then, Done(2, (name,))).state_of("d").bases("main") == (2,)
    accept = OperatorDecision(OperatorAction.ACCEPT, name, "p")
    assert folded(*older, then, Failed(2, name, True, "no"), accept).state_of("d").bases("main") == ()


def test_set_keeps_the_committed_epochs_of_targets() -> None:
    sealed = Intent(1, (with_targets(1, None, at(5), main=(1,)),))
    fold = folded(FENCED, sealed, Done(1, (D1,)), SetWatermark("d", at(2), "p"))
    assert fold.state_of("d").bases("main") == (1,)


@pytest.mark.parametrize(
    ("record", "counts"),
    [
        (Rebucket(1, 1, 8, {"names": "a"}), True),
        (Rebucket(1, 1, 9, {"names": "a"}), False),
        (Rebucket(1, 1, 8, {"names": "b"}), False),
        (Rebucket(1, 2, 8, {"names": "a"}), False),
        (Rebucket(1, 1, 0, {"names": "a"}), False),
    ],
    ids=["the same", "other buckets", "other settings", "the one after", "no bucket"],
)
def test_move_in_progress_is_resumed_and_no_other_is_begun(record: Rebucket, counts: bool) -> None:
    fold = Fold()
    apply(1, Fence(1, "r"), fold)
    apply(2, Rebucket(1, 1, 8, {"names": "a"}), fold)
    assert fold.under_way is not None
    assert valid(record, fold) is counts
