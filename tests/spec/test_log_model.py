"""The product's fold equals the executable model: same validity and same state after every log of a few thousand states
of each scenario. The model's invariants for imports, rebuilds, at-least-once delivery and cuts hold.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from distcommit.core.records.job_log_records import Decide
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
from distcommit.core.watermark import Watermark
from distcommit.protocol import next_log_record
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.protocol.record_validity import valid
from tests.spec.log_actors import moves
from tests.spec.log_model import STOP, Log, Rec
from tests.spec.log_model import Fold as ModelFold
from tests.spec.log_model import fold as model_fold
from tests.spec.log_model import valid as model_valid
from tests.spec.log_scenarios import NAIVE, explore, scenario


def watermark(place: int) -> Watermark | None:
    return Watermark({"0": place}) if place else None


def steps(infos: tuple[str, ...]) -> tuple[StepBatch, ...]:
    return (StepBatch("of-infos", 1, repr(infos).encode()),)


def product_record(record: Rec, urn: str) -> Record:
    """Convert a record of the model to the product's form."""
    kind, epoch, arg, says = record
    if kind in ("RETRY", "REVOKING", "ABANDONED", "QUARANTINE", "READ-AGAIN"):
        return OperatorDecision(OperatorAction(kind.lower()), SequenceName(urn, arg), "person")
    match kind:
        case "FENCE":
            return Fence(epoch, arg)
        case "DECIDE":
            return Decide(epoch)
        case "INTENT":
            sequence = SealedSequence(urn, arg.e, watermark(arg.lo), watermark(arg.to), steps(arg.infos))
            return Intent(epoch, (sequence,), Gate.HELD if arg.held else Gate.OPEN)
        case "PUBLISHED":
            sequence = SealedSequence(urn, arg.e, watermark(arg.lo), watermark(arg.to), ())
            return Intent(epoch, (sequence,), Gate.PASSED)
        case "DONE":
            return Done(epoch, (SequenceName(urn, arg),))
        case "FAILED":
            return Failed(epoch, SequenceName(urn, arg), True, "")
        case "LEFT":
            changed = dict(enumerate(steps(says.infos))) if says else {}
            return Postponed(epoch, (PostponedSequence(urn, arg, "by the test", says.changes if says else 0, changed),))
        case "UNREAD":
            low, high, gen = arg
            return ReadFailures(epoch, (DatasetReadFailure(urn, watermark(low), Watermark({"0": high}), f"{gen}"),))
        case "DROP":
            return Dropped(epoch, (SequenceName(urn, arg),))
        case "SET":
            return SetWatermark(urn, None, "person")
        case "SETS":
            return SetWatermarks({urn: Watermark({"0": arg})}, "person")
        case "REBUILT":
            state = DatasetState(urn, watermark=watermark(arg.wm), closed_epoch=arg.closed, done_epoch=arg.done)
            return Rebuilt(epoch, (state,), "person")
    raise AssertionError(kind)


def product_fold(log: Log, urn: str) -> Fold:
    fold = Fold()
    (_, base), *records = log
    if base.arg.fence:
        apply(0, Fence(base.arg.fence, base.arg.owner), fold)
    if base.arg.ds.seq:
        apply(0, product_record(Rec("INTENT", base.arg.ds.seq.e, base.arg.ds.seq), urn), fold)
    for number, record in records:
        of_product = fold.checkpoint() if record.kind == "CHECKPOINT" else product_record(record, urn)
        if isinstance(of_product, ReadFailures):
            stop_after = STOP
            of_product = (
                next_log_record.read_failures(fold, of_product.epoch, of_product.datasets, stop_after=stop_after)
                or of_product
            )
        apply(number, of_product, fold)
    return fold


def shown_by_model(fold: ModelFold) -> tuple[object, ...]:
    d = fold.ds
    of = d.seq.e if d.seq else 0
    left = d.unread
    unread = (left.runs, left.e, watermark(left.hi), left.stopped, f"{left.gen}") if left else None
    infos = (d.seq.changes, steps(d.seq.infos)) if d.seq else ()
    return fold.fence, fold.owner, set(fold.decided), d.state, watermark(d.wm), d.closed, d.done, of, unread, infos


