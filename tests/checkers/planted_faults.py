"""Faults to be planted: slips that somebody might make who does not know why the code stands as it does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.checkers.planting import Edit


class FaultClass(StrEnum):
    """What kind of slip it is."""

    SYNC = "sync"
    EPOCH = "epoch"
    VIEW = "view"
    NAME = "name"
    TRUNCATION = "truncation"
    ATTEMPT = "attempt"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: what is wrong with the product, and the edits that make it so."""

    name: str
    kind: FaultClass
    what: str
    edits: tuple[Edit, ...]


def _fault(kind: FaultClass, name: str, what: str, *edits: tuple[str, ...]) -> Planted:
    return Planted(name, kind, what, tuple(Edit(*edit) for edit in edits))


_LOG, _COMMITTER, _RECOVER, _INGEST = "stores.log", "engine.committer", "engine.recover", "engine.ingest"

_SYNCS = (
    _fault(
        FaultClass.SYNC,
        "tree-synced-again",
        "a syncfs that fails is asked again, and the second answer is believed",
        (
            "fs.local",
            "LocalFileSystem.sync_tree",
            "if self._durable:\n    self._calls.syncfs(root)",
            "if self._durable:\n"
            "    try:\n        self._calls.syncfs(root)\n    except OSError:\n        self._calls.syncfs(root)",
        ),
    ),
    _fault(
        FaultClass.SYNC,
        "file-sync-logged",
        "a file whose fsync fails is closed as if it were durable",
        (
            "fs.local",
            "LocalStagedWriter.close_file",
            "self._calls.fsync(fd)",
            "with contextlib.suppress(OSError):\n    self._calls.fsync(fd)",
        ),
    ),
    _fault(
        FaultClass.SYNC,
        "unsynced-attempts-succeed",
        "attempts whose staged files could not be synced keep their success",
        (
            _INGEST,
            "_IngestTask._publish_states",
            'failed = {"outcome": TaskOutcome.FAILED, "outputs": (), "commit_infos": (), "error": text}',
            'failed = {"error": text}',
        ),
    ),
    _fault(
        FaultClass.SYNC,
        "put-whose-name-is-unsynced",
        "a put counts though the folder that it was made in could not be synced",
        ("fs.local", "LocalFileSystem._sync_name", "put.error = error", "pass"),
    ),
    _fault(
        FaultClass.SYNC,
        "set-aside-unsynced",
        "a rebuild ends before what it took out of the output is durably out of it",
        (
            "app.rebuild",
            "_set_aside",
            '{path.rpartition("/")[0] for path in paths}',
            "()",
        ),
    ),
)

_EPOCHS = (
    _fault(
        FaultClass.EPOCH,
        "sweep-spares-the-pending-alone",
        "recovery sweeps what a quarantined sequence still needs",
        (
            "stores.staging",
            "swept_epochs",
            "{state.sequence.epoch for state in fold.datasets.values() if state.sequence is not None}",
            "{state.sequence.epoch for state in fold.pending() if state.sequence is not None}",
        ),
    ),
    _fault(
        FaultClass.EPOCH,
        "set-closes-the-epoch-before",
        "a watermark set by hand closes the epoch before the newest, so that a running plan may seal",
        (
            "protocol.fold",
            "_set",
            "max(fold.state_of(urn).closed_epoch, fold.fence_epoch)",
            "max(fold.state_of(urn).closed_epoch, fold.fence_epoch - 1)",
        ),
        (
            "protocol.next_record",
            "is_set",
            "state.closed_epoch >= fold.fence_epoch",
            "state.closed_epoch >= fold.fence_epoch - 1",
        ),
    ),
    _fault(
        FaultClass.EPOCH,
        "settled-by-any-epoch",
        "a dataset that any run has published counts as published by this one, and its attempts are cleaned up",
        (
            "engine.open_datasets",
            "OpenDatasets.settle",
            "fold.state_of(urn).done_epoch >= self._settings.epoch",
            "fold.state_of(urn).done_epoch > 0",
        ),
    ),
    _fault(
        FaultClass.EPOCH,
        "rebuild-spares-the-newest",
        "rebuilding leaves the newest run its staged files, which it may still publish",
        (
            "app.rebuild",
            "rebuild_store",
            "older < epoch",
            "older < epoch - 1",
        ),
    ),
    _fault(
        FaultClass.EPOCH,
        "decisions-forgotten-early",
        "decisions are forgotten as the run ends, though a bucket still holds a sequence of theirs",
        (
            "engine.run",
            "run",
            "recovered.oldest_held_epoch or settings.epoch",
            "settings.epoch",
        ),
    ),
)

