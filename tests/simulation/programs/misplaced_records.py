"""A program for the crash explorer: logs with records that are invalid at their place."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as replace_field

from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Head, Rebucket
from distcommit.core.records.log_records import Done, Dropped, Intent, OperatorAction, OperatorDecision, Record
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.recover import recover_partition
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.stores.logs.segment_format import Segment, encode_segment
from tests.simulation.log_watch import ANOTHERS_ID
from tests.simulation.programs.parts import SOURCE, Program, half_done, new_machine, put_file, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import World


def _misplaced(fold: Fold) -> tuple[Record, ...]:
    """Return records that are invalid after this fold.

    They are of a run that never was, of sequences in the wrong state or named twice, of an old position in another log,
    or of an unknown generation.
    """
    epoch, next_low = fold.fence_epoch, Watermark({"0": 7})
    new = SealedSequence("new", epoch, None, None, ())
    failure = DatasetReadFailure("new", None, next_low, "made up")
    passed = Head(0, max([0, *(head.number for head in fold.heads.values())]) - 1, "")
    pending = tuple(SequenceName(opened.sequence.dataset_urn, opened.sequence.epoch) for opened in fold.pending())
    return (
        Decide(epoch + 99),
        Done(epoch + 99, (SequenceName("a", 1),)),
        Intent(epoch, (new, new)),
        Intent(epoch, (replace_field(new, epoch=epoch - 1),)),
        Intent(epoch, (replace_field(new, low=next_low),)),
        ReadFailures(epoch, (failure, failure)),
        ReadFailures(epoch, (replace_field(failure, low=next_low),)),
        OperatorDecision(OperatorAction.READ_AGAIN, SequenceName("new", epoch), "somebody"),
        *([Dropped(epoch, pending)] if pending else []),
        Cut(epoch, CutPhase.BEGAN, (Head(0, 1, ""), Head(0, 1, ""))),
        *([Cut(epoch, CutPhase.BEGAN, (passed,))] if fold.heads else []),
        Rebucket(epoch, 7, 2),
        Generation(epoch, 1),
    )


def _foreign_records() -> SimulatedPosix:
    """Append records that are invalid at their place."""
    machine = new_machine()
    half_done(machine, World())
    store = World().store(machine)
    for log in (store.job_log(), store.bucket_log(0)):
        records = _misplaced(log.refresh())
        for number, record in enumerate(records, log.refresh().number + 1):
            segment = Segment(0, ANOTHERS_ID, record)
            put_file(machine, f"{log.folder}/{segment_name(number)}", encode_segment(segment))
    machine.syncfs("/")
    return machine


def _recover_with_a_stale_view(machine: SimulatedPosix) -> None:
    """Require that an executor with a view older than the run's fence does nothing, and one with a newer view
    replays."""
    settings = World().begin(machine, SOURCE)
    report = recover_partition(replace(settings, epoch=settings.epoch + 1, run_id="not seen"), 0).report
    if report.counts.buckets or not report.reasons:
        raise AssertionError("an executor continued with a stale view")
    recover_partition(settings, 0)


def _run_again(machine: SimulatedPosix) -> str:
    return run_and_look(machine, World(), SOURCE)


MISPLACED_RECORDS = (Program("foreign-records", _foreign_records, _recover_with_a_stale_view, _run_again),)
