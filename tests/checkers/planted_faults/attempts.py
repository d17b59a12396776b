"""Faults to be planted: an attempt is confused with another one, or a failed one counts as successful."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

ATTEMPTS = (
    fault(
        FaultClass.ATTEMPT,
        "own-steps-for-a-twins",
        "a sequence is executed by the steps of one's own attempt, though a twin's was sealed",
        (
            "engine.committing.bucket_committer",
            "BucketCommitter._steps_of",
            "built is not None and built[0] == sequence",
            "built is not None",
        ),
        (
            "engine.committing.bucket_committer",
            "BucketCommitter._seal",
            "fold.sequence(name) == sequence",
            "fold.sequence(name) is not None",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "reach-of-another-attempt",
        "outputs are those of the winner, the watermark that of the attempt that read furthest",
        (
            "protocol.seal_decision",
            "readiness",
            "gap_free(chosen, reached)",
            "gap_free(chosen, reached)[0], gap_free([max((s for s in states if s.work_unit_id == state.work_unit_id and"
            " s.outcome is state.outcome), key=lambda s: sum(map(int, s.actual_high.positions.values())))"
            " for state in chosen], reached)[1]",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "first-attempt-whatever-is-left-of-it",
        "the first attempt by name wins, whether or not its staged files are there",
        (
            "protocol.seal_decision",
            "_winners",
            "next((state for state in attempts if staged(state)), None)",
            "next(iter(attempts), None)",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "winner-is-aborted",
        "the marker of an attempt stays when its sequence is executed, so that the winner is aborted as one that lost",
        (
            "engine.committing.abort_and_sweep_attempts",
            "remove_winner_notes",
            "note.attempt in attempts",
            "not attempts",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "quarantined-winner-is-aborted",
        "a run aborts the attempts of a quarantined sequence together with those that lost to it",
        ("engine.committing.abort_and_sweep_attempts", "abort_unsealed", "note.attempt not in sealed", "note.attempt"),
    ),
    fault(
        FaultClass.ATTEMPT,
        "loser-is-never-aborted",
        "attempts that lost, and those of a dead run, are forgotten: what they have prepared stays at the target",
        ("engine.committing.abort_and_sweep_attempts", "_abort", "committer.abort(attempts)", "None"),
    ),
    fault(
        FaultClass.ATTEMPT,
        "loser-is-forgotten-while-its-target-is-down",
        "an attempt whose abort has failed is not aborted again by the next run",
        ("engine.committing.abort_and_sweep_attempts", "_abort", "return all_aborted", "return True"),
    ),
    fault(
        FaultClass.ATTEMPT,
        "prefix-reaches-the-end",
        "what a failed attempt has read counts as all of its work unit",
        (
            "pipeline.task_attempt",
            "Attempt._failure_state",
            "replace(failed, outcome=TaskOutcome.PARTIAL, actual_high=prefix.high, branches=results)",
            "replace(failed, outcome=TaskOutcome.PARTIAL, actual_high=failed.expected_high, branches=results)",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "failed-units-count-as-finished",
        "a task that is tried again skips work units that an earlier attempt could not read",
        (
            "engine.reading.worker_deaths",
            "units_to_read",
            "state.outcome is TaskOutcome.SUCCEEDED",
            "state.outcome is not None",
        ),
    ),
    fault(
        FaultClass.ATTEMPT,
        "suspects-are-read-with-others",
        "a work unit that a worker was reading when it died is read again together with others",
        (
            "engine.reading.worker_deaths",
            "without_suspects",
            "(unit.work_unit_id, unit.dataset_urn) not in suspects",
            "unit is not None",
        ),
        tests=("tests/unit/engine/reading/test_worker_deaths.py",),
    ),
    fault(
        FaultClass.ATTEMPT,
        "published-by-an-earlier-attempt",
        "a file that can't be renamed because its target is there was published by an earlier attempt",
        (
            "steps.rename_step",
            "FsRenameCommitStep.after_failed_rename",
            "self.verify()",
            "Verdict.DONE if self.context.fs.status(self.target) else self.verify()",
        ),
    ),
)
