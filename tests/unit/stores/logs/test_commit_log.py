"""The commit log in a real folder: numbering, folds, truncation, zombies and corruption."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from distcommit.core.errors import (
    CorruptError,
    DistcommitError,
    OutcomeUnknownError,
    StorageRefusedError,
    UnknownVersionError,
)
from distcommit.core.interfaces.file_system import FolderEntry, NotPutError
from distcommit.core.records.job_log_records import Decide
from distcommit.core.records.log_records import Done, Fence, Intent, Record
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import PosixCalls, RealPosixCalls
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.protocol.paths.temporary_and_probes import TEMPORARY
from distcommit.stores.logs import segment_format
from distcommit.stores.logs.commit_log import CommitLog
from distcommit.stores.logs.segment_format import Segment, decode_segment, encode_segment
from distcommit.testing.fakes.faulty_calls import Fault, FaultyCalls, Operation
from tests.simulation.damage import of_version
from tests.simulation.programs.parts import new_machine
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, Once

FS = LocalFileSystem(durable=False)


def make_log(folder: Path, epoch: int = 1, fs: LocalFileSystem = FS) -> CommitLog:
    CommitLog(FS, str(folder)).create()
    return CommitLog(fs, str(folder), epoch)


def fence(log: CommitLog, epoch: int) -> Fold:
    return run_alone(log.settle(lambda fold: None if fold.fence_epoch >= epoch else Fence(epoch, f"r{epoch}")))


def seal(log: CommitLog, urn: str, epoch: int, high: int) -> Fold:
    def decide(fold: Fold) -> Record | None:
        state = fold.state_of(urn)
        if state.closed_epoch >= epoch:
            return None
        return Intent(epoch, (SealedSequence(urn, epoch, state.watermark, Watermark({"0": high}), ()),))

    return run_alone(log.settle(decide))


def close(log: CommitLog, urn: str, epoch: int) -> Fold:
    name = SequenceName(urn, epoch)
    return run_alone(log.settle(lambda fold: Done(epoch, (name,)) if fold.sequence(name) else None))


def test_two_writers_see_the_same_order_of_records(tmp_path: Path) -> None:
    one, two = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(one, 1)
    seal(one, "a", 1, 5)
    seal(two, "a", 1, 7)
    assert one.refresh().state_of("a") == two.refresh().state_of("a")
    assert one.refresh().state_of("a").sequence == SealedSequence("a", 1, None, Watermark({"0": 5}), ())


class SweptAside(LocalFileSystem):
    """A file system where the temporary file of the first `times` puts is swept before its rename."""

    def __init__(self, times: int) -> None:
        super().__init__(durable=False)
        self._remaining = times

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._remaining -= 1
        if self._remaining >= 0:
            raise FileNotFoundError(errno.ENOENT, "swept", path)
        return super().put_if_absent(path, data)


def test_first_segment_whose_temporary_file_is_swept_is_retried_a_limited_number_of_times(tmp_path: Path) -> None:
    CommitLog(SweptAside(2), str(tmp_path / "twice")).create()
    assert fence(CommitLog(FS, str(tmp_path / "twice"), 1), 1).fence_epoch == 1
    with pytest.raises(FileNotFoundError, match="swept"):
        CommitLog(SweptAside(9), str(tmp_path / "always")).create()


def test_writer_that_loses_a_race_decides_again(tmp_path: Path) -> None:
    """Another writer takes the number between fold and put. The old payload is dropped instead of being put at the next
    number."""
    one, two = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(one, 1)
    two.refresh()
    raced: list[bool] = []

    def decide(fold: Fold) -> Record | None:
        if not raced:
            raced.append(True)
            seal(one, "a", 1, 5)
        if fold.state_of("a").closed_epoch >= 1:
            return None
        return Intent(1, (SealedSequence("a", 1, None, Watermark({"0": 7}), ()),))

    fold = run_alone(two.settle(decide))
    assert fold.state_of("a").sequence == SealedSequence("a", 1, None, Watermark({"0": 5}), ())
    assert fold.ignored == []


def test_checkpoint_and_truncation_keep_the_state_and_bound_the_folder(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    for epoch in range(1, 30):
        fence(log, epoch)
        seal(log, "a", epoch, epoch)
        close(log, "a", epoch)
        run_alone(log.checkpoint(at_least=4))
    fresh = make_log(tmp_path / "log").refresh()
    assert fresh.state_of("a").watermark == Watermark({"0": 29})
    assert fresh.datasets == log.refresh().datasets
    assert len(list((tmp_path / "log").iterdir())) < 16


def test_segment_below_a_checkpoint_may_be_missing_or_damaged_but_not_different(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    head = log.head(0)
    fence(log, 2)
    run_alone(log.checkpoint(at_least=1))
    segment = tmp_path / "log" / segment_name(head.number)
    assert log.has(head)
    assert not log.has(msgspec.structs.replace(head, checksum="0" * 16))
    segment.write_bytes(b"torn")
    assert log.has(head)
    segment.unlink()
    assert log.has(head)


class _WatchedReads(LocalFileSystem):
    """A file system that records reads, and runs a competing action once before the next read."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.race: list[Callable[[], None]] = []
        self.done: list[str] = []

    def read(self, path: str) -> bytes:
        while self.race:
            self.race.pop()()
        self.done.append(path)
        return super().read(path)


