"""Faults to be planted: needed data is deleted, too."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

TRUNCATIONS = (
    fault(
        FaultClass.TRUNCATION,
        "truncated-to-the-newest",
        "a log is cut below its newest segment, whether or not that is a checkpoint",
        (
            "stores.logs.commit_log",
            "CommitLog._delete_older",
            "fold.previous_checkpoint",
            "self._last if fold.previous_checkpoint else 0",
        ),
    ),
    fault(
        FaultClass.TRUNCATION,
        "cleaned-up-with-the-neighbours",
        "once a dataset is published, the attempts at all of its bucket's datasets are cleaned up",
        (
            "engine.committing.delete_probes_and_task_output",
            "remove_task_output",
            "attempts.get(unit, ())",
            "[each for known in attempts if known[:5] == unit[:5] for each in attempts[known]]",
        ),
    ),
    fault(
        FaultClass.TRUNCATION,
        "mark-deleted",
        "who puts a mark takes it away with the older ones of its kind",
        ("stores.folders.run_markers", "put_run_marker", "other_epoch < epoch", "other_epoch <= epoch"),
    ),
    fault(
        FaultClass.TRUNCATION,
        "one-run-fewer-kept",
        "of the runs whose tables are kept, one more is deleted",
        ("stores.history.retention", "expire_history", "runs[: -retention.tables]", "runs[: 1 - retention.tables]"),
    ),
    fault(
        FaultClass.TRUNCATION,
        "swept-with-the-neighbours",
        "the sweep of a bucket's attempts takes those of its neighbours, too",
        (
            "stores.folders.staging",
            "sweep_epoch",
            "[folder for group in list_attempts(fs, staging_root, epoch, bucket).values() for folder in group]",
            "[folder for near in range(bucket + 2)"
            " for group in list_attempts(fs, staging_root, epoch, near).values() for folder in group]",
        ),
    ),
)
