"""Creation and opening of a job's store; unusable stores are refused with their name before anything is written."""

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
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
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
    document: dict[str, object] = msgspec.json.decode(
        machine.paths("/job/store")["/job/store/store.json"].partition(b"xxh3")[0]
    )
    return document


def test_existing_store_is_opened_unchanged_and_never_recreated() -> None:
    machine = Machine()
    store = make(machine)
    assert has_store(store.fs, ROOTS)
    fence_job(store, "r1")
    before = machine.paths("/job")
    machine.made.clear()
    assert make(machine, None, create=False).buckets == 3
    assert make(machine).buckets == 3
    assert machine.paths("/job") == before
    assert {operation.kind for operation in machine.made} == {"read", "scandir"}, "opening must only read and list"


def test_missing_store_is_not_created_without_the_create_option() -> None:
    machine = Machine()
    with pytest.raises(ConfigurationError, match="the store does not exist") as caught:
        make(machine, create=False)
    assert caught.value.ids == {"path": "/job/store"}
    assert list(machine.walk("/job")) == []
    assert not has_store(SimulatedFileSystem(machine), ROOTS)


def test_new_store_without_a_number_of_buckets_has_the_default() -> None:
    machine = Machine()
    assert make(machine, None).buckets == DEFAULT_BUCKETS
    assert make(machine, None).buckets == make(machine, DEFAULT_BUCKETS).buckets


def test_store_of_another_job_is_refused() -> None:
    machine = Machine()
    make(machine)
    with pytest.raises(ConfigurationError, match="another job") as caught:
        open_store(SimulatedFileSystem(machine), ROOTS, "other", create=True)
    assert (caught.value.expected, caught.value.found) == ("job 'other'", "job 'job'")


def test_store_with_another_number_of_buckets_is_refused() -> None:
    machine = Machine()
    make(machine)
    with pytest.raises(ConfigurationError, match="another number of buckets") as caught:
        make(machine, 4)
    assert (caught.value.expected, caught.value.found) == ("commit.buckets: 4", "3 buckets")


def test_store_of_another_format_version_is_refused() -> None:
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
def test_corrupt_marker_is_named_and_the_store_is_not_recreated(data: bytes) -> None:
    machine = Machine()
    make(machine)
    machine.put("/job/store/store.json", data)
    with pytest.raises(CorruptError) as caught:
        make(machine)
    assert caught.value.ids == {"path": "/job/store/store.json"}
    assert machine.paths("/job/store")["/job/store/store.json"] == data


def test_unreadable_marker_raises_configuration_error() -> None:
    machine = Machine()
    make(machine)
    machine.faults.append(fails(errno.EACCES, "read", "store.json"))
    with pytest.raises(ConfigurationError, match="cannot be read"):
        make(machine)


@pytest.mark.parametrize("folder", ["store", "staging", "output"])
@pytest.mark.parametrize(("kind", "code"), [("mkdir", errno.EACCES), ("create", errno.EROFS), ("fsync", errno.ENOSPC)])
def test_folder_that_cannot_be_created_or_written_is_named(folder: str, kind: str, code: int) -> None:
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
    """System calls of a file system whose rename replaces existing files, as an old FUSE mount does."""

    def __init__(self, *, only_between_folders: bool) -> None:
        super().__init__()
        self.only_between_folders = only_between_folders

    def rename_noreplace(self, source: str, target: str) -> None:
        if self.only_between_folders and os.path.dirname(source) == os.path.dirname(target):
            super().rename_noreplace(source, target)
        else:
            os.replace(source, target)


