"""Faults to be planted: compactions that lose, repeat or alter records, or delete files too early."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_UNCHECKED = (
    "sinks.files.merged_file",
    "write_merged_file",
    "_require_conserved(local, closed.path, schema, footer, provenance)",
)

COMPACTIONS = (
    fault(
        FaultClass.COMPACTION,
        "compaction-drops-a-file",
        "a merged file lacks the records of the last file that it replaces, and is not compared",
        (
            "pipeline.maintenance.compaction_source",
            "_CompactedExtraction._records",
            "read_batches(fs, path)",
            "read_batches(fs, path) if below != paths[-1] else ()",
        ),
        (
            "pipeline.maintenance.compaction_source",
            "_CompactedExtraction._records",
            "(records, as_text(content)) != (footer.records, footer.content_sum)",
            "False",
        ),
        _UNCHECKED,
    ),
    fault(
        FaultClass.COMPACTION,
        "compaction-alters-a-record",
        "a merged file repeats the first record of a batch instead of the others, and is not compared",
        (
            "sinks.files.merged_file",
            "_written",
            "batch.replace_schema_metadata(None)",
            "batch.replace_schema_metadata(None).take(pa.array([0] * batch.num_rows, pa.int64()))",
        ),
        _UNCHECKED,
    ),
    fault(
        FaultClass.COMPACTION,
        "compaction-doubles-a-file",
        "the tombstone of a compaction omits a file whose records were merged",
        (
            "pipeline.maintenance.compaction_source",
            "_CompactedExtraction.tombstone",
            "build_tombstone(identity, 'compact', compacted.base, self._published, self._superseded, ())",
            "build_tombstone(identity, 'compact', compacted.base, self._published, self._superseded[:-1], ())",
        ),
    ),
    fault(
        FaultClass.COMPACTION,
        "compacted-files-go-before-done",
        "a run deletes the files that a published tombstone names, although its sequence is not done",
        (
            "pipeline.maintenance.delete_superseded_files",
            "delete_superseded",
            "min(state.done_epoch, ended, oldest.done_epoch(bucket, state.dataset_urn))",
            "1 << 62",
        ),
    ),
    fault(
        FaultClass.COMPACTION,
        "compacted-files-are-missed",
        "the audit does not know that compacted files were deleted with their tombstone",
        (
            "app.auditing.files.missing_files",
            "missing_files",
            "compacted.may_include(path, epoch)",
            "False",
        ),
    ),
)
