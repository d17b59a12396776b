"""Hypothesis strategies for everything in the protocol.

They are small on purpose: few names and positions, so that drawn values collide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from hypothesis import strategies as st
from msgspec import structs

from distcommit.core.dataset_urn import MAX_URN_BYTES
from distcommit.core.records.job_log_records import Cut, CutPhase, Decide, Generation, Head, Heads, Rebucket
from distcommit.core.records.log_records import (
    DatasetState,
    Done,
    Dropped,
    Failed,
    Fence,
    Gate,
    Intent,
    OperatorAction,
    OperatorDecision,
    Postponed,
    Rebuilt,
    Record,
    SetWatermark,
    SetWatermarks,
)
from distcommit.core.records.read_failure_records import DatasetReadFailure, ReadFailures
from distcommit.core.records.sealed_sequences import PostponedSequence, SealedSequence, SequenceName, StepBatch
from distcommit.core.watermark import Position, Watermark, as_offset
from distcommit.core.work_units import (
    MAIN_BRANCH,
    BranchResult,
    DatasetPlan,
    SkippedRange,
    StagedFile,
    TaskOutcome,
    TaskState,
    WorkUnit,
)
from distcommit.protocol.log_state import Fold
from distcommit.protocol.seal_decision import CommitPolicy
from tests.models.histories import Crash, Event, Grow, Lose, Overtaken, Released, Restore, Run, Set, Zombie

FEW_URNS = ("a", "b", "ünï/côde")
"""Datasets of a small job."""
PARTITIONS = ("0", "1")


def urns() -> st.SearchStrategy[str]:
    """Draw any text that can name a dataset."""
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
    special = st.sampled_from(["a", "..", ".hidden", "_x", "a/b", "a%2Fb", "x" * MAX_URN_BYTES, "é" * 400])
    return special | text.filter(lambda urn: len(urn.encode()) <= MAX_URN_BYTES)


def watermarks(highest: int = 3) -> st.SearchStrategy[Watermark]:
    """Draw integer positions from 0 to `highest` in one or two partitions, mostly of one incarnation."""
    positions = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, highest), min_size=1)
    return st.builds(Watermark, positions, st.sampled_from(["", "", "", "made-again"]))


def positions() -> st.SearchStrategy[Position]:
    """Draw positions of any type that a source may use."""
    scalars = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
    return scalars | st.lists(scalars, max_size=3).map(tuple)


def records_after(fold: Fold, urns: Sequence[str] = FEW_URNS) -> st.SearchStrategy[Record]:
    """Draw log records of every type but checkpoints that could follow a fold: valid ones, and those of stale or
    confused writers."""
    return st.sampled_from(_kinds_after(fold, urns)).flatmap(lambda kind: kind())


def _kinds_after(fold: Fold, urns: Sequence[str]) -> list[Callable[[], st.SearchStrategy[Record]]]:
    """Return the factory of each kind's strategy.

    Only the drawn kind's strategy is created: Hypothesis takes far longer to check a new strategy than to draw from it.
    """
    newest, gates = fold.fence_epoch, st.sampled_from(Gate)
    writers = _writers(newest)
    present = [SequenceName(urn, s.epoch) for urn in urns if (s := fold.state_of(urn).sequence) is not None]
    wrong = st.builds(SequenceName, st.sampled_from(list(urns)), st.integers(0, newest + 1))
    names = (st.sampled_from(present * 3) | wrong) if present else wrong
    stopped = [SequenceName(urn, left.epoch if (left := fold.state_of(urn).read_failure) else newest) for urn in urns]
    some = st.lists(names, min_size=1, max_size=2).map(tuple)
    sequences = st.lists(st.sampled_from(list(urns)).flatmap(lambda urn: _sequences(fold, urn)), min_size=1, max_size=2)
    free = [urn for urn in urns if (d := fold.state_of(urn)).sequence is None and d.closed_epoch < newest]

    return [
        *_likely_after(fold, free, present),
        lambda: st.builds(Fence, st.integers(max(1, newest - 1), newest + 3), st.sampled_from(["run-1", "run-2"])),
        lambda: writers.flatmap(
            lambda epoch: sequences.flatmap(
                lambda drawn: st.builds(Intent, st.just(epoch), st.just(tuple(drawn)), gates)
            )
        ),
        lambda: st.builds(Done, writers, some),
        lambda: st.builds(Failed, writers, names, st.booleans(), st.just("by the test")),
        lambda: st.builds(Postponed, writers, some.flatmap(lambda drawn: _left_sequences(fold, *drawn)), st.booleans()),
        lambda: st.builds(ReadFailures, writers, _unread(fold, urns)),
        lambda: st.builds(ReadFailures, writers, _unread(fold, urns)),
        lambda: st.builds(
            OperatorDecision, st.just(OperatorAction.READ_AGAIN), st.sampled_from(stopped), st.just("person")
        ),
        lambda: st.builds(Decide, writers),
        lambda: st.builds(Dropped, writers, some),
        lambda: st.builds(OperatorDecision, st.sampled_from(OperatorAction), names, st.just("person")),
        lambda: st.builds(SetWatermark, st.sampled_from(list(urns)), st.none() | watermarks(), st.just("person")),
        lambda: st.builds(SetWatermarks, st.dictionaries(st.sampled_from(list(urns)), watermarks()), st.just("person")),
        lambda: st.builds(Rebuilt, writers, st.lists(_rebuilt(urns), max_size=2).map(tuple), st.just("person")),
        lambda: st.builds(Cut, writers, st.sampled_from(CutPhase), _heads()),
        lambda: st.builds(Heads, _heads(), st.just("person")),
        lambda: st.builds(Rebucket, writers, st.integers(fold.generation, fold.generation + 2), st.integers(1, 3)),
        lambda: st.builds(Generation, writers, st.integers(fold.generation, fold.generation + 2)),
    ]


def _likely_after(
    fold: Fold, free: Sequence[str], present: Sequence[SequenceName]
) -> list[Callable[[], st.SearchStrategy[Record]]]:
    """Draw plausible records: of datasets that can be sealed, and of existing sequences."""
    newest = fold.fence_epoch

    def fitting() -> st.SearchStrategy[SealedSequence]:
        left_out = "" if newest % 2 else "a part"
        return st.builds(
            lambda urn, schemas: SealedSequence(
                urn,
                newest,
                fold.state_of(urn).watermark,
                Watermark({"0": newest}),
                _STEPS,
                partial_reason=left_out,
                schemas=schemas,
            ),
            st.sampled_from(free),
            _SCHEMAS,
        )

    likely: list[Callable[[], st.SearchStrategy[Record]]] = [
        lambda: st.builds(Fence, st.just(newest + 1), st.just("run-1"))
    ]
    if free:

        def sealed() -> st.SearchStrategy[Record]:
            return st.builds(Intent, st.just(newest), st.tuples(fitting()), st.sampled_from(Gate))

        def not_read() -> st.SearchStrategy[Record]:
            return st.builds(
                ReadFailures, st.just(newest), st.sampled_from(free).flatmap(lambda urn: _unread(fold, [urn]))
            )

        likely = [*[sealed] * 5, not_read, not_read]
    if present:
        of_present, left = st.sampled_from(present), partial(_left_sequences, fold)
        likely += [
            lambda: st.builds(Failed, st.just(newest), of_present, st.booleans(), st.just("by the test")),
            lambda: st.builds(Postponed, st.just(newest), of_present.flatmap(left), st.booleans()),
            lambda: st.builds(OperatorDecision, st.sampled_from(OperatorAction), of_present, st.just("person")),
            lambda: st.builds(Done, _writers(newest), of_present.map(lambda name: (name,))),
        ]
    return likely


def _writers(newest: int) -> st.SearchStrategy[int]:
    """Draw the epochs of writers: most often the newest one."""
    return st.sampled_from([newest, newest, newest, max(0, newest - 1), newest + 1])


_STEPS = (StepBatch("test", 1, b"\x90"), StepBatch("other", 1, b"\x90"))
_CHANGED = st.dictionaries(st.integers(0, 1), st.builds(StepBatch, st.just("test"), st.just(1), st.binary(max_size=2)))
_SCHEMAS = st.dictionaries(st.sampled_from(["avro", "late.json_schema"]), st.just((1,)) | st.just((1, 2)))


def _heads() -> st.SearchStrategy[tuple[Head, ...]]:
    head = st.builds(Head, st.integers(0, 2), st.integers(1, 9), st.just("0123456789abcdef"))
    return st.lists(head, max_size=3).map(tuple)


def _left_sequences(fold: Fold, *names: SequenceName) -> st.SearchStrategy[tuple[PostponedSequence, ...]]:
    def left(name: SequenceName, more: int, steps: dict[int, StepBatch]) -> PostponedSequence:
        changes = getattr(fold.state_of(name.dataset_urn).open, "changes", 0)
        return PostponedSequence(name.dataset_urn, name.epoch, "left by the test", max(0, changes + more), steps)

    return st.tuples(*(st.builds(left, st.just(name), st.integers(-1, 2), _CHANGED) for name in names))


def _unread(fold: Fold, urns: Sequence[str]) -> st.SearchStrategy[tuple[DatasetReadFailure, ...]]:
    one = st.sampled_from(list(urns)).flatmap(
        lambda urn: st.builds(
            DatasetReadFailure,
            st.just(urn),
            st.sampled_from([fold.state_of(urn).watermark] * 3 + [None]),
            watermarks(9),
            st.sampled_from(["SourceError: gone", "no answer"]),
            st.booleans(),
            st.booleans(),
        )
    )
    return st.lists(one, min_size=1, max_size=2).map(tuple)


def _rebuilt(urns: Sequence[str]) -> st.SearchStrategy[DatasetState]:
    return st.builds(
        lambda urn, watermark, epoch: DatasetState(urn, watermark=watermark, closed_epoch=epoch, done_epoch=epoch),
        st.sampled_from(list(urns)),
        watermarks(),
        st.integers(0, 3),
    )


def _sequences(fold: Fold, urn: str) -> st.SearchStrategy[SealedSequence]:
    """Draw sequences, mostly planned on the stored watermark, by the newest epoch."""
    stored = fold.state_of(urn).watermark
    lows = st.sampled_from([stored] * 4) | st.none() | watermarks()
    epochs = st.sampled_from([fold.fence_epoch] * 5 + [fold.fence_epoch + 1])
    steps = st.just((StepBatch("testing", 1, b"\x90"),))
    return st.builds(SealedSequence, st.just(urn), epochs, lows, st.none() | watermarks(9), steps)


@st.composite
def plans(draw: st.DrawFn, urn: str = "a", stored: Mapping[str, int] | None = None) -> DatasetPlan:
    """Draw a dataset's work units: old and new partitions, cut into ranges.

    Small ranges may share a work unit. The end of one partition may be unknown.
    """
    partitions = draw(st.lists(st.sampled_from("012"), min_size=1, max_size=3, unique=True))
    if stored is None:
        stored = draw(st.dictionaries(st.sampled_from(partitions), st.integers(0, 3)))
    start = {partition: draw(st.integers(0, 2)) for partition in partitions if partition not in stored}
    ranges: list[dict[str, tuple[int, int]]] = []
    for partition in partitions:
        low = start.get(partition, stored.get(partition, 0))
        high = low + draw(st.integers(0, 6))
        inner = draw(st.lists(st.integers(low, high), max_size=2, unique=True))
        cuts = sorted({low, *inner, high})
        if len(cuts) > 1 or partition in start:
            ranges += [{partition: cut} for cut in (list(pairwise(cuts)) or [(low, high)])]
    if len(ranges) > 1 and not ranges[0].keys() & ranges[-1].keys() and draw(st.booleans()):
        ranges = [ranges[0] | ranges[-1], *ranges[1:-1]]
    open_ended = draw(st.sets(st.sampled_from(partitions), max_size=1))
    last = {p: high for unit in ranges for p, (_, high) in unit.items()}
    units = tuple(
        WorkUnit(
            f"{place:06d}",
            urn,
            Watermark({p: low for p, (low, _) in unit.items()}),
            Watermark({p: high for p, (_, high) in unit.items() if p not in open_ended or high < last[p]}),
            sum(high - low for low, high in unit.values()),
        )
        for place, unit in enumerate(ranges)
    )
    return DatasetPlan(urn, Watermark(dict(stored)) if stored else None, Watermark(dict(start)), units)


@st.composite
def task_states(draw: st.DrawFn, plan: DatasetPlan, run_id: str = "run", epoch: int = 1) -> list[TaskState]:
    """Draw reports of attempts at a plan's work units: successes, failures, prefixes, several of each, and short
    reads."""
    states: list[TaskState] = []
    for unit in plan.work_units:
        for attempt in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
            name = f"{attempt}{draw(st.integers(0, 9))}"
            states.append(draw(_attempts(unit, run_id, epoch, name)))
    return draw(st.permutations(states))


@st.composite
def _attempts(draw: st.DrawFn, unit: WorkUnit, run_id: str, epoch: int, attempt: str) -> TaskState:
    outcome = draw(st.sampled_from([TaskOutcome.SUCCEEDED, *TaskOutcome]))
    reached = unit.low
    outputs: tuple[StagedFile, ...] = ()
    if outcome is not TaskOutcome.FAILED:
        ends = {p: unit.expected_high.positions.get(p, as_offset(low) + 3) for p, low in unit.low.positions.items()}
        reads = {p: draw(st.sampled_from([ends[p], ends[p], low])) for p, low in unit.low.positions.items()}
        reached = Watermark(reads)
        count = sum(as_offset(reads[p]) - as_offset(low) for p, low in unit.low.positions.items())
        path = f"{epoch}/{unit.work_unit_id}.{attempt}/0"
        if count:
            outputs = (StagedFile(path, f"{unit.dataset_urn}/{attempt}", count, draw(_WORDS), 0, 1, count),)
    error = "" if outcome is TaskOutcome.SUCCEEDED else draw(st.text(max_size=10))
    return TaskState(
        *(run_id, epoch, unit.dataset_urn, unit.work_unit_id, attempt, outcome, unit.low, unit.expected_high, reached),
        branches=(BranchResult(MAIN_BRANCH, "files", outputs, records_written=sum(f.records for f in outputs)),),
        records_read=sum(file.records for file in outputs),
        error=error.encode("utf-8", "replace").decode(),
    )


_WORDS = st.integers(0, 2**64 - 1)


def crashes() -> st.SearchStrategy[Crash]:
    """Draw deaths at any call, or at one of the critical ones; by a kill or by a power loss."""
    losses = st.just(0) | st.integers(1, 12)
    kinds = [("rename", "/output/"), ("rename", "/log/"), ("fsync_folder", "/output"), ("fsync_folder", "/log/")]
    aimed = st.sampled_from([*kinds, ("syncfs", ""), ("rename", "/task_states/"), ("unlink", ""), ("rmdir", "")])
    return st.builds(Crash, st.integers(1, 220), power_loss=losses) | aimed.flatmap(
        lambda at: st.builds(Crash, st.integers(1, 8), st.just(at[0]), st.just(at[1]), losses)
    )


def runs(*, disturbed: bool = True) -> st.SearchStrategy[Run]:
    """Draw runs under any policy and scope, with source failures; `disturbed` ones may also die."""
    pairs = st.tuples(st.sampled_from(FEW_URNS), st.sampled_from(PARTITIONS))
    return st.builds(
        Run,
        policy=st.sampled_from(CommitPolicy),
        job_level=st.sampled_from([False, False, True]),
        units=st.integers(1, 3),
        short=st.sampled_from([0, 0, 1]),
        fails=st.frozensets(pairs, max_size=1),
        stumbles=st.frozensets(pairs, max_size=2),
        hidden=st.frozensets(st.sampled_from(FEW_URNS), max_size=1) if disturbed else st.just(frozenset()),
        repeats=st.sampled_from([0, 0, 1, 2]),
        twins=st.booleans(),
        blocked=st.sampled_from(["", "", "", *FEW_URNS]) if disturbed else st.just(""),
        crash=st.none() | crashes() if disturbed else st.none(),
    )


def events() -> st.SearchStrategy[Event]:
    """Draw any event of a job."""
    few = st.sampled_from(FEW_URNS)
    grow = st.builds(Grow, few, st.sampled_from(PARTITIONS), st.integers(0, 5))
    return st.one_of(
        grow,
        grow,
        runs(),
        runs(disturbed=False),
        st.builds(Run, crash=crashes(), units=st.integers(1, 2), job_level=st.booleans()),
        st.builds(Overtaken, runs(disturbed=False), st.integers(1, 220), runs(disturbed=False)),
        st.builds(Zombie, st.integers(1, 3), st.integers(0, 2), st.booleans()),
        st.builds(Lose, few),
        st.builds(Restore),
        st.builds(Released, few, st.sampled_from(["retry", "accept", "abandon"]), st.just(0) | st.integers(1, 12)),
        st.builds(Set, few, st.none() | st.integers(0, 10)),
    )


def job_histories(longest: int = 12) -> st.SearchStrategy[list[Event]]:
    """Draw whole histories of a job."""
    return st.lists(events(), min_size=1, max_size=longest)


def no_names() -> st.SearchStrategy[object]:
    """Draw values that cannot name a dataset, though a source may use them."""
    lone = st.text(st.characters(), max_size=20).map(lambda text: f"{text}\udcff")
    long = st.integers(MAX_URN_BYTES + 1, MAX_URN_BYTES + 2000).map(lambda size: "x" * size)
    others = st.none() | st.booleans() | st.integers() | st.binary(max_size=20) | st.tuples(st.text(max_size=5))
    return st.just("") | lone | long | others


def no_positions() -> st.SearchStrategy[object]:
    """Draw values that are not positions, though a source may use them."""
    beyond = st.integers(2**64, 2**70) | st.integers(-(2**70), -(2**63) - 1)
    floats = st.sampled_from([float("nan"), float("inf"), float("-inf")])
    others = (
        st.none() | st.booleans() | st.binary(max_size=5) | st.lists(st.lists(st.integers()), min_size=1, max_size=2)
    )
    return beyond | floats | others | st.just("2026\udcff")


def no_plans(urn: str) -> st.SearchStrategy[DatasetPlan]:
    """Draw plans with a part that cannot be stored or executed."""
    bad = no_positions()
    good = Watermark({"0": 0})
    wrong_marks = (
        bad.map(lambda position: Watermark({"0": position}))  # type: ignore[dict-item]
        | bad.map(Watermark)  # type: ignore[arg-type]
        | bad.map(lambda incarnation: Watermark({"0": 0}, incarnation))  # type: ignore[arg-type]
        | bad
    )
    skipped = bad.map(lambda high: SkippedRange("0", 0, high, "expired"))  # type: ignore[arg-type]
    unit = WorkUnit("", urn, good, good, 0)
    units = st.one_of(
        bad.map(lambda mark: structs.replace(unit, low=mark)),
        wrong_marks.map(lambda mark: structs.replace(unit, low=mark, expected_high=mark)),
        st.just(structs.replace(unit, expected_high=Watermark({"0": -1}))),
        st.just(structs.replace(unit, expected_high=Watermark({"1": 1}))),
        st.just(structs.replace(unit, dataset_urn="another")),
        (bad | st.just(-1) | st.just(2**63)).map(lambda size: structs.replace(unit, size=size)),
        bad.map(lambda value: structs.replace(unit, properties={"max_bytes": value})),
        bad,
    )
    plan = DatasetPlan(urn, None, good, (unit,))
    return st.one_of(
        wrong_marks.filter(lambda mark: mark is not None).map(lambda mark: structs.replace(plan, planned_low=mark)),
        wrong_marks.map(lambda mark: structs.replace(plan, start=mark)),
        skipped.map(lambda range_: structs.replace(plan, skipped=(range_,))),
        bad.map(lambda range_: structs.replace(plan, skipped=(range_,))),
        units.map(lambda wrong: structs.replace(plan, work_units=(unit, wrong))),
        bad.filter(lambda units: units != []).map(lambda units: structs.replace(plan, work_units=units)),
    )