_VIEWS = (
    _fault(
        FaultClass.VIEW,
        "lost-at-the-first-look",
        "a step is lost if one look at staged files and one at the target, taken one after the other, don't show it",
        (
            "steps.publishing",
            "probe_all",
            "steps[place].verify() if isinstance(answer, Lost) else answer",
            "answer",
        ),
    ),
    _fault(
        FaultClass.VIEW,
        "own-segment-whoever-won",
        "a log takes its own segment for what stands at a number, though another's put came first",
        (
            _LOG,
            "CommitLog.settling",
            "if won:\n    self._durable_to, self._own = number, (number, segment)",
            "self._own = (number, segment)\nif won:\n    self._durable_to = number",
        ),
    ),
    _fault(
        FaultClass.VIEW,
        "swept-on-the-fold-before-replay",
        "recovery sweeps by what was pending before it replayed",
        (_RECOVER, "_recover_bucket", "fold = log.refresh()", ""),
    ),
    _fault(
        FaultClass.VIEW,
        "rebuilt-from-a-first-look",
        "a rebuild takes what it saw before it fenced, and before it took the staged files of others away",
        (
            "app.rebuild",
            "rebuild_store",
            "known = known_states(store)\nplan = _plan(store, known, accept_gaps=accept_gaps)",
        ),
        (
            "app.rebuild",
            "rebuild_store",
            "claim_folders(store)",
            "claim_folders(store)\nknown = known_states(store)\nplan = _plan(store, known, accept_gaps=accept_gaps)",
        ),
    ),
    _fault(
        FaultClass.VIEW,
        "newest-by-an-older-fold",
        "whether the store is the newest there is, is judged by a fold from before the newest mark was read",
        (
            "stores.fencing",
            "newer_runs",
            "max(marks.values())",
            "max(read_marks(store.fs, store.roots.output).values())",
        ),
    ),
    _fault(
        FaultClass.VIEW,
        "abandoned-whatever-became-of-it",
        "who abandons a dataset undoes its steps though somebody has released it meanwhile",
        (
            "stores.by_hand",
            "abandon",
            "fold.sequence(_name(sequence)) is None or fold.state_of(urn).status is not DatasetStatus.REVOKING",
            "False",
        ),
    ),
)

_NAMES = (
    _fault(
        FaultClass.NAME,
        "moved-by-its-name",
        "a file of a moved folder is there if one of its name is",
        (
            "steps.publishing",
            "_is_in",
            "file_id != _MISSING and (not file_id or not step.file.file_id or file_id == step.file.file_id)",
            "file_id != _MISSING",
        ),
        (
            "steps.publishing",
            "_Batch._missing_in",
            "{steps[place].file.final_path[cut:]: steps[place].file.file_id for place in group.places} == there",
            "{steps[place].file.final_path[cut:] for place in group.places} == set(there)",
        ),
    ),
    _fault(
        FaultClass.NAME,
        "published-by-its-size",
        "whatever file of the right size is at the target is ours",
        (
            "steps.rename",
            "FsRenameCommitStep._is_ours",
            "found.is_folder or found.size_bytes != f.size_bytes",
            "found.is_folder",
        ),
        (
            "steps.rename",
            "FsRenameCommitStep._is_ours",
            "self.context.fs.checksum(path) == f.checksum",
            "found.size_bytes == f.size_bytes",
        ),
    ),
    _fault(
        FaultClass.NAME,
        "staged-by-its-name",
        "a staged file is there if one of its name is",
        (
            "stores.staging",
            "StagedFiles.has_all_of",
            "file_id != file.file_id and (file_id == _MISSING or (file_id and file.file_id))",
            "file_id == _MISSING",
        ),
    ),
    _fault(
        FaultClass.NAME,
        "abandoned-by-its-name",
        "abandoning takes away whatever file is at the target",
        (
            "steps.rename",
            "FsRenameCommitStep._remove",
            "found is not None and self._is_ours(path, found)",
            "found is not None",
        ),
    ),
    _fault(
        FaultClass.NAME,
        "folder-taken-with-all-in-it",
        "replay moves a staged folder as a whole that holds more than its steps",
        (
            "steps.publishing",
            "probe_all",
            "names == set(group.final_names(steps))",
            "names is not None and names >= set(group.final_names(steps))",
        ),
    ),
)

_TRUNCATIONS = (
    _fault(
        FaultClass.TRUNCATION,
        "truncated-to-the-newest",
        "a log is cut below its newest segment, whether or not that is a checkpoint",
        (
            _LOG,
            "CommitLog.truncate",
            "self.refresh().previous_checkpoint",
            "self._last if self.refresh().previous_checkpoint else 0",
        ),
    ),
    _fault(
        FaultClass.TRUNCATION,
        "cleaned-up-with-the-neighbours",
        "once a dataset is published, the attempts at all of its bucket's datasets are cleaned up",
        ("engine.clean_up", "remove_task_output", "unit in units", "unit[:5] in {known[:5] for known in units}"),
    ),
    _fault(
        FaultClass.TRUNCATION,
        "mark-deleted",
        "who puts a mark takes it away with the older ones of its kind",
        ("stores.claims", "put_mark", "int(found[1]) < epoch", "int(found[1]) <= epoch"),
    ),
    _fault(
        FaultClass.TRUNCATION,
        "one-run-fewer-kept",
        "of the runs whose tables are kept, one more is deleted",
        ("stores.retention", "forget_runs", "runs[:-keep]", "runs[: 1 - keep]"),
    ),
    _fault(
        FaultClass.TRUNCATION,
        "swept-with-the-neighbours",
        "the sweep of a bucket's attempts takes those of its neighbours, too",
        (
            "stores.staging",
            "sweep_epoch",
            "[folder for group in list_attempts(fs, staging_root, epoch, bucket).values() for folder in group]",
            "[folder for near in range(bucket + 2)"
            " for group in list_attempts(fs, staging_root, epoch, near).values() for folder in group]",
        ),
    ),
)

