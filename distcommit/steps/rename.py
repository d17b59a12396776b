"""Publishing a staged file by renaming it to its final path."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Self

import msgspec
from msgspec import Struct

from distcommit.core.errors import ConfigurationError, DistcommitError, LostError, storage_error
from distcommit.core.interfaces.steps import CommitStep, Lost, StepContext, Verdict, Verification
from distcommit.core.ports import FileStatus
from distcommit.core.work import StagedFile
from distcommit.decoding import converted, from_msgpack
from distcommit.protocol.path_checks import are_nested, check_names, check_relative
from distcommit.steps.folders import GuardedFolders
from distcommit.steps.publishing import name_begins, probe_all, publish_all
from distcommit.steps.registry import register


@register
class FsRenameCommitStep(CommitStep):
    """Renames `staged_path` (below the staging root) to `final_path` (below the output root), never replacing.

    Proof: the file at the final path has the recorded identity, or failing that the recorded checksum. The identity is
    taken from the staged file where it is not given. `folders`: of the staged and of the final path; steps that are
    made together share the tuple.

    Raises:
        ConfigurationError: if a path is absolute or leads out of its root.
    """

    type_name: ClassVar[str] = "fs-rename"
    version: ClassVar[int] = 1
    __slots__ = ("context", "file", "folders", "whole")

    def __init__(self, context: StepContext, staged_path: str, final_path: str, file: StagedFile | None = None) -> None:
        for path in (staged_path, final_path):
            check_relative(path)
        self.context, self.whole = context, False
        self.file = file if file is not None else _identify(context, staged_path, final_path)
        self.folders = _folder_of(self.file.staged_path), _folder_of(self.file.final_path)

    def __repr__(self) -> str:
        return f"FsRenameCommitStep({self.file.staged_path!r} -> {self.file.final_path!r})"

    @classmethod
    def of(cls, context: StepContext, file: StagedFile) -> Self:
        """The step that publishes this staged file."""
        return cls.of_all(context, (file,))[0]

    @classmethod
    def of_all(cls, context: StepContext, files: Sequence[StagedFile], *, whole: bool = False) -> list[Self]:
        """The steps that publish these staged files.

        Args:
            whole: each staged folder of theirs was seen to hold exactly files among these, under their final names and
                for one folder. Such a folder may be renamed as one.
        """
        steps: list[Self] = []
        names: list[str] = []
        folders = staged_in, final_in = "", ""
        for file in files:
            staged, _, staged_name = file.staged_path.rpartition("/")
            final, _, final_name = file.final_path.rpartition("/")
            if staged != staged_in or final != final_in or not (staged and final):  # a path that begins with / has none
                for path in (file.staged_path, file.final_path):
                    check_relative(path)
                staged_in, final_in = folders = staged, final
            names += (staged_name, final_name)
            step = cls.__new__(cls)
            step.context, step.file, step.folders, step.whole = context, file, folders, whole
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
        """Looks at the source first, then at the target; LOST is looked at twice."""
        answer = self.probe()
        return self.probe() if isinstance(answer, Lost) else answer

    @classmethod
    def batches(cls, steps: Sequence[Self]) -> Sequence[Sequence[Self]]:
        """One batch if no step can depend on another one: if no path occurs twice, and a path below one root is not
        below the other root."""
        staged, final = {step.file.staged_path for step in steps}, {step.file.final_path for step in steps}
        context = steps[0].context
        if len(staged) == len(final) == len(steps) and not are_nested(context.staging_root, context.output_root):
            return [steps]
        return super().batches(steps)

    @classmethod
    def verify_all(cls, steps: Sequence[Self]) -> list[Verification]:
        """As `verify`, with one look for each folder to spare looks at files that can't be there."""
        return probe_all(steps) if steps else []

    def execute(self) -> None:
        error = self.execute_all([self])[0]
        if error is not None:
            raise error

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Renames without probing first, verifies only what failed, then syncs all touched folders once.

        The names of target folders are durable before anything moves into them, whoever made them: else a file could
        leave its old name for a folder that a power loss takes away. A staged folder that is known to hold exactly the
        files of its steps is renamed as a whole where its target is not there yet.
        """
        return publish_all(steps, verdicts) if steps else []

    def withdraw(self) -> None:
        self._remove(self.source, self.context.staging_root)
        if self.folders[0]:  # the staging root itself stays
            GuardedFolders(self.context.fs, self.context.staging_root).check(_folder_of(self.source))
            self.context.fs.delete_folder(_folder_of(self.source))  # with its last file: nobody can move it any more

    def undo(self) -> None:
        self._remove(self.target, self.context.output_root)

    @property
    def source(self) -> str:
        """Absolute staged path."""
        return f"{self.context.staging_root}/{self.file.staged_path}"

    @property
    def target(self) -> str:
        """Absolute final path."""
        return f"{self.context.output_root}/{self.file.final_path}"

    def after_failed_rename(self, target: GuardedFolders) -> None:
        """Finds out why the staged file could not be renamed, and publishes it if that can be done.

        Raises:
            LostError: if it can neither be found published nor be published.
        """
        answer = self.verify()
        if answer is Verdict.PENDING:
            self._move_again(target)
        elif isinstance(answer, Lost):
            raise LostError(
                "a staged file can't be published",
                path=self.target,
                expected=answer.expected,
                found=answer.found,
                todo="restore the file named, then release the dataset with retry; or accept or abandon it",
            )

    def _move_again(self, target: GuardedFolders) -> None:
        """The staged file is there and could not be renamed: its target's folder has vanished, or a rename by link and
        unlink stopped between the two."""
        fs, folder = self.context.fs, posixpath.dirname(self.target)
        published = fs.status(self.target)
        if published is not None and self._is_ours(self.target, published):
            fs.sync([folder], self.context.output_root)
            fs.delete(self.source)
            return
        target.forget(folder)
        target.make(folder)
        fs.sync([posixpath.dirname(folder)], self.context.output_root)
        try:
            fs.rename(self.source, self.target)
        except (FileNotFoundError, FileExistsError):
            if self.verify() is not Verdict.DONE:
                raise

    def _remove(self, path: str, root: str) -> None:
        """Deletes the file if it is ours; another's stays."""
        fs, folder = self.context.fs, posixpath.dirname(path)
        try:
            GuardedFolders(fs, root).check(folder)
            found = fs.status(path)
            if found is not None and self._is_ours(path, found):
                fs.delete(path)
            self._sync_what_is_left(folder, root)
        except OSError as error:
            raise storage_error(error, "a file of an abandoned sequence could not be removed", path=path) from error

    def _sync_what_is_left(self, folder: str, root: str) -> None:
        """A folder may be taken away at any time, by whoever sweeps: then what is above it must say so for good."""
        try:
            self.context.fs.sync([folder], root)
        except FileNotFoundError:
            if folder == root:
                raise
            self._sync_what_is_left(posixpath.dirname(folder), root)

    def is_gone(self) -> bool:
        return self.context.fs.status(self.target) is None

    def probe(self) -> Verification:
        """One look at source and target."""
        fs = self.context.fs
        staged = fs.status(self.source)
        return self.judge(staged, fs.status(self.target))

    def judge(self, staged: FileStatus | None, published: FileStatus | None) -> Verification:
        """What a look at the source and then one at the target say; checksums are read where identities differ."""
        if published is not None and not self._is_ours(self.target, published):
            return Lost(f"at {self.target} {self._identity()}", f"other bytes there ({_shown(published)})")
        if staged is not None:
            if not self._is_ours(self.source, staged):
                return Lost(f"at {self.source} {self._identity()}", f"other bytes there ({_shown(staged)})")
            return Verdict.PENDING
        if published is not None:
            return Verdict.DONE
        return Lost(f"{self._identity()} at {self.source} or {self.target}", "neither is there")

    def _is_ours(self, path: str, found: FileStatus) -> bool:
        f = self.file
        if found.is_folder or found.size_bytes != f.size_bytes:
            return False
        if f.file_id and (found.file_id, found.mtime_ns) == (f.file_id, f.mtime_ns):
            return True
        try:
            return self.context.fs.checksum(path) == f.checksum
        except FileNotFoundError:  # moved since: a staged file by a twin, which the target then shows
            return path == self.source

    def _identity(self) -> str:
        f = self.file
        return f"a file of {f.size_bytes} bytes, xxh3 {f.checksum:016x}, id {f.file_id}, mtime {f.mtime_ns} ns"


