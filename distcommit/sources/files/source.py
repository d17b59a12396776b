"""Settings of the source `files`."""

from __future__ import annotations

import codecs
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from distcommit.core.interfaces.constructs import Converter
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import DatasetProblem, Extractor, SourceState
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.interfaces.watermark_types import WATERMARK_PIN
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.support.decoding import from_json
from distcommit.core.support.settings_model import SettingError, errors_of, raise_all, rule
from distcommit.core.watermark import Position
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.fs.fsspec_based.input_files import InputFolder
from distcommit.sources.described_source import DescribedSource
from distcommit.sources.files.csv_dialect import Dialect
from distcommit.sources.files.csv_rows import UnparsedRows
from distcommit.sources.files.extractor import FILE, LINE_SCHEMA, OFFSET, PARTITION, FilesExtractor
from distcommit.sources.files.format_readers import VALUE, FileFormat
from distcommit.sources.files.path_patterns import PathPattern, check_folder, listed
from distcommit.sources.files.plan_dataset import (
    FILES,
    LISTED,
    SKIPPED,
    SKIPPED_WATERMARKS,
    WATERMARKS,
    Rules,
    plan_dataset,
)
from distcommit.sources.files.progress import ListedFile
from distcommit.sources.files.unreadable_files import OnUnreadableFile, RejectFiles

_OTHER_PATHS = (
    "restore the old source.paths in their order, because watermarks identify files by the number of their pattern and"
    " the path below its folder; or give the job new folders (paths), where all files are new"
    " (`distcommit dataset set-watermark --new` skips those before a time)"
)


