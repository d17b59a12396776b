"""Reads the folders of datasets for the audit, several datasets in parallel."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from distcommit.app.auditing.files.published_file_audit import AuditedFile
from distcommit.app.auditing.files.read_published_files import DATASETS_AHEAD, file_readers, read_files
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.parallel import run_ahead
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_published_name, is_tombstone, published_epoch
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    Tombstone,
    newest_replacements,
    read_tombstone,
    superseded_by,
)


@dataclass(frozen=True, slots=True)
class AuditedFolder:
    """The content of a dataset's output and error folders.

    Attributes:
        name: name of the folder, which encodes the dataset URN.
        files: live files by path, each with its content or the reason why it is foreign.
        misplaced: damaged or unexpected tombstones, and files that several tombstones name, by path with the reason.
        replaced: input records whose output was replaced, from the tombstones of replacements.
        superseded_count: number of superseded files and tombstones that are not deleted yet, without the tombstones in
            `replacements`.
        replacements: epochs of the newest valid replacements.
        superseded_epochs: epochs that published superseded files.
        paths: paths of all files and tombstones, relative to the output.
        superseded_paths: paths of superseded files, relative to the output, deleted or not.
        is_read: whether all tombstones are valid. If not, missing files cannot be distinguished from superseded ones.
    """

    name: str
    files: list[tuple[str, AuditedFile | str]]
    misplaced: list[tuple[str, str]]
    replaced: list[ReplacedRecords]
    superseded_count: int
    replacements: list[int]
    superseded_epochs: set[int]
    paths: set[str]
    superseded_paths: set[str]
    is_read: bool


@dataclass(frozen=True, slots=True)
class Folders:
    """A reader of the folders of datasets.

    Attributes:
        fs: file system of the output.
        output: output folder.
        states: stored states of datasets, by folder name.
        read: returns the content of a file, or the reason why it is foreign.
    """

    fs: FileSystem
    output: str
    states: Mapping[str, DatasetState]
    read: Callable[[str], AuditedFile | str]

    def read_folders(self, names: list[str], *, deep: bool) -> Iterator[AuditedFolder]:
        """Yield the folders in the order of `names`. With `deep`, fewer files are read at once, to limit memory."""
        with file_readers(self.fs, deep=deep) as pool:
            yield from run_ahead(
                min(DATASETS_AHEAD, self.fs.parallel_calls), lambda name: self._look(name, pool), names
            )

    def _look(self, name: str, pool: ThreadPoolExecutor) -> AuditedFolder:
        parents = (self.output, f"{self.output}/{REJECTED_FOLDER}")
        paths = [path for parent in parents for path in files_below(self.fs, f"{parent}/{name}")]
        state, wrong = self.states.get(name), list[tuple[str, str]]()
        done_epoch = state.done_epoch if state else 0
        stones = self._stones(paths, state, wrong)
        superseded = superseded_by(stones, done_epoch)
        for path, by in superseded.items():
            if len(by) > 1:
                wrong.append((f"{self.output}/{path}", f"superseded {len(by)} times, by tombstones of {_epochs(by)}"))
        live_paths = [path for path in paths if not is_tombstone(path)]
        live_paths = [path for path in live_paths if path.removeprefix(f"{self.output}/") not in superseded]
        newest = newest_replacements(stones, done_epoch)
        return AuditedFolder(
            name,
            list(zip(live_paths, read_files(self.fs, self.read, live_paths, pool), strict=True)),
            wrong,
            [replaced for stone in newest for replaced in stone.replaced],
            len(paths) - len(live_paths) - len(newest),
            sorted(stone.epoch for stone in newest),
            {published_epoch(name) for name in map(posixpath.basename, superseded) if is_published_name(name)},
            {path.removeprefix(f"{self.output}/") for path in paths},
            set(superseded),
            not any(is_tombstone(path) for path, _ in wrong),
        )

    def _stones(self, paths: list[str], state: DatasetState | None, wrong: list[tuple[str, str]]) -> list[Tombstone]:
        tombstones: list[Tombstone] = []
        for path in filter(is_tombstone, paths):
            try:
                stone = read_tombstone(self.fs, path)
            except (DistcommitError, OSError) as error:
                wrong.append((path, str(error)))
                continue
            if stone.epoch <= (state.done_epoch if state else 0):
                tombstones.append(stone)
            elif stone.epoch != (state.sequence.epoch if state and state.sequence else 0):
                wrong.append((path, f"epoch {stone.epoch}, no sequence of this dataset published it"))
        return tombstones


def replaced_otherwise(folder: AuditedFolder, state: DatasetState) -> str:
    """Return how the replacements in the output differ from the one that was sealed last; empty if they do not."""
    if not folder.is_read or state.replacement in state.accepted_epochs:
        return ""
    if folder.replacements == ([state.replacement] if state.replacement else []):
        return ""
    actual = ", ".join(map(str, folder.replacements)) or "none"
    return (
        f"expected the replacement of epoch {state.replacement or 'none'}, which the store sealed last, found {actual};"
        " restore the newest output: the present one was restored from an older copy, or its tombstone was deleted"
    )


def _epochs(stones: list[Tombstone]) -> str:
    return "epochs " + ", ".join(str(stone.epoch) for stone in stones)
