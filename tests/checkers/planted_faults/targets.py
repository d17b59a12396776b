"""Faults to be planted: commits to targets that have a row of the dataset, other branches, groups, or maintenance."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_LEDGERS = (
    "tests/unit/sinks/base/test_idempotent_commit.py",
    "tests/contract/test_sqlite_sink.py",
    "tests/unit/sinks/sqlite/test_sqlite.py",
)
_WHOLES = ("tests/unit/engine/committing/test_atomic_groups.py",)
_DELTA = ("tests/unit/sinks/delta/test_delta.py",)
_DELTA_CONTRACT = ("tests/contract/test_delta.py",)

TARGETS = (
    fault(
        FaultClass.LATER_EPOCH,
        "base-is-forgotten",
        "the row of a later epoch does not say which epoch was there before, which taking it back forgets",
        ("sinks.base.idempotent_commit", "committed", "row.epoch", "0"),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.LATER_EPOCH,
        "any-base-will-do",
        "a later epoch is committed whatever the target has of the dataset",
        ("sinks.base.idempotent_commit", "answered", "not request.bases or epoch in request.bases", "True"),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.LATER_EPOCH,
        "covered-by-the-newest-epoch-alone",
        "the row of a later epoch forgets what earlier ones have committed",
        ("sinks.base.idempotent_commit", "committed", "added(*row.covered, *covered)", "added(*covered)"),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.LATER_EPOCH,
        "row-outside-the-savepoint",
        "the ledger's row is written though the rows of the request were refused",
        (
            "sinks.databases.table_committer",
            "TableCommitter._commit",
            "with self.savepoint():\n    self.load(request, rows.get(key))\n    self.record(row)",
            "self.record(row)\nwith self.savepoint():\n    self.load(request, rows.get(key))",
        ),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.LATER_EPOCH,
        "newer-row-counts-as-this-commit",
        "a row above the request is taken for the commit that is asked for",
        (
            "sinks.base.idempotent_commit",
            "answered",
            "row is not None and (epoch > request.epoch or _is_another(row, request))",
            "row is not None and _is_another(row, request)",
        ),
        ("sinks.base.idempotent_commit", "answered", "epoch == request.epoch", "epoch >= request.epoch > 0"),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.BRANCH,
        "one-row-for-all-branches",
        "a commit of a branch is answered by the row of the main one",
        (
            "sinks.databases.table_committer",
            "TableCommitter._commit",
            "(request.dataset_urn, request.branch)",
            '(request.dataset_urn, "main")',
        ),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.BRANCH,
        "rows-of-all-branches-alike",
        "rows of two branches of a dataset have one tag, so that those of both are taken back",
        ("sinks.databases.table_sink", "tag_of", "(store_id, branch, dataset_urn)", "(store_id, dataset_urn)"),
        tests=_LEDGERS,
    ),
    fault(
        FaultClass.BRANCH,
        "ledger-file-by-dataset",
        "the ledger of a lake's table keeps one row of a dataset, whatever its branches",
        (
            "sinks.table_formats.ledger_files",
            "_by_key",
            "{(row.dataset_urn, row.branch): row for row in rows}",
            '{(row.dataset_urn, "main"): row for row in rows}',
        ),
        tests=_DELTA_CONTRACT,
    ),
    fault(
        FaultClass.BRANCH,
        "base-of-the-newest-epoch",
        "a branch of which a run had nothing is expected at the dataset's newest epoch",
        (
            "engine.committing.build_commit_sequence",
            "_targets",
            "state.bases(name)",
            "(state.done_epoch,)",
        ),
        tests=("tests/unit/engine/driver/test_branches_over_runs.py",),
    ),
    fault(
        FaultClass.BRANCH,
        "taken-back-in-another-branch",
        "taking a commit back changes the row of the main branch",
        (
            "sinks.databases.table_committer",
            "TableCommitter.withdraw",
            "(request.dataset_urn, request.branch)",
            '(request.dataset_urn, "main")',
        ),
        tests=_LEDGERS[1:],
    ),
    fault(
        FaultClass.BRANCH,
        "allowed-again-in-another-branch",
        "allowing a commit again changes the row of the main branch",
        (
            "sinks.databases.table_committer",
            "TableCommitter.allow",
            "(request.dataset_urn, request.branch)",
            '(request.dataset_urn, "main")',
        ),
        tests=_LEDGERS[1:],
    ),
    fault(
        FaultClass.GROUP,
        "lost-member-holds-nobody",
        "a group is committed without a member that is lost",
        ("steps.step_execution", "_due", "(outcomes.failed, outcomes.lost)", "(outcomes.failed,)"),
        tests=_WHOLES,
    ),
    fault(
        FaultClass.GROUP,
        "undecoded-member-holds-nobody",
        "a group is committed without a member whose infos can not be decoded",
        ("steps.sink_step", "SinkCommitStep._commit", "errors and is_complete", "False"),
        tests=("tests/unit/steps/test_sink_step.py",),
    ),
    fault(
        FaultClass.GROUP,
        "group-goes-one-by-one",
        "where the commit of a group breaks, its members are committed by themselves",
        (
            "steps.step_execution",
            "_execute_whole",
            "return [step_error(error, step) for step in steps]",
            "return _execute(kind, steps, verdicts)",
        ),
        tests=_WHOLES,
    ),
    fault(
        FaultClass.GROUP,
        "group-without-who-has-to-wait",
        "a group is committed without a member that can not be committed yet",
        (
            "sinks.databases.table_committer",
            "_check_committable",
            "((FailedForGood, (Committed, RetryLater)), (RetryLater, (Committed,)))",
            "((FailedForGood, (Committed, RetryLater)),)",
        ),
        tests=_LEDGERS[2:],
    ),
    fault(
        FaultClass.GROUP,
        "lake-commits-half-a-group",
        "a Delta table takes the members of a group that can be committed",
        (
            "sinks.table_formats.committer",
            "DataFileCommitter.decide",
            "batch.is_atomic and refused is not None",
            "False",
        ),
        tests=_DELTA_CONTRACT,
    ),
    fault(
        FaultClass.MAINTENANCE,
        "committed-while-its-files-are-live",
        "a commit counts as done as long as the table has its data files, not by the ledger",
        (
            "sinks.table_formats.committer",
            "DataFileCommitter.decide",
            "answer or answered(row, request)",
            "answer or (answered(committed(row, request, ()), request)"
            " if self.live_files(table, {file['path'] for file in files_of(request)}) else None)",
        ),
        tests=("tests/unit/sinks/iceberg/test_iceberg.py",),
    ),
    fault(
        FaultClass.MAINTENANCE,
        "lost-before-the-ledger-is-asked",
        "a commit whose files were compacted away is lost, though the ledger has it",
        (
            "sinks.table_formats.committer",
            "DataFileCommitter.decide",
            "answer or answered(row, request)",
            "answer or self._missing(table, request) or answered(row, request)",
        ),
        tests=_DELTA_CONTRACT,
    ),
    fault(
        FaultClass.MAINTENANCE,
        "emptied-whatever-the-ledger-says",
        "a recreated table that has rows of another dataset is to be dropped, says the refusal of a commit",
        ("sinks.table_formats.committer", "DataFileCommitter._emptied", "self.has_ledger(table)", "False"),
        tests=_DELTA,
    ),
    fault(
        FaultClass.MAINTENANCE,
        "any-table-of-that-name",
        "what was written for a table is committed to another one of its name",
        (
            "sinks.table_formats.committer",
            "DataFileCommitter.decide",
            "self._recreated(batch.name, table, request)",
            "None",
        ),
        tests=_DELTA,
    ),
    fault(
        FaultClass.MAINTENANCE,
        "taken-back-whatever-is-live",
        "a commit is taken back though its files were compacted into others",
        (
            "sinks.delta.committer",
            "DeltaCommitter.put",
            'if removed:\n    self._check_live(table, name, {file["path"] for file in removed})',
        ),
        tests=_DELTA,
    ),
)
