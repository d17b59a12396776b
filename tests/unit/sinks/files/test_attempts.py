"""Concurrent attempts: names and folders are distinct, and failed or aborted attempts publish nothing."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, StagingArea
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.sinks.files.formats.encoders import FileFormat
from distcommit.sinks.files.sink import AttemptFiles, FileSink
from distcommit.sinks.files.split_by_time import TimePartition
from tests.unit.sinks.files.attempts import (
    DAY_MS,
    FORMATS,
    LEAST,
    RUN_NUMBERS,
    URN,
    batch_of,
    check_outputs,
    files_in,
    numbered,
)

IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
WRITERS = st.tuples(st.integers(0, 10**10 - 1), IDS, IDS)


@pytest.mark.thorough
@given(st.lists(WRITERS, min_size=2, max_size=2, unique=True))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_writers_never_share_a_name(tmp_path: Path, writers: list[tuple[int, str, str]]) -> None:
    root = tmp_path / str(next(RUN_NUMBERS))
    root.mkdir()
    names = []
    for place, (epoch, work_unit_id, attempt) in enumerate(writers):
        files = AttemptFiles(
            StagingArea(LocalFileSystem(durable=False), f"{root}/{place}", str(place), f"{root}/output"),
            settings=FileSink(),
            identity=AttemptIdentity("r", epoch, URN, work_unit_id, attempt),
            origin=Origin(),
        )
        files.write(pa.record_batch({"n": [1]}))
        names += [output.final_path for output in files.prepare_commit().files]
    assert len(set(names)) == 2
    assert all(name.count("/") == 1 and name.isascii() and name.isprintable() for name in names)


def test_dashes_in_ids_do_not_make_names_ambiguous(tmp_path: Path) -> None:
    names = set()
    for work_unit_id, attempt in (("a-b", "c"), ("a", "b-c")):
        files = files_in(tmp_path, FileSink(), work_unit_id=work_unit_id, attempt=attempt)
        files.write(numbered(0, 1))
        names |= {output.final_path for output in files.prepare_commit().files}
    assert len(names) == 2


def test_ids_too_long_for_a_file_name_are_rejected_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too long"):
        files_in(tmp_path, FileSink(), work_unit_id="w" * 250)


def test_second_writer_in_the_same_folder_is_rejected(tmp_path: Path) -> None:
    first, second = files_in(tmp_path, FileSink()), files_in(tmp_path, FileSink(), row_group_bytes=1)
    first.write(numbered(0, 1))
    second.write(numbered(0, 1))
    with pytest.raises(FileExistsError):
        first.prepare_commit()
    first.abort()
    check_outputs(tmp_path, second.prepare_commit().files)


def test_abort_leaves_unfinished_files_under_their_writing_name(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(partition_by=TimePartition()), row_group_bytes=1)
    files.write(numbered(0, 10))
    files.write(numbered(10, 10, time_ms=DAY_MS))
    files.abort()
    files.abort()
    unfinished = sorted(path.name for path in (tmp_path / "7/a1").iterdir())
    assert unfinished == ["0001.parquet.writing", "0002.parquet.writing"]
    for name in unfinished:
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(tmp_path / "7/a1" / name)
    with pytest.raises(ValueError, match="aborted"):
        files.prepare_commit()


def test_abort_after_close_changes_nothing(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink())
    files.write(numbered(0, 10))
    outputs = files.prepare_commit().files
    files.abort()
    check_outputs(tmp_path, outputs)
    for again in (files.prepare_commit, lambda: files.write(numbered(0, 1))):
        with pytest.raises(ValueError, match="closed"):
            again()


class InTurn(RealPosixCalls):
    """System calls of files that can be closed only while three are being closed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.three = threading.Barrier(3)

    def close(self, fd: int) -> None:
        self.three.wait(30)
        super().close(fd)


@pytest.mark.parametrize("ends", ["commit", "schema"])
def test_files_of_several_folders_are_finished_concurrently_if_calls_wait_for_a_network(
    tmp_path: Path, ends: str
) -> None:
    fs = LocalFileSystem(InTurn(), durable=False, parallel_calls=3)
    files = files_in(tmp_path, FileSink(partition_by=TimePartition()), fs=fs)
    days = [numbered(day * 10, 10, time_ms=day * DAY_MS) for day in range(3)]
    files.write(pa.Table.from_batches(days).combine_chunks().to_batches()[0])
    if ends == "schema":
        wider = [day.append_column("more", pa.array(range(10))) for day in days]
        files.write(pa.Table.from_batches(wider).combine_chunks().to_batches()[0].slice(0, 30))
    outputs = files.prepare_commit().files
    assert [output.records for output in outputs] == [10] * len(outputs)
    assert len({output.final_path for output in outputs}) == len(outputs) == (6 if ends == "schema" else 3)


class FullDisk(RealPosixCalls):
    """System calls of a disk with room for a given number of bytes."""

    def __init__(self, room_bytes: int) -> None:
        super().__init__()
        self.room_bytes = room_bytes

    def write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        self.room_bytes -= len(data)
        if self.room_bytes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("room_bytes", [0, 10, 40_000, 500_000])
def test_full_disk_fails_the_attempt_permanently(
    tmp_path: Path, file_format: FileFormat, room_bytes: int, calls: int
) -> None:
    compression = LEAST.get(file_format, "none")
    partition = TimePartition() if calls > 1 else None
    form = FileSink(format=file_format, compression=compression, target_file_bytes=300_000, partition_by=partition)
    fs = LocalFileSystem(FullDisk(room_bytes), parallel_calls=calls)
    files = files_in(tmp_path, form, fs=fs, row_group_bytes=100_000)

    def write_all() -> None:
        for start in range(0, 1000, 100):
            files.write(numbered(start, 100, random_bytes=1000, time_ms=start // 200 * DAY_MS))
        files.prepare_commit()

    with pytest.raises(OSError, match="No space left") as caught:
        write_all()
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(ValueError, match="failed"):
        files.prepare_commit()
    files.abort()
    assert all(path.name.endswith(".writing") for path in tmp_path.rglob("*") if path.is_file())


def test_attempt_with_a_half_written_batch_can_not_be_closed(tmp_path: Path) -> None:
    files = files_in(tmp_path, FileSink(), row_group_bytes=1)
    files.write(numbered(0, 10))
    with pytest.raises(SourceError):
        files.write(batch_of([(0, 11, 0, b""), (0, -1, 0, b"")]))
    with pytest.raises(ValueError, match="failed"):
        files.prepare_commit()
    files.abort()
