"""Faults to be planted: unsynced changes count as durable."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

SYNCS = (
    fault(
        FaultClass.SYNC,
        "tree-synced-again",
        "a syncfs that fails is asked again, and the second answer is believed",
        (
            "fs.local_disk.local_file_system",
            "LocalFileSystem.sync_tree",
            "if self._durable:\n    self._calls.syncfs(root)",
            "if self._durable:\n"
            "    try:\n        self._calls.syncfs(root)\n    except OSError:\n        self._calls.syncfs(root)",
        ),
    ),
    fault(
        FaultClass.SYNC,
        "file-sync-logged",
        "a file whose fsync fails is closed as if it were durable",
        (
            "fs.local_disk.local_file_system",
            "LocalStagedWriter.close_file",
            "self._calls.fsync(fd)",
            "with contextlib.suppress(OSError):\n    self._calls.fsync(fd)",
        ),
    ),
    fault(
        FaultClass.SYNC,
        "unsynced-attempts-succeed",
        "attempts whose staged files could not be synced keep their success",
        (
            "engine.reading.ingest",
            "_with_error",
            "replace(state, outcome=TaskOutcome.FAILED, branches=(), error=error)",
            "replace(state, error=error)",
        ),
    ),
    fault(
        FaultClass.SYNC,
        "put-whose-name-is-unsynced",
        "a put counts though the folder that it was made in could not be synced",
        ("fs.local_disk.local_file_system", "LocalFileSystem._sync_name", "put.error = error", "pass"),
    ),
    fault(
        FaultClass.SYNC,
        "set-aside-unsynced",
        "a rebuild ends before what it took out of the output is durably out of it",
        (
            "app.admin.rebuild_store",
            "_set_aside",
            '{path.rpartition("/")[0] for path in paths}',
            "()",
        ),
    ),
    fault(
        FaultClass.SYNC,
        "store-unsynced-beside-output",
        "of a job on two file systems only staging and output are synced",
        (
            "fs.separate_store",
            "TwoFileSystems.sync",
            "if of_part:\n    part.sync(of_part, root)",
            "if of_part and part is self._of_data:\n    part.sync(of_part, root)",
        ),
    ),
    fault(
        FaultClass.SYNC,
        "store-written-after-output",
        "a run publishes first, and then writes to the store what it has published",
        (
            "engine.committing.bucket_committer",
            "BucketCommitter.commit_ready",
            "self._settings.at_least_once",
            "True",
        ),
    ),
)
