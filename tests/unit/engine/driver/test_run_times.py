"""Run times: the table of when tasks sealed and published each dataset, on which nothing else depends."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from distcommit.core.errors import CorruptError, UnknownVersionError
from distcommit.core.support.request_counts import Requests
from distcommit.core.work import WorkUnit
from distcommit.engine.driver.counts import CommitCounts
from distcommit.engine.driver.reports import Tally
from distcommit.engine.driver.run import run
from distcommit.engine.reading.task_events import SequenceDone
from distcommit.engine.reading.task_times import TaskTimes
from distcommit.stores.history.attempt_counts import Attempt, count_attempts
from distcommit.stores.history.run_times import RunTime, TimeKind, decode_run_times, encode_run_times, read_run_times
from tests.golden import samples
from tests.simulation.world import ROOTS, World
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import NOTHING, Machine, OddSource, dies, fails, go, launch, source, with_folders

FOLDER = f"{ROOTS.store}/run_times"


def times_of(machine: Machine, run_id: str, world: World = WORLD) -> dict[str, list[RunTime]]:
    return dict(read_run_times(world.store(machine).fs, ROOTS.store, run_id))


def test_task_records_when_it_committed_each_dataset() -> None:
    machine = Machine()
    result = go(WORLD, machine, source(a=3, b=[2, 1]))
    times = times_of(machine, result.run_id)
    units, published = 0, dict[str, int]()
    for rows in times.values():
        task = rows[0]
        assert [row.kind for row in rows].count(TimeKind.TASK) == 1
        assert (task.kind, task.phase) == (TimeKind.TASK, "ingest")
        units += task.count
        for row in rows[1:]:
            assert (row.task, row.pid, row.daemon_pid) == (task.task, task.pid, task.daemon_pid)
            assert task.began_ms <= row.began_ms <= row.ended_ms <= task.ended_ms
            if row.kind is TimeKind.PUBLISHED:
                published[row.dataset] = row.count
    assert units == 3
    assert published == {"a": 3, "b": 3}
    assert sum(row.count for rows in times.values() for row in rows if row.kind is TimeKind.COMMITS) == 2
    attempts: list[Attempt] = []
    count_attempts(WORLD.store(machine).fs, ROOTS.store, result.run_id, attempts.append)
    assert {attempt.writer for attempt in attempts} == times.keys(), "task states begin with the same digits"


def test_job_scope_times_come_from_the_sealing_and_the_publishing_phase() -> None:
    machine, world = Machine(), World(job_level=True)
    result = go(world, machine, source(a=3))
    times = [
        (row.phase, row.kind, bool(row.began_ms))
        for rows in times_of(machine, result.run_id, world).values()
        for row in rows
        if row.dataset == "a"
    ]
    assert sorted(times) == [("ingest", TimeKind.SEALED, True), ("publish", TimeKind.PUBLISHED, False)]


def test_replay_times_are_recorded_by_recovery() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    settings = WORLD.begin(machine, source(c=[2, 1]))
    with suppress(BaseException):
        run(launch, settings)
    machine.restart()
    assert times_of(machine, settings.run_id) == {}, "a dead task has recorded nothing"
    result = go(WORLD, machine, source(c=[2, 1]))
    ((_, rows),) = times_of(machine, result.run_id).items()
    assert [(row.phase, row.kind, row.dataset) for row in rows] == [
        ("recover", TimeKind.TASK, ""),
        ("recover", TimeKind.PUBLISHED, "c"),
        ("recover", TimeKind.COMMITS, ""),
    ]


def test_run_without_work_leaves_no_times() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    before = set(machine.paths(FOLDER))
    assert before
    go(WORLD, machine, source(a=3))
    go(WORLD, machine, NOTHING)
    assert set(machine.paths(FOLDER)) == before


def test_times_that_cannot_be_written_cost_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "create", "/run_times/"))
    assert go(WORLD, machine, source(a=3)).succeeded
    assert "times of a task were not written" in caplog.text


def test_times_table_that_is_damaged_or_of_another_version_is_reported() -> None:
    data = encode_run_times(samples.RUN_TIMES)
    assert decode_run_times(data, "t") == samples.RUN_TIMES
    with pytest.raises(CorruptError, match="corrupt"):
        decode_run_times(data[:-9], "t")
    with pytest.raises(UnknownVersionError, match="found 9"):
        decode_run_times(_of_version(b"9"), "t")


def _of_version(version: bytes) -> bytes:
    data = encode_run_times(samples.RUN_TIMES)
    assert data.count(b"table-version\x18\x011") == 1
    return data.replace(b"table-version\x18\x011", b"table-version\x18\x01" + version)


def test_dataset_gets_its_own_requests_and_its_share_of_common_ones(
    requests: Requests,
) -> None:
    machine = Machine()
    settings = WORLD.begin(machine, source(a=1, b=1))
    times = TaskTimes(settings, "ingest", 0)
    observer = times.recording(Tally(CommitCounts()))

    def asks(count: int) -> None:
        requests.made += count

    asks(5)
    for dataset, count in (("a", 10), ("b", 20), ("a", 1), ("never", 0)):
        with times.working_on(dataset):
            asks(count)
    with suppress(OSError), times.working_on("b"):
        asks(2)
        raise OSError
    with times.committing():
        asks(4)  # and nothing is published
    with times.committing():
        for dataset in "ab":
            observer.observe(SequenceDone(dataset, settings.epoch, 1, 0, 0))
        asks(7)
    times.write(2)
    ((_, rows),) = times_of(machine, settings.run_id).items()
    counts = {row.dataset: row.count for row in rows if row.kind is TimeKind.REQUESTS}
    assert counts == {"a": 10 + 1 + 4, "b": 20 + 2 + 3, "": 5 + 4}


def test_requests_of_a_work_unit_belong_to_its_dataset(requests: Requests) -> None:
    machine = Machine()

    def extracting(unit: WorkUnit) -> None:
        requests.made += {"a": 100, "b": 1000}[unit.dataset_urn]

    result = go(WORLD, machine, OddSource(source(a=3, b=[2, 1]).datasets, extracting=extracting))
    rows = [row for rows in times_of(machine, result.run_id).values() for row in rows]
    assert {row.dataset: row.count for row in rows if row.kind is TimeKind.REQUESTS} == {"a": 100, "b": 2000}
