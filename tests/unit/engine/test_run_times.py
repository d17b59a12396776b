"""When tasks committed what: what is kept of it, by whom, and that nothing depends on it."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from distcommit.engine.run import run
from distcommit.model.errors import CorruptError, UnknownVersionError
from distcommit.stores.attempt_counts import Attempt, attempts_of
from distcommit.stores.run_times import RunTime, TimeKind, decode_run_times, encode_run_times, read_run_times
from distcommit.testing.simulation.world import ROOTS, World
from tests.golden import samples
from tests.unit.engine.machines import NOTHING, Machine, dies, fails, go, launch, source, with_folders
from tests.unit.engine.situations import WORLD

FOLDER = f"{ROOTS.store}/run_times"


def times_of(machine: Machine, run_id: str, world: World = WORLD) -> dict[str, list[RunTime]]:
    return dict(read_run_times(world.store(machine).fs, ROOTS.store, run_id))


def test_a_task_says_when_it_committed_which_dataset() -> None:
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
    found: list[Attempt] = []
    attempts_of(WORLD.store(machine).fs, ROOTS.store, result.run_id, found.append)
    assert {attempt.writer for attempt in found} == times.keys(), "task states are known by the same digits"


def test_of_a_whole_job_who_seals_and_who_publishes_tell_their_part() -> None:
    machine, world = Machine(), World(job_level=True)
    result = go(world, machine, source(a=3))
    told = [
        (row.phase, row.kind, bool(row.began_ms))
        for rows in times_of(machine, result.run_id, world).values()
        for row in rows
        if row.dataset == "a"
    ]
    assert sorted(told) == [("ingest", TimeKind.SEALED, True), ("publish", TimeKind.PUBLISHED, False)]


def test_what_a_run_replays_is_told_of_its_recovery() -> None:
    machine = with_folders(Machine(), "c")
    machine.faults.append(dies("rename", "/output/c/", nth=2))
    settings = WORLD.begin(machine, source(c=[2, 1]))
    with suppress(BaseException):
        run(launch, settings)
    machine.restart()
    assert times_of(machine, settings.run_id) == {}, "a task that died has told nothing"
    result = go(WORLD, machine, source(c=[2, 1]))
    ((_, rows),) = times_of(machine, result.run_id).items()
    assert [(row.phase, row.kind, row.dataset) for row in rows] == [
        ("recover", TimeKind.TASK, ""),
        ("recover", TimeKind.PUBLISHED, "c"),
        ("recover", TimeKind.COMMITS, ""),
    ]


def test_a_run_with_nothing_to_do_leaves_no_times() -> None:
    machine = Machine()
    go(WORLD, machine, source(a=3))
    before = set(machine.paths(FOLDER))
    assert before
    go(WORLD, machine, source(a=3))
    go(WORLD, machine, NOTHING)
    assert set(machine.paths(FOLDER)) == before


def test_times_that_can_not_be_written_cost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.ENOSPC, "create", "/run_times/"))
    assert go(WORLD, machine, source(a=3)).succeeded
    assert "when a task committed can't be kept" in caplog.text


def test_a_table_of_times_that_is_damaged_or_of_another_version_is_told() -> None:
    data = encode_run_times(samples.RUN_TIMES)
    assert decode_run_times(data, "t") == samples.RUN_TIMES
    with pytest.raises(CorruptError, match="corrupt"):
        decode_run_times(data[:-9], "t")
    with pytest.raises(UnknownVersionError, match="found 9"):
        decode_run_times(data.replace(b"table-version\x18\x011", b"table-version\x18\x019"), "t")