class FilesSource(DescribedSource):
    """Files that arrive whole in folders, each read once, by modification time.

    Attributes:
        type: `files`.
        paths: patterns of absolute paths or URLs: `*` and `?` within a name, `[...]`, `**` for folders at any depth
            (once), and `{dataset}` within a name (once). Names that begin with `.` or `_` are skipped, unless the
            pattern's name does.
        dataset: the dataset of all files that match a pattern without `{dataset}`.
        format: format of the files. Text files may be compressed with gzip if their names end in `.gz`. Unreadable rows
            of CSV are rejected (`on_rejected`).
        delimiter: ASCII character between the columns of CSV.
        quote: ASCII character around columns of CSV that have delimiters or line ends; a quote within is doubled. Empty
            for no quoting. Rows with text behind a closing quote are unreadable.
        escape: ASCII character, such as a backslash, that makes the next one literal. Empty for no escaping. With it,
            files are read row by row, which takes several times as long.
        nulls: texts that mean null where they are not quoted, such as `\\N`. An empty column is empty text.
        header: whether the first row of CSV names the columns. If not, set `columns`.
        columns: names of the columns of CSV. A header must have exactly these names, in any order. Without a header
            they name the columns in their order.
        encoding: encoding of CSV, by a name of Python's, such as `latin-1`, `cp1252` or `utf-16`.
        on_unreadable_file: what happens to a file that is damaged, has a wrong header or is in another format. `fail`
            fails its dataset in this run, and the report names all such files. `skip` leaves the file out and reports
            it. `divert` also puts one record, with the file's name and the reason, into the error branch. With
            `on_rejected: fail` a file with an unreadable CSV row is unreadable, too.
        bytes_per_work_unit: target size of work units.
        bytes_per_dataset: bytes of a dataset that one run reads, 0 for all; whole files, at least one.
        min_file_age_s: files that were changed within this time, by the clock of the planning machine, wait for the
            next run because they may still be written.
        tracked_files: number of the newest files of a dataset that are tracked individually. A late file is detected
            among these; an older unread file is not.
        on_late_file: action for a file that is older than files that were read: `read` reads it; `fail` leaves the
            dataset out of the run with an error.
        on_changed_file: action for a tracked file that was changed after it was read: `fail`, or `read_again` reads all
            of its rows again.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    provenance: ClassVar[Provenance | None] = Provenance(PARTITION, OFFSET, counts_reading=True)
    size_unit: ClassVar[Literal["", "records", "bytes"]] = "bytes"

    type: Literal["files"]
    paths: tuple[str, ...] = Field(min_length=1)
    dataset: str = ""
    format: FileFormat
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    quote: str = Field(default='"', max_length=1)
    escape: str = Field(default="", max_length=1)
    nulls: tuple[str, ...] = ()
    header: bool = True
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    on_unreadable_file: OnUnreadableFile = "fail"
    bytes_per_work_unit: int = Field(default=128 << 20, ge=1)
    bytes_per_dataset: int = Field(default=0, ge=0)
    min_file_age_s: float = Field(default=5, ge=0)
    tracked_files: int = Field(default=100, ge=1, le=10_000)
    on_late_file: Literal["read", "fail"] = "read"
    on_changed_file: Literal["fail", "read_again"] = "fail"
    _unreadable_row_fails: bool = PrivateAttr(default=False)

    @field_validator("paths")
    @classmethod
    def _parse(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        parse = PathPattern.parse
        raise_all(error for index, path in enumerate(paths) for error in errors_of(partial(parse, path), index))
        return paths

    @rule
    def _names_datasets(self) -> Iterator[SettingError]:
        has_unnamed = any(not PathPattern.parse(path).names_datasets for path in self.paths)
        if has_unnamed and not self.dataset:
            yield SettingError("must be set if a path has no {dataset}", "dataset")
        if self.dataset and not has_unnamed:
            yield SettingError("must not be set if each path has {dataset}", "dataset")

    @rule
    def _has_distinct_characters(self) -> Iterator[SettingError]:
        used: dict[str, str] = {}
        for name in ("delimiter", "quote", "escape"):
            mark = getattr(self, name)
            if mark and (not mark.isascii() or mark in "\r\n"):
                yield SettingError("must be an ASCII character, and not a line end", name)
            elif mark and mark in used:
                yield SettingError(f"must differ from {used[mark]}", name)
            used.setdefault(mark, name)
        for name in ("delimiter", "quote", "escape", "nulls", "header", "columns", "encoding"):
            if self.format != "csv" and getattr(self, name) != type(self).model_fields[name].default:
                yield SettingError("must only be set with format: csv", name)

    @rule
    def _names_columns(self) -> Iterator[SettingError]:
        if not self.header and not self.columns:
            yield SettingError("must name the columns of files without a header", "columns")
        if twice := sorted({name for name in self.columns if self.columns.count(name) > 1}):
            yield SettingError("must not have a name twice", "columns", actual=", ".join(twice))
        try:
            "".encode(self.encoding)
        except (LookupError, UnicodeError):
            yield SettingError("must be a text encoding of Python", "encoding", actual=repr(self.encoding))

    @property
    def _dialect(self) -> Dialect:
        encoding = codecs.lookup(self.encoding).name
        return Dialect(self.delimiter, self.quote, self.escape, self.nulls, self.columns, self.header, encoding)

    @property
    def batch_schema(self) -> pa.Schema | None:
        return LINE_SCHEMA if self.format == "jsonl" else None

    @property
    def rejection_check(self) -> Converter | None:
        added = [field.name for field in LINE_SCHEMA if field.name != VALUE.name]
        rows = UnparsedRows(self._dialect, added, FILE) if self.format == "csv" else None
        return RejectFiles(rows, FILE) if self.on_unreadable_file == "divert" else rows

    @property
    def diverts_unreadable(self) -> bool:
        return self.on_unreadable_file == "divert"

    def with_on_rejected(self, on_rejected: Literal["fail", "divert"]) -> FilesSource:
        if self.format != "csv" or on_rejected != "fail":
            return self
        source = self.model_copy()
        source._unreadable_row_fails = True
        return source

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return `dataset`, and the patterns from their first wildcard on.

        Folders before the wildcard may move if files keep their times. Patterns that are equal from there on may only
        move together.
        """
        folders = (
            {"paths (folders)": FixedSetting(" ".join(self._own_folders), _OTHER_PATHS)} if self._own_folders else {}
        )
        return {
            "paths": FixedSetting(" ".join(map(str, self._patterns())), _OTHER_PATHS),
            **folders,
            "dataset": FixedSetting(self.dataset),
            WATERMARK_PIN: WATERMARKS.pin(),
        }

    @property
    def _own_folders(self) -> list[str]:
        """Folders of patterns that differ only in the folder, relative to their common folder. Their order must not
        change, because positions name a file by its pattern's index."""
        patterns = self._patterns()
        times = Counter(map(str, patterns))
        folders = [pattern.folder.split("/") for pattern in patterns if times[str(pattern)] > 1]
        shared = sum(1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))
        return ["/".join(folder[shared:]) for folder in folders]

    def reads(self, target: Target) -> bool:
        least = {"folder": 1, "root": 2}.get(target.kind)
        return least is not None and any(pattern.may_match_in(target.name, least) for pattern in self._patterns())

    def extract_of(self, dataset_urn: str) -> Extract:
        """Return an append-only table. Its keys are the added columns, whose values are new if a file is read again."""
        columns = (PARTITION, OFFSET)
        return self.described(Extract(self.type, dataset_urn, TableType.APPEND_ONLY, columns, columns[1:]))

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        settled_ns = time.time_ns() - int(self.min_file_age_s * 1e9)
        rules = Rules(
            self.bytes_per_work_unit,
            self.bytes_per_dataset,
            settled_ns,
            self.tracked_files,
            self.on_late_file,
            self.on_changed_file,
            may_skip=self.on_unreadable_file != "fail",
        )
        listing = listed(self._patterns(), self.dataset, owned)
        yield from (DatasetProblem(urn, reason) for urn, reason in listing.problems.items())
        for urn in dict.fromkeys([*listing.files, *filter(owned, states)]):  # datasets without a file may be missing
            files, state = listing.files.get(urn, {}), states.get(urn) or DatasetState(urn)
            if urn in listing.problems or state.status is not DatasetStatus.IDLE:
                continue
            present = [
                ListedFile(index, path, file.size_bytes, file.mtime_ns, file.etag)
                for (index, path), file in files.items()
            ]
            if planned := plan_dataset(urn, state.watermark, present, rules, states.to_read_again(urn)):
                yield planned

    def check_connection(self) -> str:
        folders = dict.fromkeys(pattern.folder for pattern in self._patterns())
        for folder in folders:
            check_folder(folder)
        return f"{', '.join(folders)} can be listed"

    def planned_size(self, unit: WorkUnit) -> int:
        return sum(file.size_bytes for file in from_json(unit.properties[LISTED], list[ListedFile]))

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        for urn, positions in datasets.items():
            if FILES not in positions:
                yield f"{urn!r}: the position {FILES!r} is missing"
            for partition, position in positions.items():
                if partition == FILES:
                    try:
                        WATERMARKS.from_position(position)
                    except ValueError as error:
                        yield f"{urn!r}: {error}"
                elif partition.startswith(SKIPPED):
                    try:
                        SKIPPED_WATERMARKS.from_position(position)
                    except ValueError as error:
                        yield f"{urn!r}: {error}"
                elif type(position) is not int or position < 0:
                    yield f"{urn!r}: {position!r}, for partition {partition!r}, is not a number of rows"

    def open(self) -> Extractor:
        folders = tuple(InputFolder(pattern.folder) for pattern in self._patterns())
        unreadable = self.on_unreadable_file, self._unreadable_row_fails
        return FilesExtractor(folders, self.format, self._dialect, self.tracked_files, *unreadable)

    def _patterns(self) -> tuple[PathPattern, ...]:
        return tuple(map(PathPattern.parse, self.paths))
