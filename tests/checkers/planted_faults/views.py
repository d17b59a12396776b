"""Faults to be planted: decisions on an outdated view."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

VIEWS = (
    fault(
        FaultClass.VIEW,
        "lost-at-the-first-look",
        "a step is lost if one look at staged files and one at the target, taken one after the other, don't show it",
        (
            "steps.bulk_rename",
            "probe_all",
            "steps[index].verify() if isinstance(answer, Lost) else answer",
            "answer",
        ),
    ),
    fault(
        FaultClass.VIEW,
        "own-segment-whoever-won",
        "a log takes its own segment for what stands at a number, though another's put came first",
        (
            "stores.logs.commit_log",
            "CommitLog.settle",
            "if won:\n    self._durable_to, self._own = number, (number, segment)",
            "self._own = (number, segment)\nif won:\n    self._durable_to = number",
        ),
    ),
    fault(
        FaultClass.VIEW,
        "swept-on-the-fold-before-replay",
        "recovery sweeps by what was pending before it replayed",
        ("engine.committing.recover", "_recover_bucket", "fold = log.refresh()", ""),
    ),
    fault(
        FaultClass.VIEW,
        "rebuilt-from-a-first-look",
        "a rebuild takes what it saw before it fenced, and before it took the staged files of others away",
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "dataset_states = stored_states(store)\nplan = planned(store, dataset_states, flow, "
            "accept_gaps=accept_gaps, tick=tick)",
        ),
        (
            "app.admin.rebuild_store",
            "rebuild_store",
            "take_ownership_of_folders(store)",
            "take_ownership_of_folders(store)\nknown = stored_states(store)\n"
            "plan = planned(store, dataset_states, flow, accept_gaps=accept_gaps, tick=tick)",
        ),
    ),
    fault(
        FaultClass.VIEW,
        "newest-by-an-older-fold",
        "whether the store is the newest there is, is judged by a fold from before the newest mark was read",
        (
            "stores.logs.fencing",
            "newer_runs",
            "max(run_markers.values())",
            "max(read_markers(store.fs, store.roots.output).values())",
        ),
    ),
    fault(
        FaultClass.VIEW,
        "abandoned-whatever-became-of-it",
        "who abandons a dataset undoes its steps though somebody has released it meanwhile",
        (
            "stores.operator.operator_actions",
            "_abandon",
            "revoked is None or fold.state_of(urn).status is not DatasetStatus.REVOKING",
            "False",
        ),
        (
            "stores.operator.operator_actions",
            "_abandon",
            "load_steps(revoked.steps, context)",
            "load_steps(sequence.steps, context)",
        ),
    ),
    fault(
        FaultClass.VIEW,
        "first-file-tells-of-all",
        "that a folder's first file went where it was to go is taken for all of them",
        (
            "steps.bulk_rename",
            "_Batch.move_first_files",
            "[index for index in group.indices if index != todo[0]]",
            "list[int]()",
        ),
    ),
)
