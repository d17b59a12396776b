"""Commit groups that a run publishes whole or not at all: those of a run that publishes its whole job or nothing.

After its decision a target takes all members of a group in one commit, or none. Nothing of this is stored: which
sequences are members the fold says, whoever asks, so that replay, twins and zombies hold to it alike. What a person
releases is a member no more (accepted or abandoned), or one that is tried again with the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import HeldBackError
from distcommit.core.interfaces.steps import CommitStep
from distcommit.core.records.log_records import SequenceName
from distcommit.protocol.fold import Fold
from distcommit.steps.execution import Execution, held_back_by


class Whole(NamedTuple):
    """What a run has sealed of a commit group, held until its decision."""

    epoch: int
    group: str


def execution_of(
    groups: CommitGroups,
    fold: Fold,
    loaded: Mapping[SequenceName, Sequence[CommitStep]],
    *,
    verify_first: bool,
) -> tuple[Execution, dict[SequenceName, HeldBackError]]:
    """What executes the steps of sequences that `fold` shows, and why some are held back: another part of their whole
    is not among them, as it is quarantined, being abandoned, or can't be read."""
    wholes = _wholes_of(groups, fold)
    absent = {whole: name for name, whole in wholes.items() if name not in loaded}
    held = {
        name: held_back_by(absent[wholes[name]].dataset_urn)
        for name in loaded
        if name in wholes and wholes[name] in absent
    }
    going = {name: steps for name, steps in loaded.items() if name not in held}
    return Execution(going, verify_first=verify_first, wholes=wholes), held


def _wholes_of(groups: CommitGroups, fold: Fold) -> dict[SequenceName, Whole]:
    """Of all sequences of a bucket that are not done, and were held: what they are a part of. None where datasets are
    by themselves."""
    if not groups.are_named:
        return {}
    return {
        SequenceName(urn, state.open.sequence.epoch): Whole(state.open.sequence.epoch, groups.group_of(urn))
        for urn, state in fold.datasets.items()
        if state.open is not None and state.open.held
    }