def test_reader_reads_only_new_segments(tmp_path: Path) -> None:
    fs = _WatchedReads()
    log, reader = make_log(tmp_path / "log"), make_log(tmp_path / "log", fs=fs)
    fence(log, 1)
    reader.refresh()
    fs.done.clear()
    seal(log, "a", 1, 5)
    assert reader.refresh().state_of("a").sequence is not None
    reader.refresh()
    assert len(fs.done) == 1


class _Listings(LocalFileSystem):
    """A file system that counts listings."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.listed = 0

    def list_folder(self, path: str) -> list[FolderEntry]:
        self.listed += 1
        return super().list_folder(path)


def test_log_is_listed_once_for_each_record_and_not_for_sweeps_or_early_checkpoints(tmp_path: Path) -> None:
    fs = _Listings()
    log = make_log(tmp_path / "log", fs=fs)
    (tmp_path / "log" / f"{TEMPORARY}left").touch()
    log.refresh()
    assert fs.listed == 2  # segments count once a later listing shows them
    fence(log, 1)
    log.sweep_temporary()
    run_alone(log.checkpoint(at_least=2))
    assert log.latest().fence_epoch == 1
    assert fs.listed == 3
    assert not [path for path in (tmp_path / "log").iterdir() if path.name.startswith(TEMPORARY)]
    assert fence(log, 1).fence_epoch == 1
    assert fs.listed == 4, "a settle without a record must list the log once"


def test_decision_on_an_outdated_fold_is_repeated_on_the_current_one(tmp_path: Path) -> None:
    one, two = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(one, 1)
    two.refresh()
    seal(one, "a", 1, 5)
    numbers: list[int] = []

    def decide(fold: Fold) -> Record | None:
        numbers.append(fold.number)
        return None if fold.fence_epoch == 2 else Fence(2, "r2")

    fold = run_alone(two.settle(decide))
    assert numbers == [2, 3, 4]
    assert (fold.fence_epoch, fold.state_of("a").closed_epoch) == (2, 1)
    seal(one, "b", 2, 5)
    assert "b" in fence(two, 2).datasets, "a settle without a record must return the current fold"


def test_fold_is_not_current_after_a_failed_refresh(tmp_path: Path) -> None:
    fs = _WatchedReads()
    log, reader = make_log(tmp_path / "log"), make_log(tmp_path / "log", fs=fs)
    fence(log, 1)
    reader.refresh()
    seal(log, "a", 1, 5)

    def fails() -> None:
        raise OSError(errno.EIO, "not now")

    fs.race.append(fails)
    with pytest.raises(OSError, match="not now"):
        reader.refresh()
    assert reader.latest().state_of("a").sequence is not None


def test_reader_restarts_if_a_segment_is_truncated_before_its_read(tmp_path: Path) -> None:
    fs = _WatchedReads()
    log, reader = make_log(tmp_path / "log"), make_log(tmp_path / "log", fs=fs)
    fence(log, 1)
    reader.refresh()
    seal(log, "a", 1, 5)

    def truncated() -> None:
        for _ in range(3):
            run_alone(log.checkpoint(at_least=1))

    fs.race.append(truncated)
    assert reader.refresh().state_of("a").sequence is not None
    assert not fs.race


def test_zombie_record_on_a_truncated_number_has_no_effect(tmp_path: Path) -> None:
    log, zombie = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(log, 1)
    stale = zombie.refresh()
    number = stale.number + 1
    for epoch in range(2, 6):
        fence(log, epoch)
        run_alone(log.checkpoint(at_least=1))
    path = tmp_path / "log" / f"{number:012d}.seg"
    assert not path.exists(), "the number must have been truncated"
    intent = Intent(1, (SealedSequence("a", 1, None, Watermark({"0": 5}), ()),))
    assert stale.fence_epoch == 1
    assert FS.put_if_absent(str(path), encode_segment(Segment(1, "ff", intent)))
    assert zombie.refresh().state_of("a").sequence is None
    assert make_log(tmp_path / "log").refresh().state_of("a").sequence is None
    log.truncate()
    assert not path.exists()


def test_record_that_readers_would_reject_by_its_size_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    seal(log, "a", 1, 1)
    before = log.refresh().number
    largest = Segment(1, "ff", Done(1, (SequenceName("a" * 100, 1),)))
    size = len(msgspec.msgpack.encode(largest.record))
    monkeypatch.setattr(segment_format, "_MAX_RAW_BYTES", size + 1)
    assert decode_segment(encode_segment(largest), "path") == largest
    monkeypatch.setattr(segment_format, "_MAX_RAW_BYTES", 5)
    with pytest.raises(DistcommitError, match=r"log record is too large.*record=Done.*less than 5 bytes"):
        close(log, "a", 1)
    monkeypatch.undo()
    assert make_log(tmp_path / "log").refresh().number == before


def test_reader_restarts_if_its_segments_are_truncated_while_it_reads(tmp_path: Path) -> None:
    writer = make_log(tmp_path / "log")
    fence(writer, 1)
    seal(writer, "a", 1, 1)
    close(writer, "a", 1)

    class Truncating(LocalFileSystem):
        ran = False

        def read(self, path: str) -> bytes:
            if not self.ran:
                self.ran = True
                for epoch in (2, 3, 4):
                    fence(writer, epoch)
                    run_alone(writer.checkpoint(at_least=1))
            return super().read(path)

    reader = make_log(tmp_path / "log", fs=Truncating(durable=False))
    fold = reader.refresh()
    assert (fold.fence_epoch, fold.state_of("a").watermark) == (4, Watermark({"0": 1}))


@pytest.mark.parametrize("damage", ["empty", "torn", "flipped", "foreign", "newer", "renumbered"])
def test_damaged_segment_is_named_and_never_skipped(tmp_path: Path, damage: str) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    seal(log, "a", 1, 1)
    path = tmp_path / "log" / f"{2:012d}.seg"
    data = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "torn": data[:-3],
            "flipped": data[:-1] + bytes([data[-1] ^ 1]),
            "foreign": b"hello\n" * 20,
            "newer": of_version(data, 6),
            "renumbered": data.replace(b"distcommit-segment 1 ", b"distcommit-segment 6 "),
        }[damage]
    )
    with pytest.raises(CorruptError) as caught:
        make_log(tmp_path / "log").refresh()
    assert (type(caught.value) is UnknownVersionError) == (damage == "newer")
    assert caught.value.ids["path"] == str(path)


def test_missing_segment_raises_instead_of_returning_an_older_state(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    seal(log, "a", 1, 1)
    (tmp_path / "log" / f"{2:012d}.seg").unlink()
    with pytest.raises(CorruptError, match="missing"):
        make_log(tmp_path / "log").refresh()


class FlakyCalls(RealPosixCalls):
    """System calls that lose the answers of the first `times` renames, after or before these took effect."""

    def __init__(self, times: int, *, takes_effect: bool) -> None:
        super().__init__()
        self.times, self.takes_effect = times, takes_effect

    def rename_noreplace(self, source: str, target: str) -> None:
        if self.times > 0:
            self.times -= 1
            if self.takes_effect:
                super().rename_noreplace(source, target)
            raise OSError(errno.EIO, "answer lost", target)
        super().rename_noreplace(source, target)


@pytest.mark.parametrize("takes_effect", [True, False])
def test_outcome_of_a_put_with_a_lost_answer_is_read_back(tmp_path: Path, takes_effect: bool) -> None:
    log = make_log(tmp_path / "log", fs=LocalFileSystem(FlakyCalls(1, takes_effect=takes_effect)))
    fold = fence(log, 1)
    assert (fold.fence_epoch, fold.number) == (1, 2)


def test_outage_of_the_log_raises_outcome_unknown_error(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", fs=LocalFileSystem(FlakyCalls(99, takes_effect=False)))
    with pytest.raises(OutcomeUnknownError):
        fence(log, 1)


def test_decoding_of_any_bytes_raises_corrupt_error() -> None:
    for data in (b"", b"\n", b"distcommit-segment 1\n", bytes(range(256)) * 10):
        with pytest.raises(CorruptError):
            decode_segment(data, "x")


def test_emptied_log_is_reported_as_damaged_and_not_as_new(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    for reader in (log, CommitLog(FS, str(tmp_path / "log"))):
        with pytest.raises(CorruptError, match="missing"):
            reader.refresh()


def test_zombie_record_on_a_number_truncated_during_a_read_is_ignored() -> None:
    machine = Machine()
    fs, folder = SimulatedFileSystem(machine), "/job/log"
    keeper, reader = CommitLog(fs, folder), CommitLog(fs, folder)
    keeper.create()
    run_alone(keeper.settle(Once(Fence(2, "old"))))
    assert reader.refresh().fence_epoch == 2
    run_alone(keeper.settle(Once(Fence(3, "new"))))
    place = f"{folder}/{keeper.refresh().number:012d}.seg"

    def truncate_and_put_again(operation: Operation) -> None:
        if operation == Operation("read", place):
            machine.faults.clear()
            for epoch in (4, 5):
                run_alone(keeper.settle(Once(Fence(epoch, "newer"))))
                run_alone(keeper.checkpoint(at_least=1))
            assert fs.put_if_absent(place, encode_segment(Segment(2, "ff", Decide(2))))

    machine.faults.append(truncate_and_put_again)
    fold = reader.refresh()
    assert machine.faults == []
    assert (fold.fence_epoch, fold.decided_epochs) == (5, frozenset())


def fenced(fold: Fold) -> Record | None:
    return None if fold.fence_epoch == 2 else Fence(2, "mine")


_WHEN = {
    "at creation of the temporary file": "open_new",
    "at its write": "write",
    "at its sync": "fsync",
    "at its rename": "rename_noreplace",
}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", _WHEN.values(), ids=_WHEN)
def test_storage_refusal_raises_storage_refused_error_and_never_outcome_unknown(call: str, code: int) -> None:
    machine = new_machine()
    log = CommitLog(SimulatedFileSystem(machine), "/job/log")
    log.create()
    fault = Fault(code, 0, 1_000_000, concerns=lambda name, arguments: name == call)
    full = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")
    with pytest.raises(StorageRefusedError, match="a log segment was not written") as caught:
        run_alone(full.settle(fenced))
    assert errno.errorcode[code] in caught.value.found
    assert "/job/log" in caught.value.todo
    assert log.refresh().fence_epoch == 0
    fault.times = 0
    assert run_alone(full.settle(fenced)).fence_epoch == 2


def test_temporary_storage_refusal_is_retried() -> None:
    machine = new_machine()
    log = CommitLog(SimulatedFileSystem(machine), "/job/log")
    log.create()
    fault = Fault(errno.ENOSPC, 0, 2, concerns=lambda name, arguments: name == "open_new")
    busy = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")
    assert run_alone(busy.settle(fenced)).fence_epoch == 2


def test_full_disk_after_a_lost_answer_raises_outcome_unknown_error() -> None:
    machine = new_machine()
    CommitLog(SimulatedFileSystem(machine), "/job/log").create()
    codes = iter([errno.EIO, errno.ENOSPC, errno.ENOSPC])

    class Mixed(FaultyCalls):
        def rename_noreplace(self, source: str, target: str) -> None:
            raise OSError(next(codes), "refused", target)

    log = CommitLog(SimulatedFileSystem(cast(PosixCalls, Mixed(machine, Fault(0, 0, 0)))), "/job/log")
    with pytest.raises(OutcomeUnknownError):
        run_alone(log.settle(fenced))


def test_storage_refusal_of_a_record_raises_although_the_answer_to_the_previous_one_was_lost() -> None:
    machine = new_machine()
    CommitLog(SimulatedFileSystem(machine), "/job/log").create()
    after_one = 1
    fault = Fault(errno.EROFS, after_one, 1_000_000, concerns=lambda name, arguments: name == "fsync_folder")
    log = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")

    def fenced_twice(fold: Fold) -> Record | None:
        return Fence(fold.fence_epoch + 1, "mine") if fold.fence_epoch < 2 else None

    with pytest.raises(StorageRefusedError, match="a log segment was not written"):
        run_alone(log.settle(fenced_twice))
    assert log.refresh().fence_epoch == 1


@pytest.mark.parametrize("syncs", [1, 2])
def test_batched_put_is_reported_as_not_put_only_if_it_failed_before_the_renames(syncs: int) -> None:
    machine = new_machine()
    fault = Fault(errno.ENOSPC, syncs - 1, 1, concerns=lambda name, arguments: name == "syncfs")
    fs = SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault)))
    answers = fs.put_all_if_absent([("/job/a", b"1"), ("/job/b", b"2")])
    assert [type(answer) is NotPutError for answer in answers] == [syncs == 1] * 2
    assert [fs.status(f"/job/{name}") is None for name in "ab"] == [syncs == 1] * 2
