"""The commit log on a real folder: numbering, folding, truncation, zombies, corruption."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from distcommit.core.errors import CorruptError, OutcomeUnknownError, StorageRefusedError, UnknownVersionError
from distcommit.core.ports import FolderEntry, NotPutError
from distcommit.core.records.job_records import Decide
from distcommit.core.records.log_records import Done, Fence, Intent, Record, SealedSequence, SequenceName
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.fs.posix_calls.posix import PosixCalls, RealPosixCalls
from distcommit.protocol.fold import Fold
from distcommit.protocol.paths.store import segment_name
from distcommit.protocol.paths.temporary import TEMPORARY
from distcommit.stores.logs.log import CommitLog
from distcommit.stores.logs.segment import Segment, decode_segment, encode_segment
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
    return log.settle(lambda fold: None if fold.fence_epoch >= epoch else Fence(epoch, f"r{epoch}"))


def seal(log: CommitLog, urn: str, epoch: int, high: int) -> Fold:
    def decide(fold: Fold) -> Record | None:
        state = fold.state_of(urn)
        if state.closed_epoch >= epoch:
            return None
        return Intent(epoch, (SealedSequence(urn, epoch, state.watermark, Watermark({"0": high}), ()),))

    return log.settle(decide)


def close(log: CommitLog, urn: str, epoch: int) -> Fold:
    name = SequenceName(urn, epoch)
    return log.settle(lambda fold: Done(epoch, (name,)) if fold.sequence(name) else None)


def test_two_writers_see_one_order(tmp_path: Path) -> None:
    one, two = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(one, 1)
    seal(one, "a", 1, 5)
    seal(two, "a", 1, 7)
    assert one.refresh().state_of("a") == two.refresh().state_of("a")
    assert one.refresh().state_of("a").sequence == SealedSequence("a", 1, None, Watermark({"0": 5}), ())


class SweptAside(LocalFileSystem):
    """So many puts find that what they wrote aside was swept before it took its name."""

    def __init__(self, times: int) -> None:
        super().__init__(durable=False)
        self._left = times

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._left -= 1
        if self._left >= 0:
            raise FileNotFoundError(errno.ENOENT, "swept", path)
        return super().put_if_absent(path, data)


def test_whose_first_segment_is_swept_aside_tries_again_and_one_that_never_gets_there_says_so(tmp_path: Path) -> None:
    CommitLog(SweptAside(2), str(tmp_path / "twice")).create()
    assert fence(CommitLog(FS, str(tmp_path / "twice"), 1), 1).fence_epoch == 1
    with pytest.raises(FileNotFoundError, match="swept"):
        CommitLog(SweptAside(9), str(tmp_path / "always")).create()


def test_a_lost_race_is_decided_anew(tmp_path: Path) -> None:
    """Between fold and put another writer takes the number: the old payload is dropped, not put at the next one."""
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

    fold = two.settle(decide)
    assert fold.state_of("a").sequence == SealedSequence("a", 1, None, Watermark({"0": 5}), ())
    assert fold.ignored == []


def test_checkpoint_and_truncation_keep_the_state_and_bound_the_folder(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    for epoch in range(1, 30):
        fence(log, epoch)
        seal(log, "a", epoch, epoch)
        close(log, "a", epoch)
        run_alone(log.checkpoint_batched(at_least=4))
    fresh = make_log(tmp_path / "log").refresh()
    assert fresh.state_of("a").watermark == Watermark({"0": 29})
    assert fresh.datasets == log.refresh().datasets
    assert len(list((tmp_path / "log").iterdir())) < 16


def test_what_lies_below_a_checkpoint_may_be_gone_or_torn_but_is_no_other(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    head = log.head(0)
    fence(log, 2)
    run_alone(log.checkpoint_batched(at_least=1))
    segment = tmp_path / "log" / segment_name(head.number)
    assert log.has(head)
    assert not log.has(msgspec.structs.replace(head, checksum="0" * 16))
    segment.write_bytes(b"torn")
    assert log.has(head)
    segment.unlink()
    assert log.has(head)


class _WatchedReads(LocalFileSystem):
    """Notes which files are read, and lets somebody else go first, once, before the next one is."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.race: list[Callable[[], None]] = []
        self.done: list[str] = []

    def read(self, path: str) -> bytes:
        while self.race:
            self.race.pop()()
        self.done.append(path)
        return super().read(path)


