"""Exactly-once ingestion of thousands of datasets on Spark, with a distributed commit step store.

Start with `Job.from_file(path).run()`. The parts of the design (`CommitStep`, `CommitStepStore`, `Source`, ...) work by
themselves, also without Spark or a Kafka client installed. `app` combines them, `engine` defines a run, `spark`
executes it, `protocol` holds the rules. Importing this package must not import Spark or a client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distcommit.app.jobs.job import Job
    from distcommit.app.reading.snapshot_reader import Snapshot, read
    from distcommit.app.reading.spark_data_source import register_data_source
    from distcommit.core.errors import DistcommitError, RecordError
    from distcommit.core.interfaces.commit_step import CommitStep, Lost, StepContext, Verdict
    from distcommit.core.interfaces.committer import (
        AlreadyCommitted,
        CommitRequest,
        Committed,
        FailedForGood,
        RetryLater,
        SealRequest,
        SinkCommitter,
    )
    from distcommit.core.interfaces.constructs import (
        BranchCounts,
        Converted,
        Converter,
        ForkOperator,
        RowChecker,
        TaskCheck,
        TaskChecker,
    )
    from distcommit.core.interfaces.ledger import LedgerRow
    from distcommit.core.interfaces.provenance import Provenance
    from distcommit.core.interfaces.sink import (
        AttemptIdentity,
        Origin,
        Prepared,
        Sink,
        SinkWriter,
        StagingArea,
    )
    from distcommit.core.interfaces.source import Extraction, Extractor, Source, SourceState
    from distcommit.core.interfaces.source_table import Extract, TableType
    from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
    from distcommit.core.watermark import Watermark
    from distcommit.core.work_units import DatasetPlan, WorkUnit
    from distcommit.fs.local_disk.local_file_system import LocalFileSystem
    from distcommit.sinks.base import idempotent_commit as ledgers
    from distcommit.sinks.base.aggregated_committer import AggregatedCommitter
    from distcommit.sinks.base.committer_sink import CommitterSink
    from distcommit.sinks.base.writer_sink import RecordWriter, WriterSink
    from distcommit.sinks.databases.table_committer import RefusedError
    from distcommit.steps.commit_sequence import CommitSequence, CommitStepStore
    from distcommit.steps.rename_step import FsRenameCommitStep
    from distcommit.steps.step_registry import register
    from distcommit.steps.watermark_step import HighWatermarkCommitStep
    from distcommit.stores.logs.commit_step_store import LogCommitStepStore

__all__ = [
    "AggregatedCommitter",
    "AlreadyCommitted",
    "AttemptIdentity",
    "BranchCounts",
    "CommitRequest",
    "CommitSequence",
    "CommitStep",
    "CommitStepStore",
    "Committed",
    "CommitterSink",
    "Converted",
    "Converter",
    "DatasetPlan",
    "DistcommitError",
    "Extract",
    "Extraction",
    "Extractor",
    "FailedForGood",
    "FixedSetting",
    "ForkOperator",
    "FsRenameCommitStep",
    "HighWatermarkCommitStep",
    "Job",
    "LedgerRow",
    "LocalFileSystem",
    "LogCommitStepStore",
    "Lost",
    "Origin",
    "Prepared",
    "Provenance",
    "RecordError",
    "RecordWriter",
    "RefusedError",
    "RetryLater",
    "RowChecker",
    "SealRequest",
    "Sink",
    "SinkCommitter",
    "SinkWriter",
    "Snapshot",
    "Source",
    "SourceFact",
    "SourceState",
    "StagingArea",
    "StepContext",
    "TableType",
    "TaskCheck",
    "TaskChecker",
    "Verdict",
    "Watermark",
    "WorkUnit",
    "WriterSink",
    "ledgers",
    "read",
    "register",
    "register_data_source",
]

_MODULES = {
    "app.jobs.job": "Job",
    "app.reading.spark_data_source": "register_data_source",
    "app.reading.snapshot_reader": "Snapshot read",
    "core.errors": "DistcommitError RecordError",
    "core.interfaces.committer": "AlreadyCommitted CommitRequest Committed FailedForGood RetryLater SealRequest"
    " SinkCommitter",
    "core.interfaces.constructs": "BranchCounts Converted Converter ForkOperator RowChecker TaskCheck TaskChecker",
    "core.interfaces.source_table": "Extract TableType",
    "core.interfaces.ledger": "LedgerRow",
    "core.interfaces.sink": "AttemptIdentity Origin Prepared Sink SinkWriter StagingArea",
    "core.interfaces.source": "Extraction Extractor Source SourceState",
    "core.interfaces.commit_step": "CommitStep Lost StepContext Verdict",
    "core.interfaces.provenance": "Provenance",
    "core.records.fixed_settings": "FixedSetting SourceFact",
    "core.watermark": "Watermark",
    "core.work_units": "DatasetPlan WorkUnit",
    "fs.local_disk.local_file_system": "LocalFileSystem",
    "sinks.base.aggregated_committer": "AggregatedCommitter",
    "sinks.base.committer_sink": "CommitterSink",
    "sinks.base.idempotent_commit": "ledgers",
    "sinks.base.writer_sink": "RecordWriter WriterSink",
    "sinks.databases.table_committer": "RefusedError",
    "steps.step_registry": "register",
    "steps.rename_step": "FsRenameCommitStep",
    "steps.commit_sequence": "CommitSequence CommitStepStore",
    "steps.watermark_step": "HighWatermarkCommitStep",
    "stores.logs.commit_step_store": "LogCommitStepStore",
}
"""Public names by module. Each module is imported on first use: importing the package itself takes no time, so that the
command handles Ctrl-C from its first moment."""


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            imported = import_module(f"distcommit.{module}")
            return getattr(imported, name, imported)  # `ledgers` is a module
    if name == "Cut":
        raise AttributeError("distcommit.Cut was renamed: use distcommit.Snapshot")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