@pytest.mark.parametrize(
    ("between", "ability"), [(False, "put-if-absent"), (True, "rename without replacing an existing file")]
)
def test_file_system_whose_rename_replaces_is_refused_by_name(tmp_path: Path, between: bool, ability: str) -> None:
    fs = LocalFileSystem(ReplacingCalls(only_between_folders=between))
    with pytest.raises(ConfigurationError, match="this file file system lacks an ability") as caught:
        open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert ability in str(caught.value)
    assert not (tmp_path / "store" / "store.json").exists()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class UntriedFileSystem(LocalFileSystem):
    """A file system of an unknown kind, with a given outcome for each probe."""

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
def test_unknown_file_system_is_probed_completely_and_again_after_a_failure(
    tmp_path: Path, outcomes: tuple[Exception, ...]
) -> None:
    orphaned = tmp_path / "store" / "probe-folder-of-one-that-died" / "deep"
    orphaned.mkdir(parents=True)
    (orphaned / "file").touch()
    fs = UntriedFileSystem(*outcomes)
    open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert fs.tried == len(outcomes) + 1
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["log", "store.json"]
    open_store(fs, roots(tmp_path), "job", 1, create=True)
    assert fs.tried == len(outcomes) + 1, "an existing store must be opened without a probe"


def test_unknown_file_system_that_fails_its_probes_is_refused_and_no_file_is_left(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it can't"):
        open_store(UntriedFileSystem(*[UNFIT] * 3), roots(tmp_path), "job", 1, create=True)
    assert list((tmp_path / "store").iterdir()) == []


class NoRenameat2Calls(RealPosixCalls):
    """System calls of a file system without RENAME_NOREPLACE (NFS), where link and unlink are used."""

    def rename_noreplace(self, source: str, target: str) -> None:
        raise OSError(errno.EINVAL, "not supported", target)


def test_file_system_without_renameat2_is_accepted_if_it_links(tmp_path: Path) -> None:
    store = open_store(LocalFileSystem(NoRenameat2Calls()), roots(tmp_path), "job", 1, create=True)
    assert fence_job(store, "r1") == 2


class NoLinkCalls(NoRenameat2Calls):
    def link(self, source: str, target: str) -> None:
        raise OSError(errno.EPERM, "not permitted", target)


def test_file_system_that_neither_renames_nor_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        open_store(LocalFileSystem(NoLinkCalls()), roots(tmp_path), "job", 1, create=True)


def test_two_concurrent_creators_open_the_same_store() -> None:
    for number in range(1000):
        machine = Machine()
        meeting = Meeting(machine, number, partial(make, machine))
        machine.faults.append(meeting)
        store = make(machine)
        if meeting.result is None:
            break
        assert meeting.result.buckets == store.buckets == 3, number
        assert fence_job(store, "r1") < fence_job(meeting.result, "r2"), number
        assert not [path for path in machine.paths("/job") if "probe" in path], number
    assert number > 40


def test_concurrent_creators_with_different_buckets_conflict_and_one_is_refused() -> None:
    machine = Machine()
    meeting = Meeting(machine, 30, lambda: make(machine, 5))
    machine.faults.append(meeting)
    with pytest.raises(ConfigurationError, match="another number of buckets"):
        make(machine, 3)
    assert meeting.result.buckets == 5


@pytest.mark.thorough
def test_store_creation_killed_at_any_operation_is_completed_by_the_next() -> None:
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
    """A machine with staging and output on two file systems, whose kernel reports this only if the new name is free."""

    def link(self, source: str, target: str) -> None:
        if source.startswith(STAGING) and target.startswith(OUTPUT) and target not in dict(self.walk("/")):
            raise OSError(errno.EXDEV, "another device", target)
        super().link(source, target)


def test_staging_and_output_on_two_file_systems_are_refused_at_store_creation() -> None:
    with pytest.raises(ConfigurationError, match="must share one file system"):
        WORLD.store(ApartMachine())
    WORLD.store(LinkMachine())


@pytest.mark.parametrize("place", ["store", "staging", "output"])
def test_probe_files_are_deleted_although_one_delete_fails(place: str) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.EIO, "unlink", f"/job/{place}/probe-", times=1))
    with suppress(ConfigurationError):  # the failed delete may be part of the probe
        WORLD.store(machine)
    assert not [path for path in machine.paths("/job") if "probe-" in path]
