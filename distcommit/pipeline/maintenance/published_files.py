"""The live files of a dataset, and the records of superseded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.core.work_units import ERRORS, MAIN_BRANCH
from distcommit.pipeline.maintenance.superseded_records import SupersededRecords
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_published_name, is_tombstone, published_epoch, published_folder
from distcommit.sinks.files.footer import Footer, read_published_footer
from distcommit.stores.folders.folder_trees import files_below
from distcommit.stores.folders.tombstones import (
    ReplacedRecords,
    SupersededFile,
    Tombstone,
    newest_replacements,
    read_tombstone,
    superseded_by,
)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live file.

    Attributes:
        path: path below the output.
        footer: the file's footer.
        size_bytes: the file's size.
        end_ms: time from which the age of the file counts, milliseconds since 1970: the end of its time folder, or
            the time of writing if it is in none; 0 if unknown.
    """

    path: str
    footer: Footer
    size_bytes: int
    end_ms: int


class PublishedFiles:
    """A dataset's published files. Tombstones are listed once, before data files.

    Args:
        done_epoch: newer files are ignored.
    """

    def __init__(self, fs: FileSystem, output: str, dataset_urn: str, done_epoch: int) -> None:
        self.fs, self.output, self.dataset_urn, self.done_epoch = fs, output, dataset_urn, done_epoch
        self._error_paths: list[str] | None = None
        self._tombstones: list[Tombstone] | None = None

    def tombstones(self) -> list[Tombstone]:
        """Return the tombstones; raises DistcommitError or OSError."""
        if self._tombstones is None:
            stones = [path for path in self._paths(ERRORS) if is_tombstone(path)]
            self._tombstones = [read_tombstone(self.fs, f"{self.output}/{path}") for path in stones]
        return self._tombstones

    def superseded_paths(self) -> frozenset[str]:
        return frozenset(superseded_by(self.tombstones(), self.done_epoch))

    def listed(self) -> list[str]:
        """Return paths of all branches' data files below the output, also superseded ones."""
        self._paths(ERRORS)  # tombstones are listed first
        names = ((path, path.rpartition("/")[2]) for path in self._paths(MAIN_BRANCH))
        return [path for path, name in names if is_published_name(name) and published_epoch(name) <= self.done_epoch]

    def replacements(self) -> list[Tombstone]:
        return newest_replacements(self.tombstones(), self.done_epoch)

    def live_in(self, *branches: str, location: Callable[[str], bool] = lambda _: True) -> Iterator[LiveFile]:
        """Yield live files of these branches, with `end_ms` as the time of writing.

        Args:
            branches: `ERRORS` for all error branches.
            location: chooses paths below the output, before footers are read.

        Raises:
            DistcommitError, OSError: if a tombstone or footer is missing or cannot be read.
        """
        yield from self.live_among(path for branch in branches for path in self._paths(branch) if location(path))

    def live_among(self, paths: Iterable[str]) -> Iterator[LiveFile]:
        """Yield the live files among these paths, as `live_in` does."""
        superseded = self.superseded_paths()
        for path in paths:
            if path in superseded or is_tombstone(path):
                continue
            full_path = f"{self.output}/{path}"
            status, footer = self.fs.status(full_path), read_published_footer(self.fs, full_path)
            if status is None or footer is None:
                continue
            if footer.dataset_urn == self.dataset_urn and footer.epoch <= self.done_epoch:
                yield LiveFile(path, footer, status.size_bytes, _written_ms(status))

    def superseded(
        self, files: Iterable[LiveFile], *, is_expired: bool
    ) -> tuple[list[SupersededFile], list[ReplacedRecords]]:
        """Return the files that a new replacement supersedes (these files, then the previous replacements), and the
        input records in them.

        Args:
            files: live files of the dataset.
            is_expired: whether the files expired, so that no new files replace them.

        Raises:
            FileNotFoundError: if a previous replacement is missing.
            DistcommitError, OSError: if a tombstone cannot be read.
        """
        superseded_records, superseded = SupersededRecords(), list[SupersededFile]()
        for file in files:
            superseded.append(SupersededFile(file.path, file.size_bytes, "", file.footer.records))
            superseded_records.add(file.footer, is_expired=is_expired)
        for stone in self.replacements():
            status = self.fs.status(f"{self.output}/{stone.path}")
            if status is None:
                raise FileNotFoundError(stone.path)
            superseded.append(SupersededFile(stone.path, status.size_bytes, "", 0))
            superseded_records.add_tombstone(stone.replaced)
        return superseded, superseded_records.to_records()

    def _paths(self, branch: str) -> list[str]:
        if branch == ERRORS and self._error_paths is not None:
            return self._error_paths
        folder = f"{self.output}/{published_folder(self.dataset_urn, branch)}"
        paths = [path.removeprefix(f"{self.output}/") for path in files_below(self.fs, folder)]
        if branch == ERRORS:
            self._error_paths = paths
        return paths


class DatedFiles(PublishedFiles):
    """A dataset's published files with the ends of their time folders.

    Args:
        flow: task flow whose sinks know the time folders.
    """

    def __init__(self, fs: FileSystem, output: str, dataset_urn: str, done_epoch: int, flow: TaskFlow) -> None:
        super().__init__(fs, output, dataset_urn, done_epoch)
        self._flow = flow

    def live_dated(self, *branches: str, location: Callable[[str], bool] = lambda _: True) -> Iterator[LiveFile]:
        """Yield the files of `live_in`, with `folder_end_ms` in place of `end_ms` if known."""
        yield from map(self._dated, self.live_in(*branches, location=location))

    def live_dated_among(self, paths: Iterable[str]) -> Iterator[LiveFile]:
        """Yield the files of `live_among`, with `folder_end_ms` in place of `end_ms` if known."""
        yield from map(self._dated, self.live_among(paths))

    def _dated(self, file: LiveFile) -> LiveFile:
        if file.footer.kind == "rejected":
            return file  # error files are in no time folder
        end_ms = self.folder_end_ms(file.path, file.footer.branch or MAIN_BRANCH)
        return file if end_ms is None else replace(file, end_ms=end_ms)

    def size_and_end_ms(self, path: str) -> tuple[int, int] | None:
        """Return a file's size and end without reading it; None if it is missing."""
        status = self.fs.status(f"{self.output}/{path}")
        if status is None:
            return None
        end_ms = self.folder_end_ms(path, self.branch_of(path))
        return status.size_bytes, _written_ms(status) if end_ms is None else end_ms

    def branch_of(self, path: str) -> str:
        first = path.removeprefix(f"{published_folder(self.dataset_urn)}/").partition("/")[0]
        return first if any(branch.name == first for branch in self._flow.branches) else MAIN_BRANCH

    def folder_end_ms(self, path: str, name: str) -> int | None:
        """Return the end of a file's time folder from its sink, or None.

        Folders of dataset and branch are not time folders, whatever their names.
        """
        path = path.removeprefix(f"{published_folder(self.dataset_urn)}/")
        if name != MAIN_BRANCH:
            path = path.removeprefix(f"{name}/")
        sink = next((branch.sink for branch in self._flow.branches if branch.name == name), self._flow.sinks[0])
        return sink.folder_end_ms(path)


def _written_ms(status: FileStatus) -> int:
    return -(-status.mtime_ns // 1_000_000)
