"""Background finalization: where closing a file waits for a network, writers end while the next work units are read.
Results do not differ.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem, FolderEntry
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.work_units import TaskOutcome
from distcommit.engine.reading.ingest import _IngestTask
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.pipeline import background_finalization as preparing_module
from distcommit.pipeline.background_finalization import BackgroundFinalization
from distcommit.pipeline.task_attempt import Attempt
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.staging import make_area, prepare_bucket
from tests.unit.app.reading.test_snapshot_reader import NAMES, Place
from tests.unit.engine.driver.machines import QuickClock
from tests.unit.pipeline.test_task_attempt import GOOD, UNIT, ListSource

PATIENCE_S = 20


class InTurn(RealPosixCalls):
    """A system-call wrapper that delays closes until so many files are being closed at once."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.all_there = threading.Barrier(at_once)

    def close(self, fd: int) -> None:
        self.all_there.wait(PATIENCE_S)
        super().close(fd)


class Held(RealPosixCalls):
    """A system-call wrapper that delays closes until they are allowed, and counts them in `closed`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_close, self.closed = threading.Event(), 0

    def close(self, fd: int) -> None:
        self.may_close.wait(PATIENCE_S)
        self.closed += 1
        super().close(fd)


class Full(RealPosixCalls):
    """A system-call wrapper of a disk that is full for every third file, as often as `times` says."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.written, self.times, self._counting = 0, times, threading.Lock()

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        with self._counting:
            self.written += 1
            if self.written % 3 == 0 and self.times:
                self.times -= 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


def read_units(fs: FileSystem, root: Path, number: int) -> list[Attempt]:
    """Return attempts that have read two records each."""
    for folder in ("staging", "output"):
        fs.make_folders(f"{root}/{folder}")
    prepare_bucket(fs, f"{root}/staging", 7, 0)
    source = ListSource(((GOOD, GOOD),))
    flow, attempts = TaskFlow.straight(source, FileSink(compression="none")), []
    for ordinal in range(number):
        unit = replace(UNIT, work_unit_id=f"unit-{ordinal}")
        identity = AttemptIdentity("run", 7, "a", unit.work_unit_id, uuid.uuid4().hex)
        area = make_area(fs, f"{root}/staging", f"{root}/output", 0, identity)
        attempts.append(Attempt(flow, unit, area, identity, QuickClock()))
        attempts[-1].read(source)
    return attempts


def names(attempts: Sequence[Attempt]) -> list[str]:
    return [attempt.unit.work_unit_id for attempt in attempts]


def test_writers_of_several_work_units_end_concurrently_and_are_reported_in_order(tmp_path: Path) -> None:
    fs = LocalFileSystem(InTurn(3), durable=False, parallel_calls=3)
    units, ended = read_units(fs, tmp_path, 6), []
    with BackgroundFinalization(3) as preparing:
        for attempt in units:
            preparing.add(attempt)
            ended += list(preparing.ended())
        ended += list(preparing.ended(all_of_them=True))
    assert names(ended) == names(units)
    states = [attempt.state() for attempt in ended]
    assert all(state.outcome is TaskOutcome.SUCCEEDED for state in states)
    assert all((tmp_path / "staging" / file.staged_path).is_file() for state in states for file in state.files)


def test_one_call_at_a_time_prepares_each_work_unit_when_it_is_added(tmp_path: Path) -> None:
    (attempt,) = read_units(LocalFileSystem(durable=False), tmp_path, 1)
    with BackgroundFinalization(1) as preparing:
        preparing.add(attempt)
        assert attempt.state().files
        assert list(preparing.ended()) == [attempt]


@pytest.mark.parametrize(("most_bytes", "room"), [(1 << 20, 4), (5 * len(GOOD), 3), (0, 1)])
def test_waiting_work_units_are_bounded_in_number_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, room: int
) -> None:
    monkeypatch.setattr(preparing_module, "_MOST_BYTES", most_bytes)
    held = Held()
    units = read_units(LocalFileSystem(held, durable=False, parallel_calls=8), tmp_path, room)
    with BackgroundFinalization(4) as preparing:
        for attempt in units[:-1]:
            preparing.add(attempt)
            assert list(preparing.ended()) == []
        preparing.add(units[-1])
        threading.Timer(0.2, held.may_close.set).start()
        assert next(preparing.ended()) is units[0], "the limit makes it wait for the first"
        assert held.closed
        list(preparing.ended(all_of_them=True))


def test_unprepared_work_unit_has_no_state(tmp_path: Path) -> None:
    (attempt,) = read_units(LocalFileSystem(durable=False), tmp_path, 1)
    with pytest.raises(ValueError, match="was not prepared"):
        attempt.state()


def test_early_exit_leaves_no_call_in_flight(tmp_path: Path) -> None:
    held = Held()
    units = read_units(LocalFileSystem(held, durable=False, parallel_calls=8), tmp_path, 3)

    def leave_early() -> None:
        with BackgroundFinalization(4) as preparing:
            for attempt in units:
                preparing.add(attempt)
            threading.Timer(0.2, held.may_close.set).start()
            raise KeyError

    with pytest.raises(KeyError):
        leave_early()
    assert held.closed == 3


def test_writer_that_cannot_end_fails_only_its_work_unit(tmp_path: Path) -> None:
    units = read_units(LocalFileSystem(Full(1), durable=False, parallel_calls=8), tmp_path, 6)
    with BackgroundFinalization(1) as preparing:  # in turn, so that it is the third
        for attempt in units:
            preparing.add(attempt)
        states = [attempt.state() for attempt in preparing.ended()]
    assert [state.outcome for state in states] == [
        TaskOutcome.FAILED if number == 2 else TaskOutcome.SUCCEEDED for number in range(6)
    ]
    assert "No space left" in states[2].error
    assert not states[2].files


class Meeting(LocalFileSystem):
    """A file system whose log listings in ingest wait until two run at once, or for a moment. `most` is the largest
    number at once.
    """

    def __init__(self) -> None:
        super().__init__(durable=False, parallel_buckets=2)
        self.is_ingest, self.now, self.most, self._counting = False, 0, 0, threading.Condition()

    def list_folder(self, path: str) -> list[FolderEntry]:
        if self.is_ingest and "/log" in path:
            with self._counting:
                self.now += 1
                self.most = max(self.most, self.now)
                self._counting.notify_all()
                self._counting.wait_for(lambda: self.most > 1, 0.2)
                self.now -= 1
        return super().list_folder(path)


def test_ingest_commits_a_useful_number_of_buckets_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, fs, commit = Place(tmp_path), Meeting(), _IngestTask._commit
    place.fs = fs

    def watched(task: _IngestTask) -> None:
        fs.is_ingest = True
        commit(task)
        fs.is_ingest = False

    monkeypatch.setattr(_IngestTask, "_commit", watched)
    place.run(3)
    assert fs.most == 2
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 3)


@pytest.mark.parametrize("times", [0, 4])
def test_run_with_background_finalization_has_the_same_output_and_reads_failures_again(
    tmp_path: Path, times: int
) -> None:
    """Four writes fail: of a dataset's file, a log or a task state, whichever comes next."""
    place = Place(tmp_path)
    place.fs = LocalFileSystem(durable=False, parallel_calls=8, parallel_buckets=2)
    place.run(3)
    calls = Full(times)
    place.fs = LocalFileSystem(calls, durable=False, parallel_calls=8, parallel_buckets=2)
    for end in (5, 7):
        try:
            place.run(end)
        except (DistcommitError, OSError):
            assert times
    calls.times = 0
    place.run(9)
    place.run(9)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 9)
