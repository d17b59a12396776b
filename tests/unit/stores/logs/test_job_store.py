"""Making and opening a job's store: what is refused, by name, before anything is done."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from distcommit.core.errors import ConfigurationError, CorruptError, UnknownVersionError
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.fs.posix_calls.posix import RealPosixCalls
from distcommit.stores.logs.fencing import fence_job
from distcommit.stores.state.job_store import DEFAULT_BUCKETS, JobStore, Roots, has_store, open_store
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.damage import of_version
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedFileSystem
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import OUTPUT, STAGING, LinkMachine, Machine, Meeting, fails


def roots(base: Path) -> Roots:
    return Roots(str(base / "store"), str(base / "staging"), str(base / "output"))


def make(calls: SimulatedPosix, buckets: int | None = 3, *, create: bool = True) -> JobStore:
    return open_store(SimulatedFileSystem(calls), ROOTS, "job", buckets, create=create)


def marker(machine: Machine) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(
        machine.paths("/job/store")["/job/store/store.json"].partition(b"xxh3")[0]
    )
    return found


def test_a_store_that_is_there_is_opened_as_it_is_and_never_made_anew() -> None:
    machine = Machine()
    made = make(machine)
    assert has_store(made.fs, ROOTS)
    fence_job(made, "r1")
    before = machine.paths("/job")
    machine.made.clear()
    assert make(machine, None, create=False).buckets == 3
    assert make(machine).buckets == 3
    assert machine.paths("/job") == before
    assert {operation.kind for operation in machine.made} == {"read", "scandir"}, "opening costs O(1)"


def test_a_missing_store_is_not_made_unasked() -> None:
    machine = Machine()
    with pytest.raises(ConfigurationError, match="the store does not exist") as caught:
        make(machine, create=False)
    assert caught.value.ids == {"path": "/job/store"}
    assert list(machine.walk("/job")) == []
    assert not has_store(SimulatedFileSystem(machine), ROOTS)


def test_a_new_store_for_which_nobody_names_a_number_of_buckets_has_the_default() -> None:
    machine = Machine()
    assert make(machine, None).buckets == DEFAULT_BUCKETS
    assert make(machine, None).buckets == make(machine, DEFAULT_BUCKETS).buckets


def test_another_job_s_store_is_refused() -> None:
    machine = Machine()
    make(machine)
    with pytest.raises(ConfigurationError, match="another job") as caught:
        open_store(SimulatedFileSystem(machine), ROOTS, "other", create=True)
    assert (caught.value.expected, caught.value.found) == ("job 'other'", "job 'job'")


def test_another_number_of_buckets_is_refused() -> None:
    machine = Machine()
    make(machine)
    with pytest.raises(ConfigurationError, match="another number of buckets") as caught:
        make(machine, 4)
    assert (caught.value.expected, caught.value.found) == ("commit.buckets: 4", "3 buckets")


def test_a_store_of_another_format_version_is_refused() -> None:
    machine = Machine()
    make(machine)
    written = machine.read_file("/job/store/store.json")
    machine.put("/job/store/store.json", of_version(written, 2))
    with pytest.raises(UnknownVersionError) as caught:
        make(machine)
    assert caught.value.ids == {"path": "/job/store/store.json"}
    machine.put("/job/store/store.json", written.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(CorruptError, match="checksum"):
        make(machine)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\xff\xff", b'{"format": 5}', b"[" * 100_000])
def test_a_corrupt_marker_is_named_and_the_store_not_made_anew(data: bytes) -> None:
    machine = Machine()
    make(machine)
    machine.put("/job/store/store.json", data)
    with pytest.raises(CorruptError) as caught:
        make(machine)
    assert caught.value.ids == {"path": "/job/store/store.json"}
    assert machine.paths("/job/store")["/job/store/store.json"] == data


def test_a_marker_that_may_not_be_read_is_a_configuration_error() -> None:
    machine = Machine()
    make(machine)
    machine.faults.append(fails(errno.EACCES, "read", "store.json"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        make(machine)


@pytest.mark.parametrize("folder", ["store", "staging", "output"])
@pytest.mark.parametrize(("kind", "code"), [("mkdir", errno.EACCES), ("create", errno.EROFS), ("fsync", errno.ENOSPC)])
def test_a_folder_that_can_not_be_made_or_written_is_named(folder: str, kind: str, code: int) -> None:
    machine = Machine()
    machine.faults.append(fails(code, kind, f"/job/{folder}"))
    with pytest.raises(ConfigurationError, match="cannot be created or written") as caught:
        make(machine)
    assert f"/job/{folder}" in caught.value.found
    machine.restart()
    assert make(machine).buckets == 3
    assert not [path for path in machine.paths("/job") if "probe" in path]


def other_device(tmp_path: Path) -> Path | None:
    places = (Path("/dev/shm"), Path("/var/tmp"))
    writable = (place for place in places if place.is_dir() and os.access(place, os.W_OK))
    return next((place for place in writable if place.stat().st_dev != tmp_path.stat().st_dev), None)


def test_staging_on_another_file_system_is_refused_by_name(tmp_path: Path) -> None:
    other = other_device(tmp_path)
    if other is None:
        pytest.skip("no second file system here")
    staging = other / f"distcommit-{os.getpid()}"
    places = Roots(str(tmp_path / "store"), str(staging), str(tmp_path / "output"))
    try:
        with pytest.raises(ConfigurationError, match="lacks an ability that exactly-once needs") as caught:
            open_store(LocalFileSystem(), places, "job", 1, create=True)
        assert str(staging) in str(caught.value)
        assert list(staging.iterdir()) == []
    finally:
        staging.rmdir()
    assert not (tmp_path / "store" / "store.json").exists()


class ReplacingCalls(RealPosixCalls):
    """A file system whose rename replaces what is there (as an old FUSE mount does)."""

    def __init__(self, *, only_between_folders: bool) -> None:
        super().__init__()
        self.only_between_folders = only_between_folders

    def rename_noreplace(self, source: str, target: str) -> None:
        if self.only_between_folders and os.path.dirname(source) == os.path.dirname(target):
            super().rename_noreplace(source, target)
        else:
            os.replace(source, target)


@pytest.mark.parametrize(
    ("between", "what"), [(False, "put-if-absent"), (True, "rename without replacing an existing file")]
)
def test_a_file_system_whose_rename_replaces_is_refused_by_name(tmp_path: Path, between: bool, what: str) -> None:
    fs = LocalFileSystem(ReplacingCalls(only_between_folders=between))
    with pytest.raises(ConfigurationError, match="this file file system lacks an ability") as caught:
        open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert what in str(caught.value)
    assert not (tmp_path / "store" / "store.json").exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class UntriedFileSystem(LocalFileSystem):
    """One whose kind nobody has tried: what comes of each trial is said before."""

    def __init__(self, *outcomes: Exception) -> None:
        super().__init__()
        self.outcomes, self.tried = list(outcomes), 0

    def probe(self, folder: str) -> None:
        self.tried += 1
        self.make_folders(f"{folder}/deep")
        self.put_if_absent(f"{folder}/deep/file", b"x")
        if self.outcomes:
            raise self.outcomes.pop(0)


UNFIT = ConfigurationError("it can't")


@pytest.mark.parametrize("outcomes", [(), (UNFIT,), (UNFIT, FileNotFoundError("swept by a twin"))])
def test_an_untried_file_system_is_tried_in_full_and_again_if_it_fails(
    tmp_path: Path, outcomes: tuple[Exception, ...]
) -> None:
    left = tmp_path / "store" / "probe-folder-of-one-that-died" / "deep"
    left.mkdir(parents=True)
    (left / "file").touch()
    fs = UntriedFileSystem(*outcomes)
    open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert fs.tried == len(outcomes) + 1
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["log", "store.json"]
    open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert fs.tried == len(outcomes) + 1, "a store that is there is only opened"


def test_an_untried_file_system_that_fails_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it can't"):
        open_store(UntriedFileSystem(*[UNFIT] * 3), roots(tmp_path), "job", 1, create=True)
    assert list((tmp_path / "store").iterdir()) == []


class NoRenameat2Calls(RealPosixCalls):
    """A file system without RENAME_NOREPLACE (NFS): link and unlink do."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.EINVAL, "not supported", target)


