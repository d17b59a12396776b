"""Publication of a staged file by renaming."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Self

import msgspec
from msgspec import Struct

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import ConfigurationError, DistcommitError, LostError
from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verdict, Verification
from distcommit.core.interfaces.file_system import FileStatus
from distcommit.core.support.decoding import converted, from_msgpack
from distcommit.core.work_units import StagedFile
from distcommit.protocol.path_checks import are_nested, check_names, check_relative
from distcommit.steps.bulk_rename import name_begins, probe_all, publish_all
from distcommit.steps.guarded_folders import GuardedFolders, parent_of
from distcommit.steps.step_registry import register


@register
class FsRenameCommitStep(CommitStep):
    """Step that renames `staged_path` (below the staging root) to `final_path` (below the output root), never replacing
    a file.

    Proof that the step is done: the file at the final path has the recorded identity, or else the recorded checksum,
    and the staged file is gone.

    Args:
        context: file system and roots.
        staged_path: the path below the staging root.
        final_path: the path below the output root.
        file: the recorded identity of the file; by default the present identity of the staged file.

    Raises:
        ConfigurationError: if a path is absolute or leads out of its root, or if `file` is None and the staged file is
            missing.
    """

    type_name: ClassVar[str] = "fs-rename"
    version: ClassVar[int] = 1
    __slots__ = ("context", "file", "folders", "whole")

    def __init__(self, context: StepContext, staged_path: str, final_path: str, file: StagedFile | None = None) -> None:
        for path in (staged_path, final_path):
            check_relative(path)
        self.context, self.whole = context, False
        self.file = file if file is not None else _identify(context, staged_path, final_path)
        self.folders = parent_of(self.file.staged_path), parent_of(self.file.final_path)

    def __repr__(self) -> str:
        return f"FsRenameCommitStep({self.file.staged_path!r} -> {self.file.final_path!r})"

    @classmethod
    def of(cls, context: StepContext, file: StagedFile) -> Self:
        return cls.of_all(context, (file,))[0]

    @classmethod
    def of_all(cls, context: StepContext, files: Sequence[StagedFile], *, is_complete: bool = False) -> list[Self]:
        """Return the steps that publish staged files; consecutive steps with equal folders share a `folders` tuple.

        Args:
            context: file system and roots.
            files: the staged files.
            is_complete: whether each staged folder contains exactly these files, under final names for one target, and
                may be renamed.
        """
        steps: list[Self] = []
        names: list[str] = []
        folders = staged_in, final_in = "", ""
        for file in files:
            staged, _, staged_name = file.staged_path.rpartition("/")
            final, _, final_name = file.final_path.rpartition("/")
            if (
                staged != staged_in or final != final_in or not (staged and final)
            ):  # a path with a leading / has an empty folder
                for path in (file.staged_path, file.final_path):
                    check_relative(path)
                staged_in, final_in = folders = staged, final
            names += (staged_name, final_name)
            step = cls.__new__(cls)
            step.context, step.file, step.folders, step.whole = context, file, folders, is_complete
            steps.append(step)
        check_names(names)
        return steps

    def to_row(self) -> list[Any]:
        f = self.file
        return [f.staged_path, f.final_path, f.size_bytes, f.checksum, f.file_id, f.mtime_ns, f.records]

    @classmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        return cls.of(context, converted(row, StagedFile))

    @classmethod
    def to_rows(cls, steps: Sequence[Self]) -> bytes:
        return msgspec.msgpack.encode(_by_folder(steps))

    @classmethod
    def from_rows(cls, rows: bytes, version: int, context: StepContext) -> list[Self]:
        folders = from_msgpack(rows, list[_FolderRow])
        return cls.of_all(context, [file for folder in folders for file in folder.staged_files()])

    def verify(self) -> Verification:
        """Read the states of both files. Before returning Lost, read them again, because another process may be moving
        the file."""
        answer = self.probe()
        return self.probe() if isinstance(answer, Lost) else answer

    @classmethod
    def batches(cls, steps: Sequence[Self]) -> Sequence[Sequence[Self]]:
        """Return one batch if paths are unique and roots are not nested; otherwise one batch for each step."""
        staged, final = {step.file.staged_path for step in steps}, {step.file.final_path for step in steps}
        context = steps[0].context
        if len(staged) == len(final) == len(steps) and not are_nested(context.staging_root, context.output_root):
            return [steps]
        return super().batches(steps)

    @classmethod
    def verify_all(cls, steps: Sequence[Self]) -> list[Verification]:
        return probe_all(steps) if steps else []

    def execute(self) -> None:
        error = self.execute_all([self])[0]
        if error is not None:
            raise error

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Rename files without verifying first, verify only failed renames, then sync all folders once.

        Target folders are durable before a file moves into them. Otherwise a power loss could remove the folder after
        the file has lost its old name.
        """
        return publish_all(steps, verdicts) if steps else []

    def withdraw(self) -> None:
        self._remove(self.source, self.context.staging_root)
        if self.folders[0]:  # the staging root stays; a folder goes after its last file, which can then not be moved
            self.context.fs.delete_folder(parent_of(self.source))

    def undo(self) -> None:
        self._remove(self.target, self.context.output_root)

    @property
    def source(self) -> str:
        return f"{self.context.staging_root}/{self.file.staged_path}"

    @property
    def target(self) -> str:
        return f"{self.context.output_root}/{self.file.final_path}"

    def after_failed_rename(self, target: GuardedFolders) -> None:
        """Verify a step after a failed rename, and rename again if it is pending. Raise LostError if the step is
        lost."""
        answer = self.verify()
        if answer is Verdict.PENDING:
            self._move_again(target)
        elif isinstance(answer, Lost):
            raise LostError(
                "a staged file cannot be published",
                id="STAGED_FILE_NOT_PUBLISHABLE",
                path=self.target,
                expected=answer.expected,
                found=answer.actual,
                todo="restore the file named, then release the dataset with retry; or accept or abandon it",
            )

    def _move_again(self, target: GuardedFolders) -> None:
        """Rename a file that is still staged. Either the target's folder has vanished, or a rename by link and unlink
        stopped between the two."""
        fs, folder = self.context.fs, parent_of(self.target)
        published = fs.status(self.target)
        if published is not None and self._is_ours(self.target, published):
            fs.sync([folder], self.context.output_root)
            fs.delete(self.source)
            return
        target.forget(folder)
        target.make(folder)
        fs.sync([parent_of(folder)], self.context.output_root)
        try:
            fs.rename(self.source, self.target)
        except (FileNotFoundError, FileExistsError):
            if self.verify() is not Verdict.DONE:
                raise

    def _remove(self, path: str, root: str) -> None:
        fs, folder = self.context.fs, parent_of(path)
        try:
            GuardedFolders(fs, root).check(folder)
            status = fs.status(path)
            if status is not None and self._is_ours(path, status):
                fs.delete(path)
            self._sync_nearest_parent(folder, root)
        except OSError as error:
            raise storage_error(error, "a file of an abandoned sequence could not be removed", path=path) from error

    def _sync_nearest_parent(self, folder: str, root: str) -> None:
        try:
            self.context.fs.sync([folder], root)
        except FileNotFoundError:
            if folder == root:
                raise
            self._sync_nearest_parent(parent_of(folder), root)

    def is_gone(self) -> bool:
        return self.context.fs.status(self.target) is None

    def probe(self) -> Verification:
        fs = self.context.fs
        staged = fs.status(self.source)
        return self.judge(staged, fs.status(self.target))

    def judge(self, staged: FileStatus | None, published: FileStatus | None) -> Verification:
        """Return whether the step is done, pending or lost, from the states of source and target, read in this order.

        If the file id or modification time differs, the checksum decides.
        """
        if published is not None and not self._is_ours(self.target, published):
            return Lost(f"{self._identity()} at {self.target}", f"other bytes ({_described(published)})")
        if staged is not None:
            if not self._is_ours(self.source, staged):
                return Lost(f"{self._identity()} at {self.source}", f"other bytes ({_described(staged)})")
            return Verdict.PENDING
        if published is not None:
            return Verdict.DONE
        return Lost(f"{self._identity()} at {self.source} or {self.target}", "no file at either path")

    def _is_ours(self, path: str, status: FileStatus) -> bool:
        f = self.file
        if status.is_folder or status.size_bytes != f.size_bytes:
            return False
        if f.file_id and (status.file_id, status.mtime_ns) == (f.file_id, f.mtime_ns):
            return True
        try:
            return self.context.fs.checksum(path) == f.checksum
        except FileNotFoundError:  # a twin has moved the staged file since; the target shows it
            return path == self.source

    def _identity(self) -> str:
        f = self.file
        return f"a file of {f.size_bytes} bytes, xxh3 {f.checksum:016x}, id {f.file_id}, mtime {f.mtime_ns} ns"


