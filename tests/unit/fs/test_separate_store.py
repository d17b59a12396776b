"""Jobs whose store is on another file system than staging and output: requirements on both, and calls across them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from distcommit.app.admin.rebuild_store import _move
from distcommit.app.checks.folder_check import check_folder
from distcommit.core.errors import ConfigurationError, DistcommitError, StaleStoreError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.separate_store import TwoFileSystems, file_system_at
from distcommit.stores.folders.nested_roots_check import require_apart
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from tests.unit.stores.state.test_job_store import UNFIT, ReplacingCalls, UntriedFileSystem, roots


def apart(of_store: FileSystem, of_data: FileSystem, tmp_path: Path) -> TwoFileSystems:
    return TwoFileSystems(of_store, of_data, str(tmp_path / "store"))


def opened(fs: FileSystem, folders: Roots, job: str = "job") -> JobStore:
    return open_store(fs, folders, job, 2, create=True)


def local(tmp_path: Path) -> TwoFileSystems:
    return apart(LocalFileSystem(), LocalFileSystem(), tmp_path)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("root", ["store", "output"])
def test_file_system_without_put_if_absent_is_refused_before_anything_is_written(tmp_path: Path, root: str) -> None:
    bad, good = LocalFileSystem(ReplacingCalls(only_between_folders=False)), LocalFileSystem()
    fs = apart(bad, good, tmp_path) if root == "store" else apart(good, bad, tmp_path)
    with pytest.raises(ConfigurationError, match=r"lacks an ability.*put-if-absent") as caught:
        opened(fs, roots(tmp_path))
    assert caught.value.id == "FILE_SYSTEM_UNSUPPORTED"
    assert caught.value.ids == {"path": str(tmp_path / root)}
    assert files(tmp_path) == []


def test_check_reports_a_remote_folder_without_put_if_absent(tmp_path: Path) -> None:
    fs = LocalFileSystem(ReplacingCalls(only_between_folders=False))
    fs.scheme = "other"
    with pytest.raises(ConfigurationError, match="put-if-absent") as caught:
        check_folder(fs, str(tmp_path), is_used=False)
    assert caught.value.id == "FILE_SYSTEM_UNSUPPORTED"
    assert files(tmp_path) == []


def test_both_file_systems_of_an_unknown_kind_are_probed(tmp_path: Path) -> None:
    of_store, of_data = UntriedFileSystem(), UntriedFileSystem()
    opened(apart(of_store, of_data, tmp_path), roots(tmp_path))
    assert (of_store.tried, of_data.tried) == (1, 1)
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == []


def test_unfit_file_system_of_the_output_is_refused(tmp_path: Path) -> None:
    fs = apart(LocalFileSystem(), UntriedFileSystem(*[UNFIT] * 3), tmp_path)
    with pytest.raises(ConfigurationError, match="it can't"):
        opened(fs, roots(tmp_path))
    assert files(tmp_path) == []


@pytest.mark.parametrize(("job", "error"), [("job", StaleStoreError), ("other", ConfigurationError)])
def test_output_with_a_store_elsewhere_is_refused(tmp_path: Path, job: str, error: type[DistcommitError]) -> None:
    folders = roots(tmp_path)
    begin_run(opened(local(tmp_path), folders), "r1")
    moved = Roots(str(tmp_path / "new"), folders.staging, folders.output)
    fs = TwoFileSystems(LocalFileSystem(), LocalFileSystem(), moved.store)
    with pytest.raises(error, match=r"was filled from another store|belongs to another job"):
        opened(fs, moved, job)
    assert files(tmp_path / "new") == []


class OneDisk(LocalFileSystem):
    """A local file system that shows a folder as its root."""

    def __init__(self, disk: Path) -> None:
        super().__init__()
        self._disk = disk

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name not in ("status", "read", "list_folder"):
            return value
        return lambda path, *more: value(f"{self._disk}{path}", *more)


def test_parents_of_each_folder_are_searched_on_its_own_file_system(tmp_path: Path) -> None:
    job_folder = tmp_path / "a" / "jobs" / "x"
    begin_run(opened(local(job_folder), roots(job_folder)), "r1")
    used, free = OneDisk(tmp_path / "a"), OneDisk(tmp_path / "b")
    inside = Roots("/jobs/x/output/store", "/new/staging", "/new/output")
    with pytest.raises(ConfigurationError, match="inside a folder of another job"):
        require_apart(TwoFileSystems(used, free, inside.store), inside.store, inside.staging, inside.output)
    require_apart(TwoFileSystems(free, used, inside.store), inside.store, inside.staging, inside.output)
    inside = Roots("/new/store", "/new/staging", "/jobs/x/output/new")
    with pytest.raises(ConfigurationError, match="inside a folder of another job"):
        require_apart(TwoFileSystems(free, used, inside.store), inside.store, inside.staging, inside.output)
    require_apart(TwoFileSystems(used, free, inside.store), inside.store, inside.staging, inside.output)


def test_calls_that_cross_the_file_systems_are_refused_and_shared_calls_are_divided(tmp_path: Path) -> None:
    fs = local(tmp_path)
    for name in ("store", "output"):
        fs.make_folders(str(tmp_path / name))
    source, target = str(tmp_path / "output" / "a"), str(tmp_path / "store" / "a")
    assert fs.put_all_if_absent([(source, b"1"), (target, b"2"), (source, b"3")])[:2] == [True, True]
    fs.delete(target)
    with pytest.raises(OSError, match="cross-device") as caught:
        fs.rename(source, target)
    assert caught.value.errno == errno.EXDEV
    assert not fs.rename_folder(str(tmp_path / "output"), str(tmp_path / "store" / "output"))
    assert file_system_at(fs, target) is not file_system_at(fs, source)
    assert file_system_at(fs, f"{tmp_path}/store-2") is file_system_at(fs, source)


def test_file_set_aside_on_the_other_file_system_is_copied_and_deleted(tmp_path: Path) -> None:
    fs = local(tmp_path)
    for name in ("store", "output"):
        fs.make_folders(str(tmp_path / name))
    source, target = str(tmp_path / "output" / "a"), str(tmp_path / "store" / "a")
    fs.put_if_absent(source, b"1")
    fs.put_if_absent(target, b"1")  # a copy of a rebuild that crashed before it deleted the file
    _move(fs, source, target, str(tmp_path / "store"))
    assert (fs.status(source), fs.read(target)) == (None, b"1")
