"""Faults to be planted: operator actions that lose something, or after which the audit does not see it."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_WALK = ("tests/unit/app/admin/test_actions_by_incarnation.py",)
_ACCEPTS = ("tests/unit/app/admin/test_accept.py", *_WALK)

OPERATORS = (
    fault(
        FaultClass.OPERATOR,
        "accept-skips-nothing",
        "what an accepted sequence has not published is not recorded as skipped",
        ("stores.operator.operator_actions", "accept", "not_published(sequence)", "()"),
        tests=_ACCEPTS,
    ),
    fault(
        FaultClass.OPERATOR,
        "accept-skips-the-whole-sequence",
        "all of an accepted sequence is recorded as skipped, also what is published",
        (
            "app.admin.abandon_datasets",
            "not_published",
            "window.difference(Branches(files, rows).joined(incarnation).covered)",
            "window",
        ),
        tests=_ACCEPTS,
    ),
    fault(
        FaultClass.OPERATOR,
        "quarantined-counts-as-exact",
        "the audit is exact though a sequence is quarantined",
        (
            "app.auditing.audit",
            "audit_store",
            "result.gaps or result.pending or result.unknown_files_count or result.orphaned_files_count"
            " or result.unreadable",
            "result.gaps or result.unknown_files_count or result.orphaned_files_count or result.unreadable",
        ),
        tests=_WALK,
    ),
    fault(
        FaultClass.OPERATOR,
        "abandoned-files-stay",
        "an abandoned sequence leaves what it has published",
        (
            "stores.operator.operator_actions",
            "_abandon",
            'for step in steps:\n    require_success(step_name(step), "undo", step.undo())',
        ),
        tests=_WALK,
    ),
    fault(
        FaultClass.OPERATOR,
        "skipped-positions-stay-skipped",
        "positions that are read again after a watermark was set back stay recorded as skipped",
        (
            "protocol.audit_expected_positions",
            "reach_after_setting",
            "skipped = [part for skip in skipped for part in _part_before(skip, partition, at, incarnation)]",
        ),
        tests=("tests/spec/test_set_model.py", *_WALK),
    ),
    fault(
        FaultClass.OPERATOR,
        "rebucket-forgets-where-datasets-began",
        "with another number of buckets a dataset's first position is forgotten",
        (
            "protocol.next_log_record",
            "beginnings",
            "within[bucket_of(urn)].append(replace(state, schemas=ids[urn]) if urn in ids else state)",
            "within[bucket_of(urn)].append(replace(state, origin={}, skipped=()))",
        ),
        tests=_WALK,
    ),
    fault(
        FaultClass.OPERATOR,
        "retained-files-are-gaps",
        "the audit takes what retention has deleted for missing",
        (
            "app.auditing.audit",
            "_Audit.dataset",
            "checked.coverage[checked.key(replaced.incarnation)].replace(replaced)",
        ),
        tests=_WALK,
    ),
    fault(
        FaultClass.OPERATOR,
        "deleted-files-of-the-log-not-missed",
        "files that the log names and that are gone are not missed",
        (
            "app.auditing.audit",
            "_Audit.dataset",
            "missing_files(logged, folder.paths, folder.superseded_paths, merged) if folder.is_read else []",
            "[]",
        ),
        tests=("tests/unit/app/auditing/test_missing_files.py",),
    ),
)