class _FileRow(Struct, frozen=True, array_like=True, gc=False):
    """Stored row of a file in a `_FolderRow`.

    Attributes:
        name: the final name.
        size_bytes: the size.
        checksum: the xxh3-64 checksum.
        file_id: the file system's id; 0 where there is none.
        mtime_ns: the modification time.
        records: the number of records.
        staged_name: the staged name if it differs from the final name, else empty.
    """

    name: str
    size_bytes: int
    checksum: int
    file_id: int
    mtime_ns: int
    records: int
    staged_name: str = ""


class _FolderRow(Struct, frozen=True, array_like=True):
    """Stored row of consecutive files that move from one staged folder into one target folder.

    Attributes:
        staged: the staged folder, relative to the staging root.
        final: the target folder, relative to the output root.
        files: the files.
    """

    staged: str
    final: str
    files: list[_FileRow]

    def staged_files(self) -> list[StagedFile]:
        staged = f"{self.staged}/" if self.staged else ""
        final = f"{self.final}/" if self.final else ""
        return [
            StagedFile(
                staged + (row.staged_name or row.name),
                final + row.name,
                row.size_bytes,
                row.checksum,
                row.file_id,
                row.mtime_ns,
                row.records,
            )
            for row in self.files
        ]


def _by_folder(steps: Sequence[FsRenameCommitStep]) -> list[tuple[str, str, list[tuple[str | int, ...]]]]:
    """Return `_FolderRow`s as tuples, which encode to the same bytes in half the time."""
    rows = []
    for (staged, final), together in groupby(steps, key=attrgetter("folders")):
        staged_cut, final_cut = name_begins(staged), name_begins(final)
        files: list[tuple[str | int, ...]] = []
        for step in together:
            f = step.file
            name, staged_name = f.final_path[final_cut:], f.staged_path[staged_cut:]
            other = "" if staged_name == name else staged_name
            files.append((name, f.size_bytes, f.checksum, f.file_id, f.mtime_ns, f.records, other))
        rows.append((staged, final, files))
    return rows


def _described(status: FileStatus) -> str:
    if status.is_folder:
        return "a folder"
    return f"{status.size_bytes} bytes, id {status.file_id}, mtime {status.mtime_ns} ns"


def _identify(context: StepContext, staged_path: str, final_path: str) -> StagedFile:
    path = f"{context.staging_root}/{staged_path}"
    status = context.fs.status(path)
    if status is None or status.is_folder:
        raise ConfigurationError(
            "a staged file is missing", path=path, todo="write and sync the file before its step is created"
        )
    checksum = context.fs.checksum(path)
    return StagedFile(staged_path, final_path, status.size_bytes, checksum, status.file_id, status.mtime_ns)
