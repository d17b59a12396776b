"""A new snapshot of a table. It is only committed on the version of the table that it was created from."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotSummaryCollector, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.utils.properties import property_as_bool, property_as_int

from distcommit.sinks.iceberg.catalog.tables import Change


@dataclass(slots=True)
class NewSnapshot:
    """A snapshot that is being created on top of a table's current one.

    Attributes:
        table: the loaded table, whose current snapshot becomes the parent.
        snapshot_id: id of the new snapshot.
        commit: UUID in the names of its files.
        written: paths of the files that were written for it. They are deleted if no version of the table has the
            snapshot.
    """

    table: Table
    snapshot_id: int
    commit: str = field(default_factory=lambda: str(uuid.uuid4()))
    written: list[str] = field(default_factory=list)

    @staticmethod
    def of(table: Table) -> NewSnapshot:
        return NewSnapshot(table, table.metadata.new_snapshot_id())

    def change(
        self,
        added: Sequence[DataFile],
        removed: AbstractSet[str],
        properties: Mapping[str, str],
        trace: Mapping[str, str],
    ) -> Change | None:
        """Write the snapshot's files, and return the change that adds it; None if the table lacks a file of `removed`.
        `trace` is added to the snapshot's summary."""
        metadata, table = self.table.metadata, self.table
        parent = metadata.snapshot_by_name(MAIN_BRANCH)
        manifests = parent.manifests(table.io) if parent is not None else []
        gone: list[DataFile] = []
        if removed:
            manifests = [part for each in manifests for part in self._without(each, removed, gone)]
            if {file.file_path for file in gone} != removed:
                return None
        manifests = self._merged([*self._of_added(added), *manifests])
        location = self._new_file(f"snap-{self.snapshot_id}-0-{self.commit}.avro")
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=table.io.new_output(location),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent is not None else None,
            sequence_number=metadata.next_sequence_number(),
            avro_compression=self._compression,
        ) as writer:
            writer.add_manifests(manifests)
        parent_id = parent.snapshot_id if parent is not None else None
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "parent-snapshot-id": parent_id,
                "manifest-list": location,
                "sequence-number": metadata.next_sequence_number(),
                "summary": self._summary(parent, added, gone, trace),
                "schema-id": metadata.current_schema_id,
            }
        )
        newest = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": self.snapshot_id}
        updates = (
            SetPropertiesUpdate(updates=dict(properties)),
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate.model_validate(newest),
        )
        requirements = (
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": parent_id}),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        )
        return Change(table, updates, requirements)

    def is_replaced(self, now: Table) -> bool:
        """Return True if other commits have surely replaced the snapshot; False if older snapshots are expired or not
        listed."""
        before, after = self.table.metadata, now.metadata
        newer = after.next_sequence_number() - before.next_sequence_number()
        parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in after.snapshots}
        current, existing = after.current_snapshot_id, 0
        while current in parents and current not in (before.current_snapshot_id, self.snapshot_id):
            current, existing = parents[current], existing + 1
        return current == before.current_snapshot_id and 0 < existing == newer

    def delete_files(self) -> None:
        """Delete the written files. No version of the table may have the snapshot."""
        for path in self.written:
            with contextlib.suppress(Exception):  # removal of orphan files deletes it
                self.table.io.delete(path)

    def _of_added(self, added: Sequence[DataFile]) -> Iterable[ManifestFile]:
        for spec in sorted({file.spec_id for file in added}):
            with self._writer(spec) as writer:
                for file in added:
                    if file.spec_id == spec:
                        writer.add_entry(
                            ManifestEntry.from_args(
                                status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, data_file=file
                            )
                        )
            yield writer.to_manifest_file()

    def _without(
        self, manifest: ManifestFile, removed: AbstractSet[str], gone: list[DataFile]
    ) -> Iterable[ManifestFile]:
        if manifest.content != ManifestContent.DATA:
            return [manifest]
        entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
        going = [entry for entry in entries if entry.data_file.file_path in removed]
        if not going:
            return [manifest]
        gone += (entry.data_file for entry in going)
        with self._writer(manifest.partition_spec_id) as writer:
            for entry in entries:
                if entry.data_file.file_path in removed:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return [writer.to_manifest_file()]

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self.table.metadata.properties
        if not property_as_bool(properties, TableProperties.MANIFEST_MERGE_ENABLED, default=True):
            return manifests
        least = property_as_int(
            properties, TableProperties.MANIFEST_MIN_MERGE_COUNT, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT
        )
        most_bytes = property_as_int(
            properties, TableProperties.MANIFEST_TARGET_SIZE_BYTES, TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT
        )
        assert least is not None
        assert most_bytes is not None
        merged: list[ManifestFile] = []
        small: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            if manifest.content == ManifestContent.DATA and manifest.manifest_length < most_bytes // 2:
                small.setdefault(manifest.partition_spec_id, []).append(manifest)
            else:
                merged.append(manifest)
        for spec, group in small.items():
            merged += [self._as_one(spec, group)] if len(group) >= least else group
        return merged

    def _as_one(self, spec: int, manifests: Sequence[ManifestFile]) -> ManifestFile:
        with self._writer(spec) as writer:
            for manifest in manifests:
                for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
                    if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == self.snapshot_id:
                        writer.add(entry)
                    elif entry.status != ManifestEntryStatus.DELETED:
                        writer.existing(entry)
                    elif entry.snapshot_id == self.snapshot_id:
                        writer.delete(entry)
        return writer.to_manifest_file()

    def _writer(self, spec: int) -> ManifestWriter:
        metadata = self.table.metadata
        return write_manifest(
            format_version=metadata.format_version,
            spec=metadata.specs()[spec],
            schema=metadata.schema(),
            output_file=self.table.io.new_output(self._new_file(f"{self.commit}-m{len(self.written)}.avro")),
            snapshot_id=self.snapshot_id,
            avro_compression=self._compression,
        )

    @property
    def _compression(self) -> Any:
        return self.table.metadata.properties.get(
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )

    def _new_file(self, name: str) -> str:
        path: str = self.table.location_provider().new_metadata_location(name)
        self.written.append(path)
        return path

    def _summary(
        self, parent: Snapshot | None, added: Sequence[DataFile], gone: Sequence[DataFile], trace: Mapping[str, str]
    ) -> Summary:
        metadata = self.table.metadata
        limit = property_as_int(
            metadata.properties,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
            TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
        )
        collector = SnapshotSummaryCollector(partition_summary_limit=limit or 0)
        for file in added:
            collector.add_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        for file in gone:
            collector.remove_file(file, metadata.schema(), metadata.specs()[file.spec_id])
        summary = Summary(operation=Operation.DELETE if gone else Operation.APPEND, **collector.build(), **trace)
        return update_snapshot_summaries(summary, parent.summary if parent is not None else None)
