"""The sink of files and its writer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.commit_step import CommitStep, StepContext
from distcommit.core.interfaces.committer import SealRequest
from distcommit.core.interfaces.file_system import FileAccess
from distcommit.core.interfaces.sink import (
    Abilities,
    AttemptIdentity,
    Filtered,
    Origin,
    Origins,
    Prepared,
    Publish,
    SinkSettings,
    SinkWriter,
    StagingArea,
)
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.support.parallel import run_parallel
from distcommit.core.support.settings_model import SettingError, SettingsModel, checks, rule
from distcommit.core.work_units import (
    MAIN_BRANCH,
    SkippedRange,
    StagedFile,
    is_error_branch,
    sum_content,
)
from distcommit.protocol.paths.output import published_folder, published_name, published_start
from distcommit.protocol.paths.staging import staged_name, writing_name
from distcommit.sinks.files.layout_settings import FileLayout
from distcommit.sinks.files.open_file import ClosedFile, OpenFile, with_origins, without_origins
from distcommit.sinks.files.split_by_field import folder_names, split
from distcommit.sinks.table_formats.partition_value_checker import PartitionValues
from distcommit.steps.rename_step import FsRenameCommitStep

_OTHER_PARTITIONS = (
    "restore the old partition_by, because files in folders of the old one would never be replaced; or give the job new"
    " folders (paths)"
)


class AccessSettings(SettingsModel):
    """Permissions of published files. For missing settings the file system decides.

    Attributes:
        mode: octal digits in quotes: `"0640"`.
        owner: a user; requires that the job runs as a superuser.
        group: a group of the job's user.
    """

    mode: str | None = None
    owner: str | None = Field(default=None, min_length=1)
    group: str | None = Field(default=None, min_length=1)

    @checks("mode")
    @classmethod
    def _is_octal(cls, mode: str | None) -> str | None:
        if mode is not None and not re.fullmatch("0?[0-7]{3}", mode):
            raise SettingError('must be three octal digits in quotes, such as "0640"')
        return mode

    @classmethod
    def of(cls, access: FileAccess) -> AccessSettings:
        return cls(mode=None if access.mode is None else f"0{access.mode:03o}", owner=access.owner, group=access.group)

    def as_bits(self) -> FileAccess:
        return FileAccess(None if self.mode is None else int(self.mode, 8), self.owner, self.group)


class FileSink(FileLayout, SinkSettings):
    """Files in the job's output, which are published by renaming them. Each dataset has a folder of its own.

    Attributes:
        access: mode, owner and group of published files.
        publish: `append` adds the files of a run to the present ones; `replace` replaces all files of the dataset;
            `replace_partitions` replaces those in the folders of `partition_by` that new files go to.
    """

    type: Literal["files"] = "files"
    access: AccessSettings | None = None
    publish: Publish = "append"

    abilities: ClassVar[Abilities] = Abilities(at_least_once=True, audit=True, files=True, atomic=False)

    @rule
    def _has_partitions(self) -> Iterator[SettingError]:
        if self.publish == "replace_partitions" and not self.partitions:
            yield SettingError("must be set with publish: replace_partitions", "partition_by")

    @property
    def name(self) -> str:
        return self.type

    @property
    def file_access(self) -> FileAccess | None:
        return None if self.access is None else self.access.as_bits()

    @property
    def publisher(self) -> Publish:
        return self.publish

    @property
    def rejection_check(self) -> PartitionValues | None:
        return folder_names(self.partitions)

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the partitions, which must not change with `replace_partitions`: old files in other folders would
        stay."""
        parts = json.dumps([part.model_dump(mode="json") for part in self.partitions], sort_keys=True)
        return {"partition_by": FixedSetting(parts, _OTHER_PARTITIONS, binds=self.publish == "replace_partitions")}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"{output}/{published_folder(dataset_urn, branch)}"

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> AttemptFiles:
        return AttemptFiles(area, settings=self, identity=attempt, origin=origin)

    def commit_steps(self, request: SealRequest, context: StepContext) -> Sequence[CommitStep]:
        return [
            step
            for result, is_complete in zip(request.results, request.is_complete, strict=True)
            for step in FsRenameCommitStep.of_all(context, result.files, is_complete=is_complete)
        ]


