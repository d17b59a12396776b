"""Programs for the crash explorer: a whole newer run between two steps of a run, which must then stop; and the
events of a run in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from distcommit.core.errors import DistcommitError, FencedError
from distcommit.engine.committing.drain import drain_partition, publish_partition
from distcommit.engine.committing.recover import delete_superseded_files, recover_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.engine.driver.task_progress import progress_folder, read_progress, watched
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_events import CompositeObserver, Event, RunEnded
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.store import progress_name
from distcommit.stores.logs.fencing import end_run
from tests.simulation.programs.parts import SOURCE, Program, half_done, new_machine, put_file, run_and_look
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedClock, World, launch_here

_WORLD, _WHOLE_JOB = World(buckets=2), World(buckets=2, job_level=True)
_WATCHED = World(watched=True)
_Executors = Callable[[RunSettings, int], object]


def _half_done(world: World) -> SimulatedPosix:
    machine = new_machine()
    half_done(machine, world)
    machine.syncfs("/")
    return machine


def _overtaken(world: World, before: _Executors, machine: SimulatedPosix) -> None:
    """Begin and end a run just before the executors' function of that name starts: the older run publishes nothing
    more, and reports why."""
    published: list[dict[str, object]] = []

    def overtaking(launch: Launch) -> Launch:
        def launched(
            function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
        ) -> list[Result]:
            if function is before and not published:
                world.run(machine, SOURCE)
                published.append(_output(machine))
            return launch(function, settings, tasks, kind)

        return launched

    try:
        world.run(machine, SOURCE, launched=overtaking)
    except FencedError:
        pass
    else:
        if published:
            raise AssertionError("an overtaken run does not report it")
    if published and _output(machine) != published[0]:
        raise AssertionError("a run that was overtaken has changed the output")


def _output(machine: SimulatedPosix) -> dict[str, object]:
    return {path: data for _, path, data in machine.files() if path.startswith(f"{ROOTS.output}/")}


def _late_tasks(machine: SimulatedPosix) -> None:
    """Continue tasks of a run after a newer one has ended: each fails as fenced."""
    settings = _WORLD.begin(machine, SOURCE)
    _WORLD.run(machine, SOURCE)
    before = _output(machine)
    reports = [recover_partition(settings, 0).report, delete_superseded_files(settings, 0).report]
    if not all(report.fenced for report in reports) or _output(machine) != before:
        raise AssertionError(f"tasks of an older run continue: {reports}")


def _again(world: World, machine: SimulatedPosix) -> str:
    return run_and_look(machine, world, SOURCE)


class _Failing:
    """An observer that fails at once."""

    def observe(self, event: Event) -> None:
        raise KeyError(event)


class _Hearing:
    """An observer that records its events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


def _run_observed(machine: SimulatedPosix) -> None:
    """Run with two observers: one fails, and neither the run nor the other is affected."""
    hearing, settings = _Hearing(), replace(_WATCHED.begin(machine, SOURCE), clock=SimulatedClock())
    with (
        recorded_run(settings, "run", "person", CompositeObserver(_Failing(), hearing)) as observer,
        watched(settings, observer, look=False) as watching,
    ):
        result = run(launch_here, settings, observer=watching)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
    if [type(event) for event in hearing.events].count(RunEnded) != 1:
        raise AssertionError(f"the end is not reported once: {hearing.events}")


def _run_observed_and_failing(machine: SimulatedPosix) -> None:
    """Run with these observers and an unreachable source: the error is reported and raised."""
    hearing, settings = _Hearing(), _WATCHED.begin(machine, replace(SOURCE, refuses="plan"))
    try:
        with recorded_run(settings, "run", "person", hearing) as observer:
            run(launch_here, settings, observer=observer)
    except DistcommitError as error:
        end = hearing.events[-1]
        if not isinstance(end, RunEnded) or str(error) != f"{end.kind}: {end.reason}":
            raise AssertionError(f"the error is not reported: {hearing.events}") from error
    else:
        raise AssertionError("an unreachable source makes no difference")


def _ingest_watched(machine: SimulatedPosix) -> None:
    """Ingest while the progress files are read, one of which is damaged."""
    settings = _WATCHED.begin(machine, SOURCE)
    folder = progress_folder(ROOTS.store, settings.run_id)
    with watched(settings, _Hearing(), look=False):
        put_file(machine, f"{folder}/{progress_name('ingest', 9, '0' * 32, 1)}", b"{")
        result = run(launch_here, settings)
        progressed = read_progress(settings.store.fs, folder)
    records = sum(sum(dataset.partitions.values()) for dataset in SOURCE.datasets.values())
    if (progressed.counts.records_read, progressed.tasks_running) != (records, 0) or not result.succeeded:
        raise AssertionError(f"progress is {progressed}")
    if read_progress(settings.store.fs, folder).counts.records_read:
        raise AssertionError("progress is kept after the run")


OVERTAKEN = (
    *(
        Program(
            f"overtaken-{name}", partial(_half_done, world), partial(_overtaken, world, before), partial(_again, world)
        )
        for name, world, before in (
            ("recovering", _WORLD, recover_partition),
            ("planning", _WORLD, plan_partition),
            ("ingesting", _WORLD, ingest_partition),
            ("draining", _WORLD, drain_partition),
            ("deciding", _WHOLE_JOB, drain_partition),
            ("publishing", _WHOLE_JOB, publish_partition),
        )
    ),
    Program("overtaken-late-tasks", partial(_half_done, _WORLD), _late_tasks, partial(_again, _WORLD)),
    Program("told", new_machine, _run_observed, partial(_again, _WATCHED)),
    Program("told-of-an-error", new_machine, _run_observed_and_failing, partial(_again, _WATCHED)),
    Program("progress", new_machine, _ingest_watched, partial(_again, _WATCHED)),
)
