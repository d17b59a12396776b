"""Events that an observer receives, their order, and that a failing observer can't harm the run."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pytest

from distcommit.core.errors import FencedError, SourceUnavailableError
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.core.work_units import WorkUnit
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.driver.task_progress import watched
from distcommit.engine.driver.task_reports import MAX_EVENTS, Report, Tally
from distcommit.engine.run_events import (
    DatasetQuarantined,
    Event,
    EventsLeftOut,
    PhaseBegan,
    PhaseEnded,
    Progressed,
    RunBegan,
    RunEnded,
    SequenceDone,
    SequenceSealed,
    WorkUnitDone,
)
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.logs.fencing import begin_run
from distcommit.testing.fakes.model_source import ModelSource
from tests.simulation.world import World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import (
    OUTPUT,
    STAGING,
    Machine,
    OddSource,
    dies,
    launch,
    source,
    statuses,
    with_folders,
)

Kind = TypeVar("Kind")
JOB = World(job_level=True)
PHASES = ["recover", "plan", "ingest", "drain"]


@dataclass
class Noting:
    """An observer that records all its events."""

    events: list[Event] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [event for event in self.events if isinstance(event, kind)]


def observe_run(world: World, machine: Machine, data: ModelSource, noting: Noting) -> RunResult:
    settings = world.begin(machine, data)
    with recorded_run(settings, "run", "somebody", noting) as context:
        return run(launch, settings, observer=context)


def half_published(machine: Machine, data: ModelSource) -> RunSettings:
    """Run so that the process dies at the second file of `b`, and delete the dataset's remaining staged files."""
    settings = WORLD.begin(with_folders(machine, "a", "b"), data)
    machine.faults.append(dies("rename", f"{OUTPUT}/b/", nth=2))
    with suppress(BaseException):
        run(launch, settings)
    machine.restart()
    for path in machine.paths(STAGING):
        if "b" in path:
            machine.remove(path)
    return settings


def test_events_of_a_run_with_a_quarantined_dataset_are_in_order() -> None:
    machine, noting = Machine(), Noting()
    old = half_published(machine, source(b=[2, 1]))
    result = observe_run(WORLD, machine, source(a=3, b=[2, 1]), noting)
    assert statuses(WORLD, machine) == {"a": "idle", "b": "quarantined"}
    first, *events, last = noting.events
    assert isinstance(first, RunBegan)
    assert (first.run_id, first.epoch, first.job) == (result.run_id, result.epoch, "job")
    assert (first.command, first.requested_by) == ("run", "somebody")
    assert [event.phase for event in events if isinstance(event, PhaseBegan)] == PHASES
    by_phase: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, PhaseBegan):
            now = by_phase.setdefault(event.phase, [])
        now.append(type(event).__name__)
    alone = ["PhaseBegan", "PhaseEnded"]
    assert by_phase["recover"] == ["PhaseBegan", "DatasetQuarantined", "PhaseEnded"]
    assert (by_phase["plan"], by_phase["drain"]) == (alone, alone)
    assert by_phase["ingest"] == ["PhaseBegan", "WorkUnitDone", "SequenceSealed", "SequenceDone", "PhaseEnded"]
    [quarantined] = noting.of(DatasetQuarantined)
    assert (quarantined.dataset, quarantined.epoch) == ("b", old.epoch)
    assert "is lost" in quarantined.reason
    [done], [sealed], [unit] = noting.of(SequenceDone), noting.of(SequenceSealed), noting.of(WorkUnitDone)
    assert (done.dataset, done.epoch, done.records, sealed.held) == ("a", result.epoch, 3, False)
    assert (unit.dataset, unit.counts.records_read, unit.error) == ("a", 3, "")
    assert isinstance(last, RunEnded)
    assert (last.outcome, last.totals) == (RunOutcome.INCOMPLETE, result.totals)


def test_counts_of_the_phases_add_up_to_the_totals() -> None:
    noting = Noting()
    result = observe_run(WORLD, Machine(), source(a=3, b=[2, 1]), noting)
    ended = noting.of(PhaseEnded)
    assert all(event.completed for event in ended)
    assert RunCounts.total(event.counts for event in ended).not_zero == result.totals.not_zero
    assert noting.of(RunEnded)[0].outcome is RunOutcome.SUCCEEDED