class AttemptFiles(SinkWriter):
    """Writer of the files of one attempt at one work unit in one branch, with one open file for each folder.

    Rows wait in memory until there are enough for a row group. Avro, ORC and sorted files are written from memory as a
    whole. After an error in `write` or `prepare_commit`, only `abort` may be called. Not thread-safe.

    Args:
        area: the attempt's staging folder.
        settings: format and layout of the files.
        identity: the attempt, for names and footers.
        origin: the origin of the records, for footers.
        row_group_bytes: memory of a folder's rows above which they are written.
        max_waiting_bytes: memory of all waiting rows above which the largest row groups are written.
        max_open_files: number of open files above which the least recently written one is finished.
    """

    groups_schemas: ClassVar[bool] = True

    def __init__(
        self,
        area: StagingArea,
        *,
        settings: FileSink,
        identity: AttemptIdentity,
        origin: Origin,
        row_group_bytes: int = 64 << 20,
        max_waiting_bytes: int = 256 << 20,
        max_open_files: int = 128,
    ) -> None:
        self._area, self._fs, self._settings = area, area.fs, settings
        self._identity, self._origin = identity, origin
        self._branch_folder = published_folder(identity.dataset_urn, identity.branch)
        self._max_waiting_bytes, self._max_open_files = max_waiting_bytes, max_open_files
        chunk = row_group_bytes if settings.streams else max_waiting_bytes
        self._piece_bytes = min(chunk, settings.target_file_bytes)
        self._name = published_start(identity.epoch, identity.work_unit_id, identity.attempt)
        self._files: dict[str, OpenFile] = {}
        self._closed: list[ClosedFile] = []
        self._holes: list[SkippedRange] = []
        self._waiting_bytes = 0
        self._numbers = 0
        self._folders: set[str] = set()
        self._newest: tuple[str, pa.Schema] | None = None
        self.records_written = 0
        self._state: Literal["open", "failed", "closed", "aborted"] = "open"

    def note_holes(self, holes: Iterable[SkippedRange]) -> None:
        """Record offsets without a source record in the footer of an open file, or of the next file."""
        if self._files:
            next(iter(self._files.values())).add_holes(holes)
        else:
            self._holes += holes

    def note_filtered(self, filtered: Filtered) -> bool:
        """Record filtered records in an open file, or in one without records. Return False if the attempt has written
        no records."""
        if not self._files:
            if self._newest is None:
                return False
            folder, schema = self._newest
            self._files[folder] = self._new_file(folder, schema)
            self._files[folder].add(pa.RecordBatch.from_pylist([], schema=schema), 0)
        next(iter(self._files.values())).add_filtered(filtered)
        return True

    def keep_without_records(self, filtered: Filtered, schema: pa.Schema) -> None:
        """Record filtered records as `note_filtered`. Without written records, the new file has this schema."""
        self._newest = self._newest or ("", schema)
        self.note_filtered(filtered)

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        """Take records. Raises ConfigurationError if columns are missing or not supported, or there are too many
        folders, and SourceError if a row has no source offset."""
        self._begin_change()
        if batch.schema.metadata:
            batch = batch.replace_schema_metadata(None)  # else this would include the footer of a file that was read
        if origins is not None:
            batch = with_origins(batch, origins)
        parts = list(split(batch, self._settings.partitions))
        for folder, _ in parts:
            self._count_folder(folder)
        # A file has one schema.
        self._finish([folder for folder, rows in parts if self._has_another_schema(folder, rows)])
        for folder, rows in parts:
            for chunk, plain_bytes in _slices(rows, self._piece_bytes):
                self._wait(folder, chunk, plain_bytes)
        if self._waiting_bytes > self._max_waiting_bytes:
            self._make_room()
        self.records_written += batch.num_rows
        self._state = "open"

    @property
    def prepares_in_background(self) -> bool:
        return self._fs.parallel_calls > 1

    def prepare_commit(self) -> Prepared:
        """Finish all files and, if the file system has folders, give them their final names; the caller syncs the tree.
        If there are several target folders, each has a staged folder, so that one rename can publish it."""
        self._begin_change()
        self._finish(list(self._files))
        by_target: dict[str, list[ClosedFile]] = {}
        for file in sorted(self._closed, key=lambda closed: (len(closed.path), closed.path)):
            by_target.setdefault(file.final_path.rpartition("/")[0], []).append(file)
        apart = len(by_target) > 1 and self._fs.has_folders
        placed = run_parallel(
            self._fs.parallel_calls,
            lambda numbered: self._move_to_final_paths(f"/{staged_name(numbered[0])}" if apart else "", numbered[1]),
            list(enumerate(by_target.values(), 1)),
        )
        outputs = [output for outputs_of_folder in placed for output in outputs_of_folder]
        self._state = "closed"
        content = sum_content(file.content_sum for file in self._closed)
        return Prepared(files=outputs, holes=self._holes, content_sum=content)

    def abort(self) -> None:
        """Close open files without deleting them, ignoring errors; does nothing after `prepare_commit`."""
        if self._state == "closed":
            return
        self._state = "aborted"
        for file in self._files.values():
            file.abandon()
        self._files.clear()

    def _begin_change(self) -> None:
        if self._state != "open":
            raise ValueError(f"the files of attempt {self._identity.attempt!r} are {self._state}")
        # Failed until the change is complete: partly taken rows must never be closed as a whole file.
        self._state = "failed"

    def _count_folder(self, folder: str) -> None:
        if not self._settings.has_fields or folder in self._folders:
            return
        self._folders.add(folder)
        if len(self._folders) > self._settings.max_partitions:
            raise ConfigurationError(
                "the records of one attempt go to too many folders",
                id="PARTITIONING_INVALID",
                expected=f"at most {self._settings.max_partitions}; found one more, {folder}",
                todo="take a field with fewer values into sink.partition_by, or raise sink.max_partitions",
                dataset=self._identity.dataset_urn,
            )

    def _wait(self, key: str, rows: pa.RecordBatch, plain_bytes: int) -> None:
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = self._new_file(key, rows.schema)
        self._waiting_bytes += file.add(rows, plain_bytes)
        if file.waiting_bytes >= self._piece_bytes:
            self._write(key)

    def _make_room(self) -> None:
        for key in sorted(self._files, key=lambda k: self._files[k].waiting_bytes, reverse=True):
            if key in self._files:  # else it was finished early to open another
                self._write(key)
            if self._waiting_bytes <= self._max_waiting_bytes // 2:
                return

    def _write(self, key: str) -> None:
        file = self._files[key]
        if not self._settings.streams:
            self._finish([key])
            return
        self._waiting_bytes -= file.waiting_bytes
        file.write_row_group()
        if file.size_bytes >= self._settings.target_file_bytes:
            self._finish([key])
            return
        self._files[key] = self._files.pop(key)  # the last one to be finished early
        started = [other for other, candidate in self._files.items() if candidate.is_open]
        if len(started) > self._max_open_files:
            self._finish(started[:1])

    def _has_another_schema(self, key: str, rows: pa.RecordBatch) -> bool:
        file = self._files.get(key)
        return file is not None and not file.schema.equals(rows.schema, check_metadata=True)

    def _finish(self, keys: Sequence[str]) -> None:
        files = [self._files[key] for key in keys]
        self._waiting_bytes -= sum(file.waiting_bytes for file in files)
        self._closed += run_parallel(self._fs.parallel_calls, OpenFile.finish, files)
        for key in keys:
            del self._files[key]  # only now, as `abort` needs it until then

    def _move_to_final_paths(self, below: str, files: Sequence[ClosedFile]) -> list[StagedFile]:
        if below:
            self._fs.make_folder(self._area.folder + below)
        return [self._staged(file, below) for file in files]

    def _staged(self, file: ClosedFile, below: str) -> StagedFile:
        if self._fs.has_folders:
            name = f"{below}/" + file.final_path.rpartition("/")[2]
            self._fs.rename(file.path, self._area.folder + name)
        else:  # the file is renamed to its target by itself
            name = file.path.removeprefix(self._area.folder)
        return StagedFile(
            staged_path=self._area.prefix + name,
            final_path=file.final_path,
            size_bytes=file.status.size_bytes,
            checksum=file.checksum,
            file_id=file.status.file_id,
            mtime_ns=file.status.mtime_ns,
            records=file.records,
        )

    def _new_file(self, folder: str, schema: pa.Schema) -> OpenFile:
        settings, self._newest = self._settings, (folder, schema)
        written = without_origins(schema)
        if not is_error_branch(self._identity.branch):  # error files have input records with their original names
            settings.check_names(written)
        encoder = settings.encoder(written)
        self._numbers += 1
        parts = [self._branch_folder, folder] if folder else [self._branch_folder]
        final_path = "/".join([*parts, published_name(self._name, self._numbers, settings.ending)])
        name = staged_name(self._numbers, settings.ending)
        file = OpenFile(
            self._fs,
            path=f"{self._area.folder}/{writing_name(name) if self._fs.has_folders else name}",
            target=f"{self._area.output_root}/{final_path}",
            final_path=final_path,
            schema=schema,
            encoder=encoder,
            identity=self._identity,
            origin=self._origin,
            number=self._numbers,
            access=self._settings.file_access,
            sort_by=settings.sort_keys,
        )
        file.add_holes(self._holes)
        self._holes.clear()
        return file


def _slices(rows: pa.RecordBatch, piece_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    plain_bytes = rows.nbytes  # read once, as it costs 15 µs
    if plain_bytes <= piece_bytes:
        if rows.num_rows:
            yield rows, plain_bytes
        return
    step = max(1, rows.num_rows * piece_bytes // plain_bytes)
    for start in range(0, rows.num_rows, step):
        chunk = rows.slice(start, step)
        yield chunk, plain_bytes * chunk.num_rows // rows.num_rows
