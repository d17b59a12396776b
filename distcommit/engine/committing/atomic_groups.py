"""Atomic commit groups: for an all-or-none job, a target commits each group in one transaction.

Members are computed from the log each time, so every process that replays it sees the same group. An accepted or
abandoned dataset leaves its group, a retried one stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import HeldBackError
from distcommit.core.interfaces.commit_step import CommitStep
from distcommit.core.records.sealed_sequences import SequenceName
from distcommit.protocol.log_state import Fold
from distcommit.steps.step_execution import Execution, held_back_by


class AtomicGroup(NamedTuple):
    """The held sequences of one run in one commit group.

    Attributes:
        epoch: the run that sealed the sequences.
        group: name of the commit group (`CommitGroups.group_of`).
    """

    epoch: int
    group: str


def build_execution(
    groups: CommitGroups,
    fold: Fold,
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    *,
    verify_first: bool,
) -> tuple[Execution, dict[SequenceName, HeldBackError]]:
    """Return the execution, and an error for each sequence that waits for a member of its group that is not in
    `loaded`.

    Such a member is quarantined, being abandoned or unreadable.

    Args:
        loaded: steps to execute, by sequence.
        verify_first: see `execute_sequences`.
    """
    groups_by_sequence = _groups_by_sequence(groups, fold)
    missing_member = {complete: name for name, complete in groups_by_sequence.items() if name not in loaded}
    held_back = {
        name: held_back_by(missing_member[groups_by_sequence[name]].dataset_urn)
        for name in loaded
        if name in groups_by_sequence and groups_by_sequence[name] in missing_member
    }
    executable = {name: steps for name, steps in loaded.items() if name not in held_back}
    return Execution(executable, verify_first=verify_first, groups=groups_by_sequence), held_back


def _groups_by_sequence(groups: CommitGroups, fold: Fold) -> dict[SequenceName, AtomicGroup]:
    if not groups.are_named:
        return {}
    return {
        SequenceName(urn, state.open.sequence.epoch): AtomicGroup(state.open.sequence.epoch, groups.group_of(urn))
        for urn, state in fold.datasets.items()
        if state.open is not None and state.open.held
    }