@pytest.mark.parametrize("readable", [True, False])
def test_job_that_is_held_back_reports_its_sealed_sequences(readable: bool) -> None:
    noting, data = Noting(), source(a=3, b=1)

    def extracting(unit: WorkUnit) -> None:
        if unit.dataset_urn == "b":
            raise OSError(errno.EIO, "unreadable")

    failing = OddSource(data.datasets, extracting=extracting)
    result = observe_run(JOB, Machine(), data if readable else failing, noting)
    assert {event.dataset for event in noting.of(SequenceSealed) if event.held} == ({"a", "b"} if readable else {"a"})
    ended = RunOutcome.SUCCEEDED if readable else RunOutcome.HELD_BACK
    assert (noting.of(RunEnded)[0].outcome, result.decided) == (ended, readable)
    drained = noting.of(PhaseEnded)[-1].counts
    assert drained.datasets_held == result.totals.datasets_held == (0 if readable else 1)


def test_run_ended_by_an_error_reports_the_phase_and_the_reason() -> None:
    noting = Noting()

    def planning() -> Iterator[object]:
        raise ValueError("no route to the source")

    with pytest.raises(SourceUnavailableError):
        observe_run(WORLD, Machine(), OddSource({}, planning=planning), noting)
    assert [(event.phase, event.completed) for event in noting.of(PhaseEnded)] == [("recover", True), ("plan", False)]
    last = noting.events[-1]
    assert isinstance(last, RunEnded)
    assert (last.outcome, last.kind) == (RunOutcome.FAILED, "SOURCE_UNAVAILABLE")
    assert "no route to the source" in last.reason


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(FencedError("a newer run"), RunOutcome.FENCED), (KeyboardInterrupt(), RunOutcome.INTERRUPTED)],
)
def test_fenced_or_interrupted_run_reports_it(error: BaseException, outcome: RunOutcome) -> None:
    noting = Noting()
    settings = WORLD.begin(Machine(), source(a=1))
    with pytest.raises(type(error)), recorded_run(settings, "run", "somebody", noting):
        raise error
    assert [type(event) for event in noting.events] == [RunBegan, RunEnded]
    assert noting.of(RunEnded)[0].outcome is outcome


def test_fenced_run_reports_the_counts_of_its_phase() -> None:
    machine, noting = Machine(), Noting()
    settings = WORLD.begin(machine, source(a=1))
    begin_run(WORLD.store(machine), "newer")
    with pytest.raises(FencedError), recorded_run(settings, "run", "somebody", noting) as context:
        run(launch, settings, observer=context)
    assert [(event.phase, event.completed) for event in noting.of(PhaseEnded)] == [("recover", False)]
    assert noting.of(RunEnded)[0].outcome is RunOutcome.FENCED


class Failing(Noting):
    def observe(self, event: Event) -> None:
        super().observe(event)
        if isinstance(event, PhaseBegan) and event.phase == "ingest":
            raise OSError(errno.EPIPE, "the pipe is broken")


def test_failing_observer_receives_no_more_events_and_the_run_continues() -> None:
    failing = Failing()
    assert observe_run(WORLD, Machine(), source(a=3), failing).succeeded
    assert isinstance(failing.events[-1], PhaseBegan)


def test_first_task_events_of_each_kind_are_reported_and_the_others_counted() -> None:
    noting, number = Noting(), MAX_EVENTS + 5
    result = observe_run(World(), Machine(), source(**{f"d{place:02d}": 1 for place in range(number)}), noting)
    assert result.totals.datasets_published == number
    for kind in (WorkUnitDone, SequenceSealed, SequenceDone):
        assert len(noting.of(kind)) == MAX_EVENTS
    assert noting.of(EventsLeftOut) == [
        EventsLeftOut("ingest", {"WorkUnitDone": 5, "SequenceSealed": 5, "SequenceDone": 5})
    ]


def test_task_events_add_up_and_are_encoded_in_reports() -> None:
    parts = [Tally() for _ in range(3)]
    for part in parts:
        for place in range(MAX_EVENTS - 2):
            part.observe(SequenceDone(f"d{place}", 1, 2, 3, 4))
        part.observe(DatasetQuarantined("q", 1, "lost", 4))
    whole = Tally()
    for part in parts:
        whole.merge(part.report())
    report = whole.report()
    assert len(report.events) == MAX_EVENTS + 3
    assert report.events_left_out == {"SequenceDone": 3 * (MAX_EVENTS - 2) - MAX_EVENTS}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(report), type=Report) == report


def test_observer_receives_progress_and_all_other_events() -> None:
    noting, settings = Noting(), WORLD.begin(Machine(), source(a=1))
    with watched(settings, noting) as watching:
        watching.observe(PhaseBegan("ingest", 0))
        while not noting.of(Progressed):
            pass
    assert noting.of(Progressed)[0].phase == "ingest"
    assert isinstance(noting.events[0], PhaseBegan)
