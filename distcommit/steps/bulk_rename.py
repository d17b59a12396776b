"""Publication of many staged files at once, by whole folders where that is safe, with shared syncs."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Protocol

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import Lost, StepContext, Verdict, Verification
from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import StagedFile
from distcommit.steps.guarded_folders import GuardedFolders, parent_of

_DISK_ERRORS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_MISSING = -1


class StagedMove(Protocol):
    """A step that renames one staged file."""

    context: StepContext
    file: StagedFile
    folders: tuple[str, str]
    whole: bool

    @property
    def source(self) -> str:
        """Return the staged path."""

    @property
    def target(self) -> str:
        """Return the final path."""

    def judge(self, staged: FileStatus | None, published: FileStatus | None) -> Verification:
        """Return whether the step is done, pending or lost, from the states of both files."""

    def verify(self) -> Verification:
        """Read the states of both files, and return the result of `judge`."""

    def after_failed_rename(self, target: GuardedFolders) -> None:
        """Publish the file in another way, or raise why it cannot be."""


def publish_all(steps: Sequence[StagedMove], verdicts: Sequence[Verification] | None) -> list[DistcommitError | None]:
    """Implement `FsRenameCommitStep.execute_all` for at least one step."""
    batch = _Batch(steps)
    groups = batch.groups
    batch.move_first_files(verdicts)
    complete: list[_Group] = []
    single: list[_Group] = []
    for group in groups:
        is_whole = group.whole and (verdicts is None or all(verdicts[p] is Verdict.PENDING for p in group.indices))
        (complete if is_whole and not group.has_room else single).append(group)
    rooms = [(group, parent_of(group.target)) for group in complete]
    batch.make_room(rooms + [(group, group.target) for group in single if not group.has_room])
    batch.move_folders(complete)
    batch.make_room([(group, group.target) for group in complete if not group.moved])
    batch.move_files([*complete, *single], verdicts)
    batch.confirm_folders()
    batch.sync([(group, parent_of(group.target) if group.moved else group.target) for group in groups])
    return batch.errors


def probe_all(steps: Sequence[StagedMove]) -> list[Verification]:
    """Implement `FsRenameCommitStep.verify_all` for at least one step.

    Set `whole` where a folder can be renamed: all of its steps are pending, it contains exactly their files under final
    names, and the target does not exist.
    """
    fs, groups = steps[0].context.fs, _groups_of(steps)

    def look(group: _Group) -> tuple[set[str] | None, bool]:
        try:
            names = {entry.name for entry in fs.list_folder(group.source)}
            return names, fs.status(group.target) is not None
        except OSError:  # verifying each file reports the error
            return None, True

    def judge(index: int) -> Verification:
        answer = steps[index].judge(staged_there.get(index), published_there.get(index))
        return steps[index].verify() if isinstance(answer, Lost) else answer

    probes = list(zip(groups, run_parallel(fs.parallel_calls, look, groups), strict=True))
    sources = [index for group, (names, _) in probes for index in group.staged_among(names, steps)]
    targets = [index for group, (_, target_there) in probes if target_there for index in group.indices]
    staged_there = _statuses(fs, {index: steps[index].source for index in sources})
    published_there = _statuses(
        fs, {index: steps[index].target for index in targets}
    )  # after the staged files, so that a moved file is seen
    answers = run_parallel(fs.parallel_calls, judge, range(len(steps)))
    for group, (names, target_there) in probes:
        is_complete = (
            not target_there
            and steps[group.indices[0]].folders[0] != ""  # the staging root itself stays
            and names == set(group.final_names(steps))
            and all(answers[index] is Verdict.PENDING for index in group.indices)
        )
        for index in group.indices:
            steps[index].whole = is_complete
    return answers


def _statuses(fs: FileSystem, paths: Mapping[int, str]) -> dict[int, FileStatus | None]:
    return dict(zip(paths, run_parallel(fs.parallel_calls, fs.status, list(paths.values())), strict=True))


class _Group:
    """Steps from one staged folder into one target folder (both absolute).

    Attributes:
        source: the staged folder.
        target: the target folder.
        whole: whether the folder may be renamed as a whole.
        has_room: whether the target folder existed.
        moved: whether the folder was renamed as a whole.
        indices: indices of the steps in the batch.
        left: indices of the steps that are not known to be done.
    """

    __slots__ = ("has_room", "indices", "left", "moved", "source", "target", "whole")

    def __init__(self, source: str, target: str, is_complete: bool) -> None:
        self.source, self.target, self.whole, self.has_room, self.moved = source, target, is_complete, False, False
        self.indices: list[int] = []
        self.left = self.indices

    def staged_among(self, names: set[str] | None, steps: Sequence[StagedMove]) -> list[int]:
        if names is None:
            return self.indices
        cut = name_begins(steps[self.indices[0]].folders[0])
        return [index for index in self.indices if steps[index].file.staged_path[cut:] in names] if names else []

    def final_names(self, steps: Sequence[StagedMove]) -> list[str]:
        cut = name_begins(steps[self.indices[0]].folders[1])
        return [steps[index].file.final_path[cut:] for index in self.indices]


def name_begins(folder: str) -> int:
    return len(folder) + 1 if folder else 0


def _groups_of(steps: Sequence[StagedMove]) -> list[_Group]:
    context, groups = steps[0].context, dict[tuple[str, str], _Group]()
    folders: tuple[str, str] | None = None
    for index, step in enumerate(steps):
        if step.folders is not folders:
            folders = step.folders
            group = groups.get(folders)
            if group is None:
                source, target = f"{context.staging_root}/{folders[0]}", f"{context.output_root}/{folders[1]}"
                groups[folders] = group = _Group(source.rstrip("/"), target.rstrip("/"), step.whole)
            indices = group.indices
        indices.append(index)
    return list(groups.values())


class _Batch:
    """The steps of one call. A step with an error is not processed further."""

    def __init__(self, steps: Sequence[StagedMove]) -> None:
        self.errors: list[DistcommitError | None] = [None] * len(steps)
        self._steps, context = steps, steps[0].context
        self._fs, staging, self._root = context.fs, context.staging_root, context.output_root
        self._sources, self._targets = GuardedFolders(self._fs, staging), GuardedFolders(self._fs, self._root)
        self.groups = _groups_of(steps)

    def move_first_files(self, verdicts: Sequence[Verification] | None) -> None:
        """Rename each group's first file, if names are durable at once and there are no links. Success proves that the
        target folder exists; a failure has no effect."""
        if not self._fs.names_last or self._fs.has_links:  # where there are links, folders are checked first
            return

        def move(group: _Group) -> None:
            todo = [index for index in group.indices if verdicts is None or verdicts[index] is not Verdict.DONE]
            if not todo:
                return
            step = self._steps[todo[0]]
            try:
                self._fs.rename(step.source, step.target)
            except OSError:
                return
            group.has_room, group.left = True, [index for index in group.indices if index != todo[0]]

        run_parallel(self._fs.parallel_calls, move, self.groups)

    def make_room(self, rooms: Sequence[tuple[_Group, str]]) -> None:
        """Create the folders of groups and make their names durable, even if other processes created them."""
        failed = self._targets.make_all({folder for _, folder in rooms})
        for group, folder in rooms:
            if folder in failed:
                self._fail(group, failed[folder], "a folder of the output could not be made", folder)
        self.sync([(group, parent_of(folder)) for group, folder in rooms if folder != self._root])

    def move_folders(self, groups: Sequence[_Group]) -> None:
        """Rename staged folders whose target does not exist, then list each target.

        A step is done only if its file is listed, because the staged folder may have changed.
        """

        def move(group: _Group) -> None:
            try:
                if self._targets.is_known_to_exist(group.target):
                    return
                self._sources.check(group.source)
                group.moved = self._fs.rename_folder(group.source, group.target)
                self._targets.expect_there(not group.moved)
                if group.moved:
                    group.left = self._missing_in(group)
            except (DistcommitError, OSError):
                pass  # moving the files one by one reports the error

        run_parallel(self._fs.parallel_calls, move, self._sound(groups))

    def _missing_in(self, group: _Group) -> list[int]:
        steps, cut = self._steps, len(group.target) - len(self._root)
        present = {entry.name: entry.file_id for entry in self._fs.list_folder(group.target)}
        files = [steps[index].file for index in group.indices]
        if {file.final_path[cut:]: file.file_id for file in files} == present:
            return []  # the common case
        return [index for index in group.indices if not _is_in(present, steps[index])]

    def move_files(self, groups: Sequence[_Group], verdicts: Sequence[Verification] | None) -> None:
        ready = [group for group in self._sound(groups) if group.left]
        for group in ready:
            try:
                self._sources.check(group.source)
            except (DistcommitError, OSError) as error:
                self._fail(group, error, "a staging folder could not be checked", group.source)
        indices = [
            index
            for group in ready
            for index in group.left
            if self.errors[index] is None and (verdicts is None or verdicts[index] is not Verdict.DONE)
        ]
        fs, steps, errors = self._fs, self._steps, self.errors

        def move(index: int) -> None:
            step = steps[index]
            try:
                try:
                    fs.rename(step.source, step.target)
                except (FileNotFoundError, FileExistsError):
                    step.after_failed_rename(self._targets)
            except DistcommitError as error:
                errors[index] = error
            except OSError as error:
                errors[index] = storage_error(error, "a staged file could not be published", path=step.target)

        run_parallel(self._fs.parallel_calls, move, indices)

    def confirm_folders(self) -> None:
        """Fail the steps of folders that now lead out of their root.

        If a link has replaced a folder since the first check, renamed files may be elsewhere and must not count. If a
        folder was moved as a whole, only its parent is checked.
        """
        if not self._fs.has_links:
            return
        checked: dict[tuple[GuardedFolders, str], DistcommitError | OSError | None] = {}
        for group in self._sound(self.groups):
            was_seen = group.moved and not group.left
            probes = [(self._targets, parent_of(group.target) if was_seen else group.target)]
            if not group.moved:
                probes.append((self._sources, group.source))
            for guard, folder in probes:
                if (guard, folder) not in checked:
                    checked[guard, folder] = _leads_out(guard, folder)
                if (error := checked[guard, folder]) is not None:
                    self._fail(group, error, "a published folder could not be checked", folder)

    def sync(self, requested: Sequence[tuple[_Group, str]]) -> None:
        """Sync folders. An error fails the steps of the folder's groups; a disk error fails the steps of all groups."""
        folders = {folder for group, folder in requested if any(self.errors[index] is None for index in group.indices)}
        if not folders:
            return
        failed: dict[str, OSError] = {}
        try:
            self._fs.sync(folders, self._root)
        except OSError as batch_error:
            for folder in folders:
                try:
                    if batch_error.errno in _DISK_ERRORS:  # the kernel may report a lost write only once
                        raise
                    self._fs.sync([folder], self._root)
                except OSError as error:
                    failed[folder] = error
        for group, folder in requested:
            if folder in failed:
                self._fail(group, failed[folder], "a published folder could not be synced", folder)

    def _sound(self, groups: Sequence[_Group]) -> list[_Group]:
        return [group for group in groups if any(self.errors[index] is None for index in group.indices)]

    def _fail(self, group: _Group, error: DistcommitError | OSError, subject: str, path: str) -> None:
        typed = error if isinstance(error, DistcommitError) else storage_error(error, subject, path=path)
        for index in group.indices:
            if self.errors[index] is None:
                self.errors[index] = typed


def _leads_out(guard: GuardedFolders, folder: str) -> DistcommitError | OSError | None:
    try:
        guard.confirm(folder)
    except (DistcommitError, OSError) as error:
        return error
    return None


def _is_in(present: dict[str, int], step: StagedMove) -> bool:
    file_id = present.get(step.file.final_path.rpartition("/")[2], _MISSING)
    return file_id != _MISSING and (not file_id or not step.file.file_id or file_id == step.file.file_id)