def test_a_file_system_without_renameat2_is_good_enough_if_it_links(tmp_path: Path) -> None:
    store = open_store(LocalFileSystem(NoRenameat2Calls()), roots(tmp_path), "job", 1, create=True)
    assert fence_job(store, "r1") == 2


class NoLinkCalls(NoRenameat2Calls):
    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EPERM, "not permitted", target)


def test_a_file_system_that_neither_renames_nor_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        open_store(LocalFileSystem(NoLinkCalls()), roots(tmp_path), "job", 1, create=True)


def test_two_creators_at_once_both_open_one_and_the_same_store_wherever_they_meet() -> None:
    for number in range(1000):
        machine = Machine()
        meeting = Meeting(machine, number, partial(make, machine))
        machine.faults.append(meeting)
        mine = make(machine)
        if meeting.result is None:
            break
        assert meeting.result.buckets == mine.buckets == 3, number
        assert fence_job(mine, "r1") < fence_job(meeting.result, "r2"), number
        assert not [path for path in machine.paths("/job") if "probe" in path], number
    assert number > 40


def test_of_two_creators_who_want_different_buckets_one_is_refused() -> None:
    machine = Machine()
    meeting = Meeting(machine, 30, lambda: make(machine, 5))
    machine.faults.append(meeting)
    with pytest.raises(ConfigurationError, match="another number of buckets"):
        make(machine, 3)
    assert meeting.result.buckets == 5


def test_a_creation_that_crashed_anywhere_is_made_good_by_the_next() -> None:
    for number in range(1000):
        machine = Machine()
        meeting = Meeting(machine, number, crash)
        machine.faults.append(meeting)
        try:
            make(machine)
        except Crashed:
            pass
        else:
            break
        for after in (machine.after_kill(), *machine.after_power_loss(random.Random(number), 2, 3)):
            if "/job" in dict(after.walk("/")):
                store = make(after)
                assert fence_job(store, "r1") == 2, number
                assert [path for path, _ in after.walk("/job") if "probe" in path] == [], number
    assert number > 40


def crash() -> None:
    raise Crashed


class ApartMachine(LinkMachine):
    """Staging and output on two file systems, and a kernel that says so only where the new name is free."""

    def link(self, source: str, target: str) -> None:
        if source.startswith(STAGING) and target.startswith(OUTPUT) and target not in dict(self.walk("/")):
            raise OSError(errno.EXDEV, "another device", target)
        super().link(source, target)


def test_staging_and_output_on_two_file_systems_are_refused_when_the_store_is_made() -> None:
    with pytest.raises(ConfigurationError, match="must share one file system"):
        WORLD.store(ApartMachine())
    WORLD.store(LinkMachine())


@pytest.mark.parametrize("place", ["store", "staging", "output"])
def test_what_was_probed_with_is_taken_away_though_one_of_it_can_not_be_at_once(place: str) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.EIO, "unlink", f"/job/{place}/probe-", times=1))
    with suppress(ConfigurationError):  # if it is what is tried that fails
        WORLD.store(machine)
    assert not [path for path in machine.paths("/job") if "probe-" in path]
