"""Plausible wrong products: each omits one rule of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.checkers.mutant_sources import Mutant, diff_of, path_of
from tests.checkers.operations import Change, changed

_FOLD, _FOLDING, _VALIDITY = "protocol.log_state", "protocol.record_effects", "protocol.record_validity"
_NEXT, _LOG, _VIEW, _FENCING = (
    "protocol.next_log_record",
    "stores.logs.commit_log",
    "stores.logs.log_view",
    "stores.logs.fencing",
)
_COMMITTER, _RECOVER, _INGEST, _PLANNER = (
    "engine.committing.bucket_committer",
    "engine.committing.recover",
    "engine.reading.ingest",
    "engine.planning.plan_partition",
)
_STAGING, _BY_HAND = "stores.folders.staging", "stores.operator.operator_actions"
_RENAME, _EXECUTION, _PUBLISHING = "steps.rename_step", "steps.step_execution", "steps.bulk_rename"

_NOT_FENCED = "call require_fence"

NAMED: dict[str, tuple[str, Sequence[Change]]] = {
    "seal-after-the-first-step": (
        "each sequence's first step is executed before the sequence is sealed",
        [
            Change(
                *(_COMMITTER, "BucketCommitter._seal", "call settle"),
                before="""
                for early in sequences:
                    for step in list(load_steps(early.steps, self._context))[:1]:
                        step.execute()
                """,
            )
        ],
    ),
    "target-exists-is-done": (
        "whatever is at a step's target is taken for its proof",
        [
            Change(
                *(_RENAME, "FsRenameCommitStep.judge", "if published _is_ours"),
                before="if published is not None:\n    return Verdict.DONE",
            )
        ],
    ),
    "act-on-the-put": (
        "a put that succeeds counts, without a look at the fold",
        [
            Change(
                *(_LOG, "CommitLog.settle", "if won"),
                before="""
                self._apply(number, Segment(self.epoch, self._writer_id, record), fold)
                return fold
                """,
            )
        ],
    ),
    "no-closed-epoch": (
        "a dataset that was sealed and closed in an epoch may be sealed in it again",
        [Change(_FOLDING, "apply", "keyword closed_epoch sequence")],
    ),
    "watermark-without-compare": (
        "a sequence is sealed whatever the stored watermark is",
        [Change(_VALIDITY, "may_seal", "compare watermark low", instead="True")],
    ),
    "watermark-before-publishing": (
        "with at-least-once, watermarks move before what they stand for is published",
        [
            Change(
                *(_COMMITTER, "BucketCommitter._publish_unsealed", "call Execution"),
                before="yield from self._seal(sequences)",
            )
        ],
    ),
    "clean-up-before-done": (
        "task output is cleaned up once steps are executed, before DONE",
        [
            Change(
                *(_COMMITTER, "BucketCommitter._execute_and_close", "call _close"),
                before="""
                urns = {name.dataset_urn for name in done}
                mine = [plan for urn, plan in self._open._plans.items() if urn in urns]
                remove_task_output(self._settings, self._bucket, mine)
                """,
            )
        ],
    ),
    "clean-up-of-the-unsealed": (
        "task output of a dataset is cleaned up as soon as it is sealed",
        [
            Change(
                *(_COMMITTER, "BucketCommitter._execute_and_close", "call build_execution"),
                before="remove_task_output(self._settings, self._bucket, list(self._open._plans.values()))",
            )
        ],
    ),
    "done-before-effects": (
        "sequences are closed before their steps are executed",
        [
            Change(
                *(_COMMITTER, "BucketCommitter._execute_and_close", "call build_execution"),
                before="yield from self._close([sequence_name(sequence) for sequence in sequences])",
            )
        ],
    ),
    "no-fence-for-intent": (
        "a run that was fenced may still seal",
        [
            Change(_VALIDITY, "rejection_reason", "call _not_newest in case Intent", instead='""'),
            Change(_COMMITTER, "BucketCommitter._seal", _NOT_FENCED),
            Change(_COMMITTER, "BucketCommitter.commit_ready", _NOT_FENCED),
        ],
    ),
    "no-fence-for-done": (
        "a run that was fenced may still close",
        [
            Change(_VALIDITY, "rejection_reason", "call _not_newest in case Done", instead='""'),
            Change(_COMMITTER, "BucketCommitter._close", _NOT_FENCED),
        ],
    ),
    "fence-by-number": (
        "a run takes the job log's newest fence for its own, whoever put it",
        [
            Change(_NEXT, "fence_job", "compare fence_run_id", instead="False"),
            Change(_FENCING, "fence_job", "compare fence_run_id", instead="fold.fence_epoch == 0"),
        ],
    ),
    "no-replay": (
        "what older runs sealed is not replayed before planning",
        [Change(_RECOVER, "_recover_bucket", "call pending", instead="False")],
    ),
    "held-without-decision": (
        "held sequences are executed though nobody decided that they are",
        [Change(_COMMITTER, "BucketCommitter.replay", "compare decided_epochs", instead="False")],
    ),
    "drop-without-own-fence": (
        "held sequences are dropped on a view of the job log without the run's own fence",
        [Change(_RECOVER, "_job_fold", "compare fence_run_id", instead="False")],
    ),
    "checkpoint-forgets-decisions": (
        "a checkpoint keeps no decisions",
        [Change(_FOLD, "Fold.checkpoint", "call tuple decided_epochs", instead="()")],
    ),
    "sweep-whatever-is-pending": (
        "task output of older runs is swept whether or not its sequences are done",
        [Change(_STAGING, "swept_epochs", "compare older open_epochs", instead="True")],
    ),
    "lost-is-done": (
        "a step of which neither source nor target is there is taken for done",
        [Change(_RENAME, "FsRenameCommitStep.judge", "return Lost source target", instead="return Verdict.DONE")],
    ),
    "lost-is-executed": (
        "a LOST step does not stop its sequence",
        [
            Change(_EXECUTION, "_execute_kind", "call setdefault answer lost"),
            Change(_RENAME, "FsRenameCommitStep.after_failed_rename", "call isinstance Lost", instead="False"),
        ],
    ),
    "row-before-sync": (
        "task states are published while the staged files they name are not synced",
        [Change(_INGEST, "_IngestTask._put_states", "call sync_tree")],
    ),
    "list-once-fold": (
        "a fold counts without a listing made after its last read",
        [
            Change(
                *(_VIEW, "LogView.refresh", "if missing None"),
                before="if missing is None and self._fold is not None:\n    return self._fold",
            )
        ],
    ),
    "genesis-less-log": (
        "a log begins without a segment, so that an emptied one is a new one",
        [
            Change(_LOG, "CommitLog.create", "call put_if_absent"),
            Change(_VIEW, "LogView.refresh", "compare _base listed", instead="self._base in {0, *listed}"),
            Change(_VIEW, "LogView.refresh", "compare max _last", instead="max(listed, default=0) <= self._last"),
            Change(_VIEW, "LogView._read_from_newest_checkpoint", "call max", instead="max(listed, default=0)"),
            Change(
                *(_VIEW, "LogView._read_from_newest_checkpoint", "assign segment"),
                before="if number <= 0:\n    break",
            ),
        ],
    ),
    "set-leaves-closed-epoch": (
        "a watermark set by hand does not stop a plan that was made before it",
        [Change(_FOLDING, "_set", "keyword closed_epoch")],
    ),
    "ended-taken-for-granted": (
        "the drain takes ingest for ended without a look",
        [Change("engine.committing.drain", "_finish", "call ingest_ended", instead="True")],
    ),
    "sync-only-what-moved": (
        "folders of steps that are found done already are not synced before DONE",
        [
            Change(
                *(_PUBLISHING, "publish_all", "call sync"),
                before="""
                if verdicts:
                    moved = {index for index, verdict in enumerate(verdicts) if verdict is not Verdict.DONE}
                    groups = [group for group in groups if moved.intersection(group.indices)]
                """,
            )
        ],
    ),
    "folder-moved-with-more-in-it": (
        "a staged folder is renamed as a whole though it holds more than its task state says",
        [
            Change(_STAGING, "StagedFiles._has_all_of", "assign is_complete observed begin len"),
            Change(
                *(_STAGING, "StagedFiles._is_exactly", "compare zip _names_in"),
                instead="{*zip(names, [file.file_id for file in outputs])} <= {*self._names_in(folder).items()}",
            ),
        ],
    ),
    "folder-moved-under-other-names": (
        "a staged folder is renamed as a whole though its files have other names there than they are to have",
        [Change(_STAGING, "StagedFiles._has_all_of", "compare name final_name", instead="True")],
    ),
    "folder-moved-on-replay": (
        "replay renames staged folders as a whole, whatever else is in them",
        [Change(_PUBLISHING, "probe_all", "compare names final_names", instead="names is not None")],
    ),
    "folder-moved-unseen": (
        "what is in a folder that was renamed as a whole is not looked at",
        [Change(_PUBLISHING, "_Batch.move_folders.move", "call _missing_in", instead="[]")],
    ),
    "undo-leaves-zombies-their-files": (
        "an abandoned sequence's targets go before its staged files",
        [
            Change(_BY_HAND, "_abandon", "call withdraw", instead="step.undo()"),
            Change(_BY_HAND, "_abandon", "call undo", instead="step.withdraw()"),
        ],
    ),
    "quarantine-forgets-its-sequence": (
        "a quarantined sequence is planned anew",
        [
            Change(
                *(_PLANNER, "_plan", "compare status IDLE"),
                instead="stored_state[planned.dataset_urn].status is DatasetStatus.PENDING",
            )
        ],
    ),
}


def named_mutants(root: Path) -> list[Mutant]:
    """Return all named mutants of the sources below `root`.

    Raises:
        LookupError, TypeError: if an operation is not there exactly once: a changed product requires a changed mutant.
    """
    return [_named(root, name, *NAMED[name]) for name in NAMED]


def _named(root: Path, name: str, description: str, changes: Sequence[Change]) -> Mutant:
    sources, diffs = {}, []
    for module in dict.fromkeys(change.module for change in changes):
        path = path_of(module)
        before = (root / path).read_text(encoding="utf-8")
        sources[path] = changed(before, [change for change in changes if change.module == module])
        diffs.append(diff_of(path, before, sources[path]))
    return Mutant(f"{changes[0].module}:{changes[0].function}:named:{name}", description, sources, "\n".join(diffs))
