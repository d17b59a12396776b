"""Exactly-once ingestion of thousands of datasets on Spark, with a distributed commit step store.

Start with `Job.from_file(path).run()`. The parts of the design (`CommitStep`, `CommitStepStore`, `Source`, ...) work by
themselves, also without Spark or a Kafka client installed. `app` combines them, `engine` defines a run, `spark`
executes it, `protocol` holds the rules. Importing this package must not import Spark or a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distcommit.core.errors import DistcommitError, RecordError
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
from distcommit.core.interfaces.extract_description import Extract, TableType
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import (
    AttemptIdentity,
    Origin,
    Prepared,
    Sink,
    SinkWriter,
    StagingArea,
)
from distcommit.core.interfaces.source import Extraction, Extractor, Source, SourceState
from distcommit.core.interfaces.steps import CommitStep, Lost, StepContext, Verdict
from distcommit.core.provenance import Provenance
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.watermark import Watermark
from distcommit.core.work import DatasetPlan, WorkUnit
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.sinks.base import ledgers
from distcommit.sinks.base.aggregated_commit import AggregatedCommitter
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.writer_sink import RecordWriter, WriterSink
from distcommit.sinks.databases.table_committer import RefusedError
from distcommit.steps.registry import register
from distcommit.steps.rename import FsRenameCommitStep
from distcommit.steps.sequence import CommitSequence, CommitStepStore
from distcommit.steps.watermark import HighWatermarkCommitStep
from distcommit.stores.logs.commit_step_store import LogCommitStepStore

if TYPE_CHECKING:
    from distcommit.app.job import Job
    from distcommit.app.reading.data_source import register_data_source
    from distcommit.app.reading.readers import Snapshot, read

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


def __getattr__(name: str) -> object:
    """Import `Job`, `read` and `Snapshot` on first use, because they import sources, sinks and file systems."""
    if name == "Job":
        from distcommit.app.job import Job  # noqa: PLC0415

        return Job
    if name in ("read", "Snapshot"):
        from distcommit.app.reading import readers  # noqa: PLC0415

        return getattr(readers, name)
    if name == "register_data_source":
        from distcommit.app.reading.data_source import register_data_source  # noqa: PLC0415

        return register_data_source
    if name == "Cut":
        raise AttributeError("distcommit.Cut was renamed: use distcommit.Snapshot")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
