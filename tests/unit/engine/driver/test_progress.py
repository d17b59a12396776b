"""Progress of tasks while they run."""

from __future__ import annotations

import contextlib
import dataclasses
from functools import partial

from msgspec.structs import replace

from distcommit.core.records.run_counts import RunCounts
from distcommit.core.work_units import TaskOutcome
from distcommit.engine.driver.run import run
from distcommit.engine.driver.task_progress import ProgressFile, progress_folder, read_progress, watched
from distcommit.engine.run_events import NullObserver, Progressed
from distcommit.pipeline.progress_counters import ProgressCounters
from tests.models.model_flow import model_flow
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, QuickClock, launch, source
from tests.unit.pipeline.test_task_attempt import ListSource, run_unit


def test_progress_adds_up_and_names_the_slowest_reading_task() -> None:
    parts = [
        Progressed("ingest", RunCounts(records_read=30, steps_executed=1), 1, 0, 5.0, 5.0, {"read": 1.0, "json": 2.0}),
        Progressed("ingest", RunCounts(records_read=40, work_units_failed=1), 0, 1, 0.0, 0.0, {"read": 3.0}),
        Progressed("ingest", RunCounts(records_read=50, bytes_read=500), 1, 0, 9.0, 9.0, {"commit": 4.0}),
    ]
    counts = RunCounts(records_read=120, steps_executed=1, work_units_failed=1, bytes_read=500)
    assert sum(parts, Progressed("ingest")) == Progressed(
        "ingest", counts, 2, 1, 5.0, 9.0, {"read": 4.0, "json": 2.0, "commit": 4.0}
    )


def test_progress_counters_add_up_over_attempts_and_report_after_each_batch() -> None:
    reports = list[tuple[int, int, dict[str, float]]]()
    live = ProgressCounters(lambda: reports.append((live.records, live.bytes_read, live.seconds_by_activity)))
    live.count_batch(10, 100, {"json": 1.0})
    live.count_batch(10, 50, {"json": 2.5, "write": 1.0})
    live.ended({"json": 3.0, "write": 2.0})
    live.count_batch(1, 1, {"json": 0.5})
    assert reports == [
        (10, 100, {"json": 1.0}),
        (20, 150, {"json": 2.5, "write": 1.0}),
        (21, 151, {"json": 3.5, "write": 2.0}),
    ]
    with contextlib.suppress(ValueError), live.at("read"):
        raise ValueError
    assert live.seconds_by_activity["read"] > 0


def test_progress_over_tasks_is_the_sum_of_their_newest_files() -> None:
    settings = WORLD.begin(Machine(), source(a=1))
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    fs.make_folders(folder)
    for task, records in ((0, 10), (1, 30)):
        so_far = Progressed(counts=RunCounts(records_read=records, bytes_read=7), spent={"read": 1.5})
        with ProgressFile(settings, "ingest", task, partial(replace, so_far)):
            pass
    assert read_progress(fs, folder, "ingest") == Progressed(
        "ingest", RunCounts(records_read=40, bytes_read=14), 0, 2, spent={"read": 3.0}
    )


def test_newest_attempt_hides_the_progress_of_a_dead_one() -> None:
    for _ in range(10):
        clock = QuickClock()
        settings = dataclasses.replace(WORLD.begin(Machine(), source(a=1)), clock=clock)
        fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
        fs.make_folders(folder)
        dead = ProgressFile(settings, "ingest", 0, partial(Progressed, counts=RunCounts(records_read=30)))
        for _ in range(3):
            clock.sleep(1)
            dead.tick()
        with ProgressFile(settings, "ingest", 0, partial(Progressed, counts=RunCounts(records_read=5))):
            assert read_progress(fs, folder).counts.records_read == 5


def test_running_task_reports_its_read_rate_since_its_beginning() -> None:
    clock = QuickClock()
    settings = dataclasses.replace(WORLD.begin(Machine(), source(a=1)), clock=clock)
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    fs.make_folders(folder)
    with ProgressFile(settings, "ingest", 0, partial(Progressed, counts=RunCounts(records_read=30))) as progress:
        assert read_progress(fs, folder).fastest == 0
        clock.sleep(0.4)
        progress.tick()
        assert read_progress(fs, folder).fastest == 0, "the reporting interval has not passed yet"
        clock.sleep(2.6)
        progress.tick()
        newest = read_progress(fs, folder)
        assert (newest.slowest, newest.fastest) == (10, 10)
    newest = read_progress(fs, folder)
    assert (newest.slowest, newest.fastest, newest.counts.records_read) == (0, 0, 30)


def test_ingest_task_reports_its_reads_and_its_time_by_construct_and_branch() -> None:
    settings = WORLD.begin(Machine(), source(a=[8, 4], b=8))
    settings = dataclasses.replace(settings, flow=model_flow(settings.flow.source, settings.flow.sinks[0]))
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    with watched(settings, NullObserver(), look=False):
        result = run(launch, settings)
        progress = read_progress(fs, folder)
    assert result.succeeded
    assert progress.counts.records_read == result.totals.records_read == 20
    assert progress.counts.bytes_read == result.totals.bytes_read
    assert progress.spent.keys() == {"read", "by_offset", "right.bare", "left.write", "right.write", "commit"}
    assert all(seconds > 0 for seconds in progress.spent.values())


def test_progress_of_a_work_unit_is_reported_batch_by_batch() -> None:
    reports, writing_s = list[tuple[int, int]](), list[float]()

    def tell() -> None:
        reports.append((live.records, live.bytes_read))
        writing_s.append(live.seconds_by_activity["write"])

    live = ProgressCounters(tell)
    for batches in (((b"{}", b"{ }"), (b"{}",)), ((b"{}",),)):
        state = run_unit(ListSource(batches), live=live)
        assert state.outcome is TaskOutcome.SUCCEEDED
        writing_s.append(live.seconds_by_activity["write"])
    assert reports == [(2, 5), (3, 7), (4, 9)]
    assert live.seconds_by_activity.keys() == {"read", "numbers", "write"}
    assert writing_s == sorted(set(writing_s)), "progress includes the time to close files, and all attempts"
