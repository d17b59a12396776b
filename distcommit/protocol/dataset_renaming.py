"""Renaming of datasets, such as a topic that becomes one dataset for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.core.work_units import SchemaIds, SkippedRange, merge_ranges, merge_schema_ids

NamedNow = Callable[[str, str], str]
"""Function that returns the current dataset URN of a partition, from the URN that it was read under and its name."""


@dataclass(slots=True)
class _Read:
    positions: dict[str, Position] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    incarnation: str = ""
    closed_epoch: int = 0
    schemas: SchemaIds = field(default_factory=dict)

    def add(self, state: DatasetState, partition: str, position: Position) -> None:
        incarnation = state.watermark.incarnation if state.watermark else ""
        if self.incarnation and incarnation and self.incarnation != incarnation:
            raise ConflictError(
                "the parts of a renamed dataset belong to different incarnations of their source",
                id="RENAMED_PARTS_DIFFER",
                dataset=state.dataset_urn,
                partition=partition,
                expected=self.incarnation,
                found=incarnation,
                todo="run the job under the old names until all parts have the same incarnation, then repeat the"
                " command; nothing was changed",
            )
        self.incarnation = self.incarnation or incarnation
        self.positions[partition], self.names[partition] = position, state.dataset_urn
        self.closed_epoch = max(self.closed_epoch, state.closed_epoch)
        self.schemas = merge_schema_ids(self.schemas, state.schemas)


def renamed(states: Iterable[DatasetState], named_now: NamedNow, *, only_ahead: bool = False) -> list[DatasetState]:
    """Return all states: the given ones, and the states of the renamed datasets, which continue where the old ones
    ended.

    The old datasets keep their states, which describe their published files. If a dataset existed under its new name
    before, its state is kept, and the range that was read under another name since then is recorded in it as positions
    without a record.

    Args:
        states: all states of the job. Every dataset must be idle.
        named_now: returns the new dataset of each partition.
        only_ahead: whether it is unknown which of several datasets has read a partition last. If so, the furthest
            position is used.

    Raises:
        ConflictError: if parts of one dataset belong to different incarnations.
    """
    result = {state.dataset_urn: state for state in states}
    read: dict[str, _Read] = {}
    for urn, state in sorted(result.items()):
        for partition, position in sorted(state.watermark.positions.items()) if state.watermark else ():
            now = named_now(urn, partition)
            if now != urn:
                read.setdefault(now, _Read()).add(state, partition, position)
    for urn, reading in read.items():
        result[urn] = _continued(result.get(urn) or DatasetState(urn), reading, only_ahead=only_ahead)
    return list(result.values())


def _continued(state: DatasetState, read: _Read, *, only_ahead: bool) -> DatasetState:
    before = state.reached or Watermark({}, read.incarnation)
    same = before.incarnation in ("", read.incarnation) or not read.incarnation
    positions, origin = (dict(before.positions), dict(state.origin)) if same else ({}, {})
    incarnation = read.incarnation or before.incarnation
    elsewhere: list[SkippedRange] = []
    for partition, position in read.positions.items():
        at = positions.get(partition)
        if at is None:
            origin[partition] = position
        elif isinstance(at, int) and isinstance(position, int) and at < position:
            reason = f"read as {read.names[partition]}"
            elsewhere.append(SkippedRange(partition, at, position, reason, is_hole=True, incarnation=incarnation))
        elif only_ahead:
            continue
        positions[partition] = position
    return replace(
        state,
        watermark=Watermark(positions, incarnation),
        origin=origin,
        skipped=merge_ranges((*state.skipped, *elsewhere)),
        closed_epoch=max(state.closed_epoch, read.closed_epoch),
        read_failure=None,
        previous_run=None,
        unset_watermark=None,
        schemas=merge_schema_ids(state.schemas, read.schemas),
    )
