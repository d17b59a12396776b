"""Faults to be planted: readers of snapshots get a part, or uncommitted records."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

READERS = (
    fault(
        FaultClass.READER,
        "snapshot-not-looked-at-again",
        "a reader does not look whether its snapshot is kept once it has listed the files",
        ("app.reading.snapshot_reader", "Snapshot.paths", "self._require_unexpired()"),
        tests=("tests/unit/app/reading/test_snapshot_reader.py",),
    ),
    fault(
        FaultClass.READER,
        "files-of-any-epoch",
        "a reader gets what is published, whether or not its sequence is done at the snapshot",
        ("app.reading.live_files", "live_files", "published_epoch(name) <= done_epoch", "True"),
    ),
    fault(
        FaultClass.READER,
        "half-a-job-in-a-snapshot",
        "a snapshot shows the buckets that are done of a job that is published as a whole",
        (
            "stores.snapshots.snapshot_manifests",
            "_next_buckets",
            "dict(former) if repeats else {**former, **now}",
            "{**former, **now}",
        ),
        tests=("tests/unit/app/reading/test_snapshot_reader.py",),
    ),
    fault(
        FaultClass.READER,
        "snapshot-of-what-is-not-durable",
        "a snapshot names what a log says that is not durable yet",
        (
            "stores.snapshots.snapshot_deltas",
            "write_snapshot_entry",
            "yield from log.make_durable()",
            "yield from ()",
        ),
        tests=("tests/unit/stores/snapshots/test_durable_snapshots.py",),
    ),
    fault(
        FaultClass.READER,
        "files-held-for-the-newest-snapshot",
        "files that were replaced go though an older snapshot shows them",
        (
            "stores.snapshots.snapshot_retention",
            "OldestSnapshot._done_epochs",
            "min((name for name in names if name is not None), default=None)",
            "max((name for name in names if name is not None), default=None)",
        ),
        tests=("tests/unit/app/reading/test_snapshot_reader.py",),
    ),
    fault(
        FaultClass.READER,
        "retired-for-older-snapshots-too",
        "a reader of an older snapshot lacks what was replaced after it",
        ("app.reading.live_files", "live_files", "published_epoch(entry.name) <= done_epoch", "True"),
        ("app.reading.live_files", "live_files", "superseded_by(stones, done_epoch)", "superseded_by(stones, 1 << 62)"),
    ),
)