_ATTEMPTS = (
    _fault(
        FaultClass.ATTEMPT,
        "own-steps-for-a-twins",
        "a sequence is executed by the steps of one's own attempt, though a twin's was sealed",
        (
            _COMMITTER,
            "BucketCommitter._steps_of",
            "made is not None and made[0] == sequence",
            "made is not None",
        ),
        (
            _COMMITTER,
            "BucketCommitter._seal",
            "fold.sequence(name) == sequence",
            "fold.sequence(name) is not None",
        ),
    ),
    _fault(
        FaultClass.ATTEMPT,
        "reach-of-another-attempt",
        "outputs are those of the winner, the watermark that of the attempt that read furthest",
        (
            "protocol.readiness",
            "readiness",
            "gap_free(chosen, reached)",
            "gap_free(chosen, reached)[0], gap_free([max(successes[state.work_unit_id],"
            " key=lambda s: sum(map(int, s.actual_high.positions.values()))) for state in chosen], reached)[1]",
        ),
    ),
    _fault(
        FaultClass.ATTEMPT,
        "first-attempt-whatever-is-left-of-it",
        "the first attempt by name wins, whether or not its staged files are there",
        ("protocol.readiness", "_winners", "staged(state)", "True"),
    ),
    _fault(
        FaultClass.ATTEMPT,
        "failed-units-count-as-finished",
        "a task that is tried again skips work units that an earlier attempt could not read",
        (
            _INGEST,
            "_IngestTask._not_finished_before",
            "state.outcome is TaskOutcome.SUCCEEDED",
            "state.outcome is not None",
        ),
    ),
    _fault(
        FaultClass.ATTEMPT,
        "published-by-an-earlier-attempt",
        "a file that can't be renamed because its target is there was published by an earlier attempt",
        (
            "steps.rename",
            "FsRenameCommitStep.after_failed_rename",
            "self.verify()",
            "Verdict.DONE if self.context.fs.status(self.target) else self.verify()",
        ),
    ),
)

_MARKS = (
    _fault(
        FaultClass.MARK,
        "clean-whatever-is-left",
        "a run that left something open marks the output as clean",
        ("stores.fencing", "end_run", "Mark.CLEAN if clean else Mark.ENDED", "Mark.CLEAN"),
    ),
    _fault(
        FaultClass.MARK,
        "rebuild-marked-after-its-fence",
        "a rebuild fences before it says in the output that it has begun",
        (
            "app.rebuild",
            "rebuild_store",
            "put_mark(fs, roots.output, epoch, Mark.REBUILD)\n_fence(store, epoch, run_id)",
            "_fence(store, epoch, run_id)\nput_mark(fs, roots.output, epoch, Mark.REBUILD)",
        ),
    ),
    _fault(
        FaultClass.MARK,
        "rebuild-ends-before-it-has",
        "a rebuild marks its end before it has set aside what must not stay",
        (
            "app.rebuild",
            "rebuild_store",
            "_set_aside(store, epoch, plan.set_aside)\nstore.job_log(epoch).checkpoint(at_least=1)\n"
            "put_mark(fs, roots.output, epoch, Mark.CLEAN)",
            "store.job_log(epoch).checkpoint(at_least=1)\nput_mark(fs, roots.output, epoch, Mark.CLEAN)\n"
            "_set_aside(store, epoch, plan.set_aside)",
        ),
    ),
    _fault(
        FaultClass.MARK,
        "begun-once",
        "a run marks the output as begun only if there is no such mark, whatever run's that is",
        (
            "stores.fencing",
            "begin_run",
            "put_mark(store.fs, store.roots.output, epoch, Mark.BEGAN)",
            "if not read_marks(store.fs, store.roots.output)[Mark.BEGAN]:\n"
            "    put_mark(store.fs, store.roots.output, epoch, Mark.BEGAN)",
        ),
    ),
    _fault(
        FaultClass.MARK,
        "claimed-without-a-look",
        "who claims a folder does not look whether another one was first",
        ("stores.claims", "claim", "read_owner(fs, root) or owner", "owner"),
    ),
    _fault(
        FaultClass.MARK,
        "fenced-before-the-look",
        "a run fences the job log before it looks whether the store is the newest there is",
        (
            "stores.fencing",
            "begin_run",
            "require_newest(store)\nepoch = fence_job(store, run_id)",
            "epoch = fence_job(store, run_id)\nrequire_newest(store)",
        ),
    ),
)

PLANTED = (*_SYNCS, *_EPOCHS, *_VIEWS, *_NAMES, *_TRUNCATIONS, *_ATTEMPTS, *_MARKS)
