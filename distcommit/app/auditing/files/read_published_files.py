"""Reads the published files of a job with their footers, dataset by dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from distcommit.core.dataset_urn import folder_of
from distcommit.core.errors import DistcommitError
from distcommit.core.interfaces.commit_step import StepContext, Verdict
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.parallel import run_ahead
from distcommit.protocol.paths.output import REJECTED_FOLDER, is_published_name, is_tombstone
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.sinks.files.footer import Footer, read_footer
from distcommit.sinks.files.offset_sets import OffsetSets, parsed
from distcommit.steps.step_registry import load_steps
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    Tombstone,
    newest_replacements,
    read_tombstone,
    superseded_by,
)
from distcommit.stores.state.job_store import JobStore

Content = TypeVar("Content")

FEW_FILES = 4
"""If a file system has no parallel calls, up to this number of files are read without threads. Also the fewest threads
of a pool.
"""
DATASETS_AHEAD = 8
"""The most datasets that are read in parallel. Their footers are in memory."""


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A published file with its footer.

    Attributes:
        path: path of the file, including the output folder.
        footer: the footer.
        offsets: offsets of the input records in the file, from the footer.
        holes: holes that the footer names: offsets without a record at the source.
    """

    path: str
    footer: Footer
    offsets: OffsetSets
    holes: OffsetSets

    @property
    def named(self) -> OffsetSets:
        """Input records that the file's footer mentions: those in the file, and those that were filtered in any
        branch.
        """
        offsets = self.offsets.union(OffsetSets())
        for text in self.footer.filtered.values():
            offsets.update(parsed(text))
        return offsets


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """The published files of a dataset, in its output and error folders. Foreign files are skipped.

    Attributes:
        name: name of the folders, which encodes the dataset URN.
        output: path of the output folder of the job.
        files: files with a readable footer.
        tombstones: readable tombstones, by path.
        unusable: files and tombstones that cannot be read or belong to another dataset, each with the reason.
    """

    name: str
    output: str
    files: list[PublishedFile] = field(default_factory=list)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)

    @property
    def dataset_urn(self) -> str:
        """URN of the dataset; empty if no file or tombstone names it."""
        footers = (file.footer.dataset_urn for file in self.files)
        return next(footers, "") or next((stone.dataset_urn for stone in self.tombstones.values()), "")

    def below_output(self, path: str) -> str:
        """Return a path relative to the output, as tombstones name it."""
        return path.removeprefix(f"{self.output}/")

    def live_files(self, done_epoch: int) -> list[PublishedFile]:
        """Return the files that are not superseded, given the done epoch of the dataset."""
        superseded = superseded_by(self.tombstones.values(), done_epoch)
        return [file for file in self.files if self.below_output(file.path) not in superseded]

    def replaced(self, done_epoch: int) -> list[ReplacedRecords]:
        """Return the input records whose output was replaced, from tombstones up to the done epoch of the dataset."""
        return [
            replaced_records
            for stone in newest_replacements(self.tombstones.values(), done_epoch)
            for replaced_records in stone.replaced
        ]


def file_readers(fs: FileSystem, *, deep: bool = False) -> ThreadPoolExecutor:
    """Return a pool of threads that read files. Its size respects the limits of the file system and, with `deep` (whole
    files in memory), the memory.
    """
    return ThreadPoolExecutor(FEW_FILES if deep else max(FEW_FILES, fs.parallel_calls - DATASETS_AHEAD))


def read_folder(fs: FileSystem, output: str, name: str) -> PublishedFolder:
    """Return the published files of a dataset by its folder name. Reads each footer."""
    with file_readers(fs) as pool:
        return _read_folder(fs, output, pool, name)


def read_published(fs: FileSystem, output: str) -> Iterator[PublishedFolder]:
    """Yield the published files of all datasets by folder name. Reads each footer. On a file system with parallel
    calls, up to `DATASETS_AHEAD` datasets are read at once.
    """
    parents = (output, f"{output}/{REJECTED_FOLDER}")
    names = {entry.name for parent in parents for entry in fs.list_folder(parent) if entry.is_folder}
    with file_readers(fs) as pool:
        look = partial(_read_folder, fs, output, pool)
        yield from run_ahead(
            min(DATASETS_AHEAD, fs.parallel_calls), look, sorted(names - {REJECTED_FOLDER, OWNERSHIP_FOLDER})
        )


def _read_folder(fs: FileSystem, output: str, pool: ThreadPoolExecutor, name: str) -> PublishedFolder:
    folder = PublishedFolder(name, output)
    paths = [path for parent in (output, f"{output}/{REJECTED_FOLDER}") for path in files_below(fs, f"{parent}/{name}")]
    for path in filter(is_tombstone, paths):
        try:
            folder.tombstones[path] = read_tombstone(fs, path)
        except (DistcommitError, OSError) as error:
            folder.unusable.append(f"{path}: {error}")
    published_paths = [path for path in paths if is_published_name(path.rpartition("/")[2])]
    for file_or_problem in read_files(fs, partial(_read, fs), published_paths, pool):
        if isinstance(file_or_problem, str):
            folder.unusable.append(file_or_problem)
        elif folder_of(file_or_problem.footer.dataset_urn) != name:
            urn = file_or_problem.footer.dataset_urn
            folder.unusable.append(f"{file_or_problem.path}: the file belongs to dataset {urn}")
        else:
            folder.files.append(file_or_problem)
    return folder


def read_files(
    fs: FileSystem, read: Callable[[str], Content], paths: Sequence[str], pool: ThreadPoolExecutor
) -> Iterator[Content]:
    """Return the result of `read` for each file, in the order of `paths`."""
    few = FEW_FILES if fs.parallel_calls == 1 else 1
    return map(read, paths) if len(paths) <= few else pool.map(read, paths)


def _read(fs: FileSystem, path: str) -> PublishedFile | str:
    try:
        footer = read_footer(fs, path)
        if footer is None:
            return f"{path}: the file has no footer of distcommit"
        offsets, holes = map(parsed, (footer.offsets, footer.holes))
        for text in footer.filtered.values():
            parsed(text)
        return PublishedFile(path, footer, offsets, holes)
    except (DistcommitError, OSError) as error:
        return f"{path}: {error}"


def may_lack(files: Iterable[PublishedFile], sequence: SealedSequence | None, store: JobStore) -> bool:
    """Return whether files of an epoch may be missing without a gap in the offsets. This is possible if several records
    made of one input record are in several files. If the store knows the epoch's `sequence`, its files are checked.
    """
    if not any(file.footer.makes_several for file in files):
        return False
    return sequence is None or not _is_published(sequence, store)


def _is_published(sequence: SealedSequence, store: JobStore) -> bool:
    context = StepContext(store.fs, store.roots.staging, store.roots.output, store_id=store.store_id)
    try:
        return all(step.verify() in (True, Verdict.DONE) for step in load_steps(sequence.steps, context))
    except Exception:  # noqa: BLE001 - of a kind that nobody here knows, or whatever one of a user's own raises
        return False