def shown_by_product(fold: Fold, urn: str) -> tuple[object, ...]:
    d = fold.state_of(urn)
    of = d.sequence.epoch if d.sequence else 0
    left = d.read_failure
    unread = (left.failed_runs, left.epoch, left.expected_high, left.stopped, left.reason) if left else None
    infos = (d.open.changes, d.open.sequence.steps) if d.open else ()
    found = (d.status.value, d.watermark, d.closed_epoch, d.done_epoch, of, unread, infos)
    return (fold.fence_epoch, fold.fence_run_id, set(fold.decided_epochs), *found)


def logs_of(name: str, states: int) -> list[tuple[str, Log]]:
    """Return distinct numbered logs from so many states of a scenario, reached at random."""
    scen, rng = scenario(name), random.Random(1)
    seen, queue = {scen.init}, deque([scen.init])
    logs: dict[tuple[str, Log], None] = {}
    while queue and len(seen) < states:
        queue.rotate(rng.randrange(len(queue)))
        state = queue.popleft()
        logs.update(dict.fromkeys((str(number), log) for number, log in enumerate(state.logs)))
        fresh = [after for _, after in moves(state, scen) if after not in seen]
        seen.update(fresh)
        queue.extend(fresh)
    return list(logs)


@pytest.mark.parametrize(
    "name",
    [
        *("twins", "epochs", "flat", "set", "import", "held", "stop", "rebuild", "loose", "read-failed", "reset"),
        *("infos", "infos-twins"),
    ],
)
def test_product_fold_equals_the_model(name: str) -> None:
    logs = logs_of(name, 20_000 if name == "read-failed" else 3000)
    kinds = {record.kind for _, log in logs for _, record in log[1:]}
    expected = {
        "import": {"SETS"},
        "rebuild": {"REBUILT"},
        "stop": {"LEFT", "QUARANTINE", "RETRY"},
        "loose": {"PUBLISHED"},
        "infos": {"LEFT"},
        "read-failed": {"UNREAD", "READ-AGAIN"},
        "reset": {"UNREAD", "SET"},
    }
    assert expected.get(name, {"INTENT"}) <= kinds
    records = {(urn, record) for urn, log in logs for _, record in log[1:] if record.kind != "CHECKPOINT"}
    chances = random.Random(2)
    for urn, log in logs:
        if [record.kind for _, record in log].count("CHECKPOINT") > 2:
            continue  # its first records may be truncated
        mine, fold = model_fold(log)[0], product_fold(log, urn)
        assert shown_by_product(fold, urn) == shown_by_model(mine), log
        mine_only = sorted((record for at, record in records if at == urn), key=repr)
        for record in chances.sample(mine_only, min(12, len(mine_only))):
            assert valid(product_record(record, urn), fold) == model_valid(record, mine), (record, log)


@pytest.mark.parametrize(
    ("name", "naive"),
    [
        ("import", ""),
        ("import", "sets_blind"),
        ("stop", ""),
        ("stop", "stop_revoking"),
        ("rebuild", ""),
        ("rebuild", "look_early"),
        ("rebuild", "rebuilt_late"),
        ("rebuild", "sweep_newer"),
    ],
)
def test_imports_stops_and_rebuilds_hold_as_designed_and_break_in_naive_variants(name: str, naive: str) -> None:
    wrong, states, _ = explore(name, naive, 12_000 if not naive else 100_000, 0)
    assert states > 1000
    assert wrong.startswith("none") == (not naive), wrong


NEW_RULES = ("loose", "mixed", "cuts", "settled", "heads", "halves", "read-failed", "reset", "infos", "infos-twins")
NAIVE_RULES = [(name, switches) for name, switches, _ in NAIVE if name in NEW_RULES]


@pytest.mark.parametrize("name", NEW_RULES)
def test_later_scenarios_hold_over_their_first_states(name: str) -> None:
    wrong, states, history = explore(name, limit=4_000, walks=20)
    assert wrong.startswith("none"), history
    assert wrong == "none" or states >= 4_000


@pytest.mark.parametrize(("name", "naive"), NAIVE_RULES)
def test_later_scenarios_break_in_naive_variants(name: str, naive: str) -> None:
    wrong, _, history = explore(name, naive, 100_000, 0)
    assert not wrong.startswith("none")
    assert history


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("states", [300_000])
@pytest.mark.parametrize("name", NEW_RULES)
def test_later_scenarios_hold_over_as_many_states_as_time_allows(name: str, states: int) -> None:
    wrong, _, history = explore(name, limit=states, walks=1_000)
    assert wrong.startswith("none"), history
