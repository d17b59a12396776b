"""Folders of attempts: each attempt has its own, and complete ones may be renamed as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import BranchResult, StagedFile, TaskOutcome, TaskState
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.folders.staging import (
    StagedFiles,
    make_area,
    prepare_bucket,
    remove_attempts,
    remove_empty,
    sweep_epoch,
)
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine

NONE = Watermark({})


def state_of(root: Path, *paths: tuple[str, str]) -> TaskState:
    files = []
    for staged, final in paths:
        path = root / staged
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        files.append(StagedFile(staged, final, 1, 0, path.stat().st_ino, 0))
    result = BranchResult("main", "files", tuple(files))
    return TaskState("r", 1, "d", "u", "a", TaskOutcome.SUCCEEDED, NONE, NONE, NONE, (result,))


def is_whole(root: Path, state: TaskState) -> bool:
    staged = StagedFiles(LocalFileSystem(), str(root))
    (result,) = state.branches
    assert not staged.is_complete(state, result)
    assert staged.has_all_of(state)
    return staged.is_complete(state, result)


def test_attempt_folder_with_exactly_its_outputs_is_whole(tmp_path: Path) -> None:
    state = state_of(tmp_path, ("u.a/x", "d/x"), ("u.a/y", "d/y"))
    assert is_whole(tmp_path, state)


def test_attempt_folder_with_an_additional_entry_is_not_whole(tmp_path: Path) -> None:
    state = state_of(tmp_path, ("u.a/x", "d/x"))
    (tmp_path / "u.a/more").mkdir()
    assert not is_whole(tmp_path, state)


def test_attempt_folder_with_other_file_names_is_not_whole(tmp_path: Path) -> None:
    assert not is_whole(tmp_path, state_of(tmp_path, ("u.a/1", "d/x")))


def test_attempt_folder_is_not_whole_if_it_mixes_files_for_two_target_folders(tmp_path: Path) -> None:
    state = state_of(tmp_path, ("u.a/x", "d/1/x"), ("u.a/y", "d/2/y"))
    assert not is_whole(tmp_path, state)
    deeper = state_of(tmp_path / "3", ("u.a/x", "d/x"), ("u.a/y", "d/1/y"), ("u.a/1/z", "d/2/z"))
    assert not is_whole(tmp_path / "3", deeper)
    apart = state_of(tmp_path / "2", ("u.a/0001/x", "d/1/x"), ("u.a/0002/y", "d/2/y"))
    assert is_whole(tmp_path / "2", apart)


def test_missing_or_replaced_staged_file_is_detected(tmp_path: Path) -> None:
    state = state_of(tmp_path, ("u.a/x", "d/x"), ("u.a/y", "d/y"))
    (tmp_path / "z").write_bytes(b"x")
    (tmp_path / "z").rename(tmp_path / "u.a/x")
    assert not StagedFiles(LocalFileSystem(), str(tmp_path)).has_all_of(state)
    (tmp_path / "u.a/x").unlink()
    assert not StagedFiles(LocalFileSystem(), str(tmp_path)).has_all_of(state)


def test_removing_attempts_deletes_their_folders_with_all_files(tmp_path: Path) -> None:
    state_of(tmp_path, ("u.a/0001/x", "d/1/x"), ("u.a/0002/y", "d/2/y"), ("u.b/x", "d/x"))
    (tmp_path / "u.c").mkdir()
    assert remove_attempts(LocalFileSystem(), str(tmp_path), ["u.a", "u.b", "u.c", "u.d"]) == 3
    assert not list(tmp_path.iterdir())


def test_attempt_folder_is_exclusive() -> None:
    machine = Machine()
    fs = SimulatedFileSystem(machine)
    prepare_bucket(fs, "/job/staging", 1, 0)
    attempt = AttemptIdentity("run", 1, "d", "u", "a")
    area = make_area(fs, "/job/staging", "/job/output", 0, attempt)
    assert area.folder == f"/job/staging/{area.prefix}"
    status = fs.status(area.folder)
    assert status is not None
    assert status.is_folder
    with pytest.raises(FileExistsError):
        make_area(fs, "/job/staging", "/job/output", 0, attempt)


def test_epoch_folder_is_deleted_with_its_last_bucket(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    for bucket in (1, 2):
        prepare_bucket(fs, str(tmp_path), 7, bucket)
    remove_empty(fs, str(tmp_path), 7, 1)
    (epoch,) = tmp_path.iterdir()
    assert len([*epoch.iterdir()]) == 1
    remove_empty(fs, str(tmp_path), 7, 2)
    assert not epoch.exists()


def test_swept_run_leaves_no_folder_in_which_a_zombie_could_write(tmp_path: Path) -> None:
    fs = LocalFileSystem()
    prepare_bucket(fs, str(tmp_path), 7, 1)
    area = make_area(fs, str(tmp_path), str(tmp_path / "out"), 1, AttemptIdentity("run", 7, "d", "u", "a"))
    Path(area.folder, "one").write_bytes(b"x")
    assert sweep_epoch(fs, str(tmp_path), 7, 1) == 1
    assert not [*tmp_path.iterdir()]
    with pytest.raises(FileNotFoundError):
        fs.create(f"{area.folder}/another")