class _FileRow(Struct, frozen=True, array_like=True, gc=False):
    """A file of a folder; `staged_name` only if that is another one."""

    name: str
    size_bytes: int
    checksum: int
    file_id: int
    mtime_ns: int
    records: int
    staged_name: str = ""


class _FolderRow(Struct, frozen=True, array_like=True):
    """The stored row of consecutive files that move from one staged folder into one folder of the output."""

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
    """As `_FolderRow` has them; as tuples they are made in half the time, and their bytes are the same."""
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


def _folder_of(path: str) -> str:
    """The folder of a path without empty components; `posixpath.dirname` costs 5 times as much."""
    return path.rpartition("/")[0]


def _shown(found: FileStatus) -> str:
    if found.is_folder:
        return "a folder"
    return f"{found.size_bytes} bytes, id {found.file_id}, mtime {found.mtime_ns} ns"


def _identify(context: StepContext, staged_path: str, final_path: str) -> StagedFile:
    path = f"{context.staging_root}/{staged_path}"
    found = context.fs.status(path)
    if found is None or found.is_folder:
        raise ConfigurationError(
            "there is no staged file to publish", path=path, todo="write and sync the file before its step is made"
        )
    checksum = context.fs.checksum(path)
    return StagedFile(staged_path, final_path, found.size_bytes, checksum, found.file_id, found.mtime_ns)
