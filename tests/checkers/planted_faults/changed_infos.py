"""Faults to be planted: changed commit infos that are lost, not used, or of another attempt."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_TESTS = ("tests/unit/engine/committing/test_changed_infos.py",)

CHANGED_INFOS = (
    fault(
        FaultClass.CHANGED_INFOS,
        "change-is-not-recorded",
        "infos that a committer has changed are lost with its process",
        (
            "engine.committing.bucket_committer",
            "BucketCommitter._execute_and_close",
            "yield from record_changed_steps(self.log, self._settings.epoch, executed, loaded, failed)",
            "frozenset()",
        ),
        tests=_TESTS,
    ),
    fault(
        FaultClass.CHANGED_INFOS,
        "progress-counts-as-failed-attempt",
        "a commit in parts is quarantined although each replay commits a part",
        (
            "engine.committing.record_commit_failures",
            "record_failures",
            "failure.outage or failure.needs_other_version or name in progressed",
            "failure.outage or failure.needs_other_version",
        ),
        tests=_TESTS,
    ),
    fault(
        FaultClass.CHANGED_INFOS,
        "change-of-another-attempt",
        "infos are recorded although another committer has changed those that they were made from",
        (
            "protocol.next_log_record",
            "change_steps",
            "opened.sequence == executed[name]",
            "any(opened.sequence.steps[index] != batch for index, batch in entry.steps.items())",
        ),
        tests=_TESTS,
    ),
    fault(
        FaultClass.CHANGED_INFOS,
        "change-of-a-fenced-run",
        "infos that a fenced run has changed count",
        (
            "protocol.record_validity",
            "rejection_reason",
            "_not_newest(record.epoch, fold) or _postponed_problem(record.sequences, fold)",
            "_postponed_problem(record.sequences, fold)",
        ),
        tests=("tests/spec/test_log_model.py",),
    ),
    fault(
        FaultClass.CHANGED_INFOS,
        "change-is-not-applied",
        "a retry uses the sealed infos although changed ones are durable",
        (
            "protocol.record_effects",
            "_change_steps",
            "replace(sequence, steps=steps)",
            "sequence",
        ),
        (
            "protocol.next_log_record",
            "change_steps",
            "opened.sequence == executed[name]",
            "opened.sequence == executed[name] and not opened.changes",
        ),
        tests=_TESTS,
    ),
)
