"""Faults to be planted: a rebuild beside a commit or an abandon in progress."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

REBUILDS = (
    fault(
        FaultClass.REBUILD,
        "rebuild-leaves-others-their-files",
        "a rebuild looks at the output while zombies have staged files that they may publish",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "sweep_epoch(fs, roots.staging, staged, bucket)\ntick()",
            "tick()",
        ),
    ),
    fault(
        FaultClass.REBUILD,
        "rebuild-counts-what-is-being-abandoned",
        "files of a sequence that is being abandoned stay in the output of a rebuilt store",
        ("app.admin.rebuild_store", "rebuild_store", "_set_aside(store, epoch, plan.revoked, tick)", ""),
    ),
    fault(
        FaultClass.REBUILD,
        "rebuild-takes-over-without-a-fence",
        "a rebuild does not fence the buckets before it looks at what is published",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "run_alone(fence_bucket(store.bucket_log(bucket, epoch), epoch, run_id))",
            "None",
        ),
    ),
    fault(
        FaultClass.REBUILD,
        "rebuild-writes-whoever-came-since",
        "a rebuild does not look whether its states were written, or somebody was first",
        ("app.admin.rebuild_store", "_write", "for state in states:\n    _require_written(state, epoch, fold)", ""),
        ("app.admin.rebuild_store", "_write", "require_fence(fold, epoch, log.folder)", ""),
        tests=("tests/unit/app/admin/rebuild_store/test_concurrent_rebuild.py",),
    ),
    fault(
        FaultClass.REBUILD,
        "rebuild-keeps-snapshots",
        "snapshots stay whose files a rebuild sets aside",
        ("app.admin.rebuild_store", "rebuild_store", "delete_snapshots(store)", ""),
        tests=("tests/unit/app/admin/rebuild_store/test_rebuild_damaged_logs.py",),
    ),
)
