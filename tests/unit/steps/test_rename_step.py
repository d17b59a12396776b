"""The rename step: idempotent, verified by file identity, confined to its roots."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from distcommit.core.errors import ConfigurationError, LostError
from distcommit.core.interfaces.commit_step import Lost, StepContext, Verdict
from distcommit.core.interfaces.file_system import FolderEntry
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.steps.step_registry import dump_steps, load_steps


@pytest.fixture(params=["renameat2", "link"])
def context(request: pytest.FixtureRequest, tmp_path: Path) -> StepContext:
    for name in ("staging", "output"):
        (tmp_path / name).mkdir()
    fs = LocalFileSystem()
    if request.param == "link":
        fs._renames = False
    return StepContext(fs, str(tmp_path / "staging"), str(tmp_path / "output"))


def staged(context: StepContext, name: str = "a", data: bytes = b"data") -> FsRenameCommitStep:
    path = Path(context.staging_root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return FsRenameCommitStep(context, name, f"out/{name}")


def test_rename_takes_effect_once_however_often_it_is_executed(context: StepContext) -> None:
    step = staged(context)
    assert step.verify() is Verdict.PENDING
    for _ in range(3):
        step.execute()
        assert step.verify() is Verdict.DONE
    assert Path(step.target).read_bytes() == b"data"
    assert not Path(step.source).exists()


def test_rename_completes_after_a_crash_between_link_and_unlink(context: StepContext) -> None:
    step = staged(context)
    Path(step.target).parent.mkdir()
    os.link(step.source, step.target)
    assert step.verify() is Verdict.PENDING
    step.execute()
    assert step.verify() is Verdict.DONE
    assert not Path(step.source).exists()


def test_target_with_other_bytes_is_lost_and_not_replaced(context: StepContext) -> None:
    step = staged(context)
    Path(step.target).parent.mkdir()
    Path(step.target).write_bytes(b"else")
    with pytest.raises(LostError) as caught:
        step.execute()
    assert "other bytes" in caught.value.found
    assert Path(step.target).read_bytes() == b"else"
    assert Path(step.source).read_bytes() == b"data"


def test_rename_without_source_and_target_is_lost(context: StepContext) -> None:
    step = staged(context)
    Path(step.source).unlink()
    assert isinstance(step.verify(), Lost)


def test_source_with_other_bytes_is_lost_not_published(context: StepContext) -> None:
    step = staged(context)
    Path(step.source).unlink()
    Path(step.source).write_bytes(b"DATA")
    assert isinstance(step.verify(), Lost)


def test_copy_with_the_same_bytes_is_done_by_checksum(context: StepContext) -> None:
    step = staged(context)
    Path(step.source).unlink()
    Path(step.target).parent.mkdir()
    Path(step.target).write_bytes(b"data")
    assert step.verify() is Verdict.DONE


def test_failed_rename_does_not_prevent_the_others(context: StepContext) -> None:
    first, failing, last = staged(context, "a"), staged(context, "b"), staged(context, "c")
    Path(failing.source).unlink()
    errors = FsRenameCommitStep.execute_all([first, failing, last])
    assert [type(error) for error in errors] == [type(None), LostError, type(None)]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a//b", "./a", "a\0b"])
def test_paths_that_leave_their_root_are_rejected(context: StepContext, path: str) -> None:
    good = staged(context)
    with pytest.raises(ConfigurationError):
        FsRenameCommitStep(context, path, "out/a", good.file)
    with pytest.raises(ConfigurationError):
        FsRenameCommitStep(context, "a", path, good.file)


def test_symbolic_link_that_leads_out_is_rejected_at_execution(context: StepContext, tmp_path: Path) -> None:
    step = staged(context)
    (tmp_path / "elsewhere").mkdir()
    Path(context.output_root, "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        step.execute()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert Path(step.source).exists()


def test_staged_folder_behind_a_symbolic_link_is_rejected(context: StepContext, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_bytes(b"secret")
    Path(context.staging_root, "link").symlink_to(tmp_path / "elsewhere")
    step = FsRenameCommitStep(context, "link/a", "out/a")
    with pytest.raises(ConfigurationError, match="symbolic link"):
        step.execute()
    assert (tmp_path / "elsewhere" / "a").exists()


def test_steps_are_restored_from_plain_data(context: StepContext) -> None:
    steps = [staged(context, name) for name in "abc"]
    loaded = list(load_steps(dump_steps(steps), context))
    assert [step.to_row() for step in loaded] == [step.to_row() for step in steps]


def test_many_renames_cost_one_call_each_and_one_barrier(tmp_path: Path) -> None:
    calls: list[str] = []

    class Counting(RealPosixCalls):
        def rename_noreplace(self, source: str, target: str) -> None:
            calls.append("rename")
            super().rename_noreplace(source, target)

        def lstat(self, path: str):  # type: ignore[no-untyped-def]
            calls.append("lstat")
            return super().lstat(path)

        def syncfs(self, path: str) -> None:
            calls.append("sync")
            super().syncfs(path)

        def fsync_folder(self, path: str) -> None:
            calls.append("sync")
            super().fsync_folder(path)

    (tmp_path / "staging").mkdir()
    (tmp_path / "output").mkdir()
    plain = StepContext(LocalFileSystem(), str(tmp_path / "staging"), str(tmp_path / "output"))
    steps = [staged(plain, f"{i}/f{j}") for i in range(50) for j in range(4)]
    counting = StepContext(LocalFileSystem(Counting()), plain.staging_root, plain.output_root)
    assert FsRenameCommitStep.execute_all([FsRenameCommitStep.of(counting, s.file) for s in steps]) == [None] * 200
    counts = {name: calls.count(name) for name in set(calls)}
    assert counts == {"rename": 200, "sync": 3}, "parents of new folders first, then all touched folders"


def test_concurrent_renames_have_the_effect_of_sequential_ones(tmp_path: Path) -> None:
    fs = LocalFileSystem(parallel_calls=8)
    for root in ("staging", "output"):
        (tmp_path / root).mkdir()
    plain = StepContext(fs, str(tmp_path / "staging"), str(tmp_path / "output"))
    steps = [staged(plain, f"{i % 3}/{i}/{i}/f{j}") for i in range(12) for j in range(4)]
    stranger = tmp_path / "output" / steps[7].file.final_path
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"somebody's")
    errors = FsRenameCommitStep.execute_all(steps)
    assert [place for place, error in enumerate(errors) if error is not None] == [7]
    assert isinstance(errors[7], LostError)
    assert stranger.read_bytes() == b"somebody's"
    verdicts = FsRenameCommitStep.verify_all(steps)
    assert [place for place, verdict in enumerate(verdicts) if verdict is not Verdict.DONE] == [7]
    assert isinstance(verdicts[7], Lost)


def test_folder_that_cannot_be_created_fails_only_the_steps_that_need_it(tmp_path: Path) -> None:
    fs = LocalFileSystem(parallel_calls=4)
    for root in ("staging", "output"):
        (tmp_path / root).mkdir()
    plain = StepContext(fs, str(tmp_path / "staging"), str(tmp_path / "output"))
    steps = [staged(plain, f"{name}/deep/f") for name in "abc"]
    (tmp_path / "output/out").mkdir()
    (tmp_path / "output/out/b").write_bytes(b"a file where a folder has to be")
    errors = FsRenameCommitStep.execute_all(steps)
    assert [error is None for error in errors] == [True, False, True]


def test_folder_of_a_batch_is_moved_as_a_whole_and_only_the_moved_files_are_done(tmp_path: Path) -> None:
    for root in ("staging", "output"):
        (tmp_path / root).mkdir()

    class Thief(LocalFileSystem):
        def rename_folder(self, source: str, target: str) -> bool:
            (Path(source) / "f1").unlink()
            return super().rename_folder(source, target)

    plain = StepContext(Thief(), str(tmp_path / "staging"), str(tmp_path / "output"))
    files = [staged(plain, f"a/f{j}").file for j in range(3)]
    errors = FsRenameCommitStep.execute_all(FsRenameCommitStep.of_all(plain, files, is_complete=True))
    assert [type(error) for error in errors] == [type(None), LostError, type(None)]
    assert sorted(path.name for path in (tmp_path / "output/out/a").iterdir()) == ["f0", "f2"]


class Noted(LocalFileSystem):
    """A file system on which names are durable at once. It records renames and created folders."""

    names_last, has_links = True, False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def rename(self, source: str, target: str) -> None:
        self.asked.append(f"file {source.rpartition('/')[2]}")
        super().rename(source, target)

    def rename_folder(self, source: str, target: str) -> bool:
        self.asked.append("folder")
        return super().rename_folder(source, target)

    def make_folder(self, path: str) -> bool:
        self.asked.append(f"make {path.rpartition('/')[2]}")
        return super().make_folder(path)

    def list_folder(self, path: str) -> list[FolderEntry]:
        self.asked.append("list")
        return super().list_folder(path)


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ("its folder is there", ["file f0", "file f1", "file f2"]),
        ("its folder is new", ["file f0", "make out", "folder", "list"]),
        ("a twin has begun", ["file f0", "make out", "folder", "make a", "file f0", "file f1", "file f2"]),
        ("a twin is done", ["file f0", "make out", "folder", "make a", "file f0", "file f1", "file f2"]),
    ],
)
def test_files_go_into_an_existing_folder_with_one_call_each_where_names_are_durable(
    tmp_path: Path, before: str, asked: list[str]
) -> None:
    for root in ("staging", "output"):
        (tmp_path / root).mkdir()
    fs = Noted()
    context = StepContext(fs, str(tmp_path / "staging"), str(tmp_path / "output"))
    steps = FsRenameCommitStep.of_all(context, [staged(context, f"a/f{j}").file for j in range(3)], is_complete=True)
    if before != "its folder is new":
        (tmp_path / "output/out/a").mkdir(parents=True)
    moved = {"a twin has begun": 1, "a twin is done": 3}.get(before, 0)
    for step in steps[:moved]:
        os.rename(step.source, step.target)
    assert FsRenameCommitStep.execute_all(steps) == [None] * 3
    assert fs.asked == asked
    assert [step.verify() for step in steps] == [Verdict.DONE] * 3
    assert FsRenameCommitStep.execute_all(steps, FsRenameCommitStep.verify_all(steps)) == [None] * 3


def test_no_file_is_removed_through_a_link_that_leads_out_of_the_root(tmp_path: Path) -> None:
    for name in ("staging", "output", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "staging/f").write_bytes(b"data")
    step = FsRenameCommitStep(
        StepContext(LocalFileSystem(), str(tmp_path / "staging"), str(tmp_path / "output")), "f", "a/f"
    )
    (tmp_path / "elsewhere/f").write_bytes(b"data")
    (tmp_path / "output/a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError):
        step.undo()
    assert (tmp_path / "elsewhere/f").read_bytes() == b"data"


def test_replay_looks_for_a_file_only_at_its_possible_places(tmp_path: Path) -> None:
    asked: list[str] = []

    class Asked(RealPosixCalls):
        def lstat(self, path: str):  # type: ignore[no-untyped-def]
            asked.append(path.removeprefix(f"{tmp_path}/"))
            return super().lstat(path)

        def scandir(self, path: str):  # type: ignore[no-untyped-def]
            asked.append(f"{path.removeprefix(f'{tmp_path}/')}/")
            return super().scandir(path)

    for root in ("staging", "output"):
        (tmp_path / root).mkdir()
    plain = StepContext(LocalFileSystem(), str(tmp_path / "staging"), str(tmp_path / "output"))
    for name in ("new/f", "part/f", "part/g", "f"):
        staged(plain, name)
    steps = [FsRenameCommitStep(plain, name, name) for name in ("new/f", "part/f", "part/g", "f")]
    steps[1].execute()
    context = StepContext(LocalFileSystem(Asked()), plain.staging_root, plain.output_root)
    again = [FsRenameCommitStep.of(context, step.file) for step in steps]
    expected = [Verdict.PENDING, Verdict.DONE, Verdict.PENDING, Verdict.PENDING]
    assert FsRenameCommitStep.verify_all(again) == expected
    assert [step.whole for step in again] == [True, False, False, False]
    files = [name for name in asked if name.endswith(("f", "g"))]
    assert files == ["staging/new/f", "staging/part/g", "staging/f", "output/part/f", "output/part/g", "output/f"]
    assert sorted(set(asked) - set(files)) == [
        *("output", "output/new", "output/part"),
        *("staging/", "staging/new/", "staging/part/"),
    ]


@pytest.mark.parametrize(
    ("staged_path", "final_path"), [("../a", "out/a"), ("/a", "out/a"), ("a", "../a"), ("a", "/a")]
)
def test_steps_of_task_states_stay_below_their_roots(context: StepContext, staged_path: str, final_path: str) -> None:
    file = msgspec.structs.replace(staged(context).file, staged_path=staged_path, final_path=final_path)
    with pytest.raises(ConfigurationError):
        FsRenameCommitStep.of_all(context, [file])


def test_withdrawal_of_the_last_file_removes_its_folder(context: StepContext) -> None:
    steps = [staged(context, name) for name in ("folder/a", "folder/b")]
    folder = Path(context.staging_root, "folder")
    steps[0].withdraw()
    assert [path.name for path in folder.iterdir()] == ["b"]
    steps[1].withdraw()
    assert not folder.exists()


def test_sweep_may_remove_the_folders_of_withdrawn_files_at_any_time(context: StepContext) -> None:
    """The folder above records durably that they are gone (interleave's `rebuild-abandon:1000095`)."""
    synced = []

    class Sweeping(RealPosixCalls):
        def fsync_folder(self, path: str) -> None:
            if path.startswith(context.staging_root) and path != context.staging_root:
                shutil.rmtree(path)
            super().fsync_folder(path)
            synced.append(path)

    file = staged(context, "0000000007/bucket=00000/a").file
    sweeping = StepContext(LocalFileSystem(Sweeping()), context.staging_root, context.output_root)
    FsRenameCommitStep.of(sweeping, file).withdraw()
    assert synced[-1] == context.staging_root
    assert not list(Path(context.staging_root).iterdir())


def test_staged_folder_that_is_a_link_is_not_moved_as_a_whole(context: StepContext, tmp_path: Path) -> None:
    file = staged(context, "folder/a").file
    Path(context.staging_root, "folder").rename(tmp_path / "elsewhere")
    Path(context.staging_root, "folder").symlink_to(tmp_path / "elsewhere")
    (error,) = FsRenameCommitStep.execute_all(FsRenameCommitStep.of_all(context, [file], is_complete=True))
    assert isinstance(error, ConfigurationError)
    assert not Path(context.output_root, "out/folder").is_symlink()


def test_file_moved_through_a_link_that_replaced_the_target_folder_does_not_count_as_published(
    context: StepContext, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(context.output_root, "out").mkdir()

    class Replaced(RealPosixCalls):
        """The target folder becomes a link after it was checked, just before the first rename."""

        def rename_noreplace(self, source: str, target: str) -> None:
            folder = Path(context.output_root, "out")
            if target.startswith(f"{folder}/") and not folder.is_symlink():
                folder.rmdir()
                folder.symlink_to(tmp_path / "elsewhere")
            super().rename_noreplace(source, target)

    steps = [staged(context, name) for name in ("a", "b")]
    replaced = StepContext(LocalFileSystem(Replaced()), context.staging_root, context.output_root)
    outcomes = FsRenameCommitStep.execute_all([FsRenameCommitStep.of(replaced, step.file) for step in steps])
    assert [type(outcome) for outcome in outcomes] == [ConfigurationError] * 2
