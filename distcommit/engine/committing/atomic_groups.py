"""Atomic commit groups: for a job that publishes all datasets or none, a target commits each commit group as a whole.

After the run's decision a target commits all members of a group in one transaction. The members are computed from the
log each time and are never stored, so every process that replays the log sees the same group. If an operator accepts or
abandons a quarantined dataset, the dataset leaves its group. If the operator retries it, it stays.
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
    """Return the execution of the loaded sequences, and an error for each sequence that must wait for its group.

    A sequence waits if another member of its group is not in `loaded`, because that member is quarantined, is being
    abandoned, or cannot be read.

    Args:
        loaded: the steps of the sequences to execute.
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
    """Return the group of each open held sequence of a bucket; none if the job has no commit groups."""
    if not groups.are_named:
        return {}
    return {
        SequenceName(urn, state.open.sequence.epoch): AtomicGroup(state.open.sequence.epoch, groups.group_of(urn))
        for urn, state in fold.datasets.items()
        if state.open is not None and state.open.held
    }
