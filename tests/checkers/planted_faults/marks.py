"""Faults to be planted: marks in the output too early, too late, or not at all."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

MARKS = (
    fault(
        FaultClass.MARK,
        "clean-whatever-is-left",
        "a run that left something open marks the output as clean",
        ("stores.logs.fencing", "end_run", "Marker.CLEAN if clean else Marker.ENDED", "Marker.CLEAN"),
    ),
    fault(
        FaultClass.MARK,
        "rebuild-marked-after-its-fence",
        "a rebuild fences before it says in the output that it has begun",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "put_run_marker(fs, roots.output, epoch, Marker.REBUILD)\n_fence(store, epoch, run_id)",
            "_fence(store, epoch, run_id)\nput_mark(fs, roots.output, epoch, Marker.REBUILD)",
        ),
    ),
    fault(
        FaultClass.MARK,
        "rebuild-ends-before-it-has",
        "a rebuild marks its end before it has set aside what must not stay",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "_set_aside(store, epoch, plan.set_aside, tick)\n_end(store, epoch, user)\n"
            "put_run_marker(fs, roots.output, epoch, Marker.CLEAN)",
            "_end(store, epoch, user)\nput_mark(fs, roots.output, epoch, Marker.CLEAN)\n"
            "_set_aside(store, epoch, plan.set_aside, tick)",
        ),
    ),
    fault(
        FaultClass.MARK,
        "begun-once",
        "a run marks the output as begun only if there is no such mark, whatever run's that is",
        (
            "stores.logs.fencing",
            "begin_run",
            "put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)",
            "if not read_markers(store.fs, store.roots.output)[Marker.BEGAN]:\n"
            "    put_run_marker(store.fs, store.roots.output, epoch, Marker.BEGAN)",
        ),
    ),
    fault(
        FaultClass.MARK,
        "any-output",
        "a run does not look whether its output has been there for all older runs",
        ("stores.logs.fencing", "require_newest", "older_output(store)", '""'),
    ),
    fault(
        FaultClass.MARK,
        "any-log",
        "a run does not look whether a bucket's log still has what it had at the last cut",
        ("stores.logs.log_anchors", "require_head", "head is not None and not log.has(head)", "False"),
    ),
    fault(
        FaultClass.MARK,
        "claimed-without-a-look",
        "who claims a folder does not look whether another one was first",
        ("stores.folders.folder_ownership", "take_ownership", "read_owner(fs, root) or owner", "owner"),
    ),
    fault(
        FaultClass.MARK,
        "fenced-before-the-look",
        "a run fences the job log before it looks whether the store is the newest there is",
        (
            "stores.logs.fencing",
            "begin_run",
            "require_newest(store)\nepoch = fence_job(store, run_id)",
            "epoch = fence_job(store, run_id)\nrequire_newest(store)",
        ),
    ),
)
