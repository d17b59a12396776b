"""Faults to be planted: epochs that are off by one, or unchecked."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

EPOCHS = (
    fault(
        FaultClass.EPOCH,
        "sweep-spares-the-pending-alone",
        "recovery sweeps what a quarantined sequence still needs",
        (
            "stores.folders.staging",
            "swept_epochs",
            "{state.sequence.epoch for state in fold.datasets.values() if state.sequence is not None}",
            "{state.sequence.epoch for state in fold.pending()}",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "sweep-of-the-resumed-run",
        "a run deletes the staged files of the killed run that it resumes, which a late recovery task may still seal",
        (
            "engine.committing.recover",
            "_sweep_older",
            "epoch < settings.epoch and epoch != resumed",
            "epoch < settings.epoch",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "resumed-work-under-the-own-epoch",
        "what a killed run had finished closes the epoch of the run that seals it, which can commit nothing more",
        (
            "protocol.record_effects",
            "apply",
            "_update(fold, sequence.dataset_urn, open=sealed, closed_epoch=sequence.epoch)",
            "_update(fold, sequence.dataset_urn, open=sealed, closed_epoch=record.epoch)",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "finished-work-of-another-plan",
        "what a killed run had finished is sealed although an operator has set another watermark since",
        (
            "engine.committing.resume_killed_run",
            "_is_resumed",
            "may_seal(fold, settings.epoch, urn, plan.planned_low)",
            "True",
        ),
        (
            "protocol.record_validity",
            "_seal_problem",
            "may_seal(fold, sequence.epoch, sequence.dataset_urn, sequence.low)",
            "may_seal(fold, sequence.epoch, sequence.dataset_urn, sequence.low)"
            " or is_of_older_run and fold.state_of(sequence.dataset_urn).status is IDLE",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "set-closes-the-epoch-before",
        "a watermark set by hand closes the epoch before the newest, so that a running plan may seal",
        (
            "protocol.record_effects",
            "_set",
            "max(state.closed_epoch, fold.fence_epoch)",
            "max(state.closed_epoch, fold.fence_epoch - 1)",
        ),
        (
            "protocol.next_log_record",
            "is_set",
            "state.closed_epoch >= fold.fence_epoch",
            "state.closed_epoch >= fold.fence_epoch - 1",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "sealed-again-where-no-watermark-moves",
        "a run may seal a dataset that it has published, if its watermark is where it was: as errors were fed again",
        (
            "protocol.record_validity",
            "may_seal",
            "state.closed_epoch < epoch",
            "(state.closed_epoch < epoch or state.done_epoch == epoch)",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "settled-by-any-epoch",
        "a dataset that any run has published counts as published by this one, and its attempts are cleaned up",
        (
            "engine.committing.poll_sealable_datasets",
            "OpenDatasets.settle",
            "fold.state_of(urn).done_epoch >= self._settings.epoch",
            "fold.state_of(urn).done_epoch > 0",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "rebuild-spares-the-newest",
        "rebuilding leaves the newest run its staged files, which it may still publish",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "older < epoch",
            "older < epoch - 1",
        ),
    ),
    fault(
        FaultClass.EPOCH,
        "decisions-forgotten-early",
        "decisions are forgotten as the run ends, though a bucket still holds a sequence of theirs",
        (
            "engine.driver.run",
            "_decided_from",
            "recovered.oldest_held_epoch or settings.epoch",
            "settings.epoch",
        ),
    ),
)