def test_who_has_read_a_log_reads_only_what_is_new(tmp_path: Path) -> None:
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
    """Counts how often folders are listed."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.listed = 0

    def list_folder(self, path: str) -> list[FolderEntry]:
        self.listed += 1
        return super().list_folder(path)


def test_a_log_is_listed_once_for_a_record_and_not_to_sweep_or_for_a_checkpoint_that_is_not_due(tmp_path: Path) -> None:
    fs = _Listings()
    log = make_log(tmp_path / "log", fs=fs)
    (tmp_path / "log" / f"{TEMPORARY}left").touch()
    log.refresh()
    assert fs.listed == 2  # what it has read counts once a listing after that shows it
    fence(log, 1)
    log.sweep_temporary()
    run_alone(log.checkpoint_batched(at_least=2))
    assert log.latest().fence_epoch == 1
    assert fs.listed == 3
    assert not [path for path in (tmp_path / "log").iterdir() if path.name.startswith(TEMPORARY)]
    assert fence(log, 1).fence_epoch == 1
    assert fs.listed == 4, "that there is nothing to do is told by a look"


def test_who_decides_on_an_older_fold_decides_again_on_what_is_there(tmp_path: Path) -> None:
    one, two = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(one, 1)
    two.refresh()
    seal(one, "a", 1, 5)
    asked: list[int] = []

    def decide(fold: Fold) -> Record | None:
        asked.append(fold.number)
        return None if fold.fence_epoch == 2 else Fence(2, "r2")

    fold = two.settle(decide)
    assert asked == [2, 3, 4]
    assert (fold.fence_epoch, fold.state_of("a").closed_epoch) == (2, 1)
    seal(one, "b", 2, 5)
    assert "b" in fence(two, 2).datasets, "that there is nothing to do is never said of an older fold"


def test_a_fold_is_not_taken_for_known_if_the_look_at_what_is_new_failed(tmp_path: Path) -> None:
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


def test_who_misses_a_number_that_is_truncated_while_it_reads_begins_again(tmp_path: Path) -> None:
    fs = _WatchedReads()
    log, reader = make_log(tmp_path / "log"), make_log(tmp_path / "log", fs=fs)
    fence(log, 1)
    reader.refresh()
    seal(log, "a", 1, 5)

    def truncated() -> None:
        for _ in range(3):
            run_alone(log.checkpoint_batched(at_least=1))

    fs.race.append(truncated)
    assert reader.refresh().state_of("a").sequence is not None
    assert not fs.race


def test_a_zombie_whose_put_lands_on_a_truncated_number_has_no_effect(tmp_path: Path) -> None:
    log, zombie = make_log(tmp_path / "log"), make_log(tmp_path / "log")
    fence(log, 1)
    stale = zombie.refresh()
    number = stale.number + 1
    for epoch in range(2, 6):
        fence(log, epoch)
        run_alone(log.checkpoint_batched(at_least=1))
    path = tmp_path / "log" / f"{number:012d}.seg"
    assert not path.exists(), "the number was truncated away"
    intent = Intent(1, (SealedSequence("a", 1, None, Watermark({"0": 5}), ()),))
    assert stale.fence_epoch == 1
    assert FS.put_if_absent(str(path), encode_segment(Segment(1, "ff", intent)))
    assert zombie.refresh().state_of("a").sequence is None
    assert make_log(tmp_path / "log").refresh().state_of("a").sequence is None
    log.truncate()
    assert not path.exists()


def test_a_reader_whose_segments_are_truncated_under_it_starts_again(tmp_path: Path) -> None:
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
                    run_alone(writer.checkpoint_batched(at_least=1))
            return super().read(path)

    reader = make_log(tmp_path / "log", fs=Truncating(durable=False))
    fold = reader.refresh()
    assert (fold.fence_epoch, fold.state_of("a").watermark) == (4, Watermark({"0": 1}))


@pytest.mark.parametrize("damage", ["empty", "torn", "flipped", "foreign", "newer", "renumbered"])
def test_a_damaged_segment_is_named_never_skipped(tmp_path: Path, damage: str) -> None:
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


def test_a_missing_segment_is_an_error_not_an_older_state(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    seal(log, "a", 1, 1)
    (tmp_path / "log" / f"{2:012d}.seg").unlink()
    with pytest.raises(CorruptError, match="missing"):
        make_log(tmp_path / "log").refresh()


class FlakyCalls(RealPosixCalls):
    """Answers of the first `times` renames are lost, after they took effect or before."""

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
def test_a_lost_answer_is_read_back(tmp_path: Path, takes_effect: bool) -> None:
    log = make_log(tmp_path / "log", fs=LocalFileSystem(FlakyCalls(1, takes_effect=takes_effect)))
    fold = fence(log, 1)
    assert (fold.fence_epoch, fold.number) == (1, 2)


def test_an_outage_ends_in_an_error_that_says_the_outcome_is_unknown(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log", fs=LocalFileSystem(FlakyCalls(99, takes_effect=False)))
    with pytest.raises(OutcomeUnknownError):
        fence(log, 1)


def test_decoding_is_bounded_and_typed_for_any_bytes() -> None:
    for data in (b"", b"\n", b"distcommit-segment 1\n", bytes(range(256)) * 10):
        with pytest.raises(CorruptError):
            decode_segment(data, "x")


def test_an_emptied_log_is_a_damaged_one_not_a_new_one(tmp_path: Path) -> None:
    log = make_log(tmp_path / "log")
    fence(log, 1)
    for path in (tmp_path / "log").iterdir():
        path.unlink()
    for reader in (log, CommitLog(FS, str(tmp_path / "log"))):
        with pytest.raises(CorruptError, match="missing"):
            reader.refresh()


def test_a_zombie_s_record_on_a_number_that_was_truncated_while_it_was_read_does_not_count() -> None:
    machine = Machine()
    fs, folder = SimulatedFileSystem(machine), "/job/log"
    keeper, reader = CommitLog(fs, folder), CommitLog(fs, folder)
    keeper.create()
    keeper.settle(Once(Fence(2, "old")))
    assert reader.refresh().fence_epoch == 2
    keeper.settle(Once(Fence(3, "new")))
    place = f"{folder}/{keeper.refresh().number:012d}.seg"

    def truncated_and_written_anew(operation: Operation) -> None:
        if operation == Operation("read", place):
            machine.faults.clear()
            for epoch in (4, 5):
                keeper.settle(Once(Fence(epoch, "newer")))
                run_alone(keeper.checkpoint_batched(at_least=1))
            assert fs.put_if_absent(place, encode_segment(Segment(2, "ff", Decide(2))))

    machine.faults.append(truncated_and_written_anew)
    fold = reader.refresh()
    assert machine.faults == []
    assert (fold.fence_epoch, fold.decided_epochs) == (5, frozenset())


def fenced(fold: Fold) -> Record | None:
    return None if fold.fence_epoch == 2 else Fence(2, "mine")


_WHEN = {
    "the temporary file is made": "open_new",
    "it is written": "write",
    "it is synced": "fsync",
    "it gets its name": "rename_noreplace",
}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("call", _WHEN.values(), ids=_WHEN)
def test_a_storage_that_takes_nothing_is_told_as_such_and_never_as_an_unknown_outcome(call: str, code: int) -> None:
    machine = new_machine()
    log = CommitLog(SimulatedFileSystem(machine), "/job/log")
    log.create()
    fault = Fault(code, 0, 1_000_000, concerns=lambda name, arguments: name == call)
    full = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")
    with pytest.raises(StorageRefusedError, match="a log segment was not written") as caught:
        full.settle(fenced)
    assert errno.errorcode[code] in caught.value.found
    assert "/job/log" in caught.value.todo
    assert log.refresh().fence_epoch == 0
    fault.times = 0
    assert full.settle(fenced).fence_epoch == 2


def test_a_refusal_that_does_not_last_costs_nothing() -> None:
    machine = new_machine()
    log = CommitLog(SimulatedFileSystem(machine), "/job/log")
    log.create()
    fault = Fault(errno.ENOSPC, 0, 2, concerns=lambda name, arguments: name == "open_new")
    busy = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")
    assert busy.settle(fenced).fence_epoch == 2


def test_a_full_disk_after_a_lost_answer_leaves_the_outcome_unknown() -> None:
    machine = new_machine()
    CommitLog(SimulatedFileSystem(machine), "/job/log").create()
    codes = iter([errno.EIO, errno.ENOSPC, errno.ENOSPC])

    class Mixed(FaultyCalls):
        def rename_noreplace(self, source: str, target: str) -> None:
            raise OSError(next(codes), "refused", target)

    log = CommitLog(SimulatedFileSystem(cast(PosixCalls, Mixed(machine, Fault(0, 0, 0)))), "/job/log")
    with pytest.raises(OutcomeUnknownError):
        log.settle(fenced)


def test_a_refusal_of_the_next_record_is_told_as_such_though_the_answer_to_the_one_before_was_lost() -> None:
    machine = new_machine()
    CommitLog(SimulatedFileSystem(machine), "/job/log").create()
    after_one = 1
    fault = Fault(errno.EROFS, after_one, 1_000_000, concerns=lambda name, arguments: name == "fsync_folder")
    log = CommitLog(SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault))), "/job/log")

    def fenced_twice(fold: Fold) -> Record | None:
        return Fence(fold.fence_epoch + 1, "mine") if fold.fence_epoch < 2 else None

    with pytest.raises(StorageRefusedError, match="a log segment was not written"):
        log.settle(fenced_twice)
    assert log.refresh().fence_epoch == 1


@pytest.mark.parametrize("syncs", [1, 2])
def test_of_puts_together_only_what_failed_before_the_names_is_surely_not_there(syncs: int) -> None:
    machine = new_machine()
    fault = Fault(errno.ENOSPC, syncs - 1, 1, concerns=lambda name, arguments: name == "syncfs")
    fs = SimulatedFileSystem(cast(PosixCalls, FaultyCalls(machine, fault)))
    answers = fs.put_all_if_absent([("/job/a", b"1"), ("/job/b", b"2")])
    assert [type(answer) is NotPutError for answer in answers] == [syncs == 1] * 2
    assert [fs.status(f"/job/{name}") is None for name in "ab"] == [syncs == 1] * 2
