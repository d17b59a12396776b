"""The plan of one Kafka dataset: what to read of each partition, from where, in which work units, and what is lost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark, as_offset
from distcommit.core.work import DatasetPlan, SkippedRange, WorkUnit
from distcommit.sources.kafka.names import MAX_BYTES, KafkaDataset, PartitionLog, PartitionName
from distcommit.sources.plan_error import PlanError

Range = tuple[int, int, int]
"""Partition, first offset, and the offset after the last."""


class PlanRules(Protocol):
    """The source's settings that a plan follows."""

    @property
    def expired_offsets(self) -> str:
        """What to do where records were deleted before they were read."""

    @property
    def records_per_dataset(self) -> int:
        """At most so many offsets of a dataset in one run; 0 for all."""

    @property
    def records_per_work_unit(self) -> int:
        """About so many offsets in a work unit."""

    @property
    def bytes_per_dataset(self) -> int:
        """At most about so many bytes of a dataset in one run; 0 for all."""


def plan_dataset(
    rules: PlanRules,
    urn: str,
    logs: Mapping[int, PartitionLog | str],
    state: DatasetState | None,
    topic_id: str = "",
    *,
    topic_followed: bool = False,
    most: int = 0,
) -> DatasetPlan | None:
    """The plan of one dataset from what its partitions hold (or the error of one); None if there is nothing to do.

    A partition without a stored position gets a work unit even if it is empty, so that its position is stored. It
    begins where the source's `start` says, but at offset 0 if others of its dataset have positions: then it was added
    while they were read. If nothing was ever published of it and others of its topic are datasets that have positions
    (`topic_followed`), it may also be one that could not be read when they were: it begins at the oldest record, and
    what was deleted before that is recorded as lost, whatever `expired_offsets` says, but `latest`. A stored watermark
    without a topic id (from a cluster without them, or set by hand) counts for the topic that is there. Of more than
    `most` offsets, if it is not 0, the rest is left to later runs, as with `records_per_dataset`.

    Raises:
        SourceError: if a partition has an error, a stored position does not fit what it holds, or the topic is not the
            one that the stored positions count in.
    """
    planned_low = state.watermark if state is not None else None
    start, skipped, ranges = _begins(rules, urn, logs, state, topic_id, topic_followed=topic_followed)
    limit = min(filter(None, (rules.records_per_dataset, most)), default=0)
    shares = fair_shares([high - low for _, low, high in ranges], limit)
    kept = {*start, *(skip.partition for skip in skipped)}
    taken = [(p, low, low + n) for (p, low, _), n in zip(ranges, shares, strict=True) if n or str(p) in kept]
    units: list[WorkUnit] = []
    for packed in pack(taken, rules.records_per_work_unit, split=not rules.bytes_per_dataset):
        low_mark = Watermark({str(p): low for p, low, _ in packed}, topic_id)
        high_mark = Watermark({str(p): high for p, _, high in packed}, topic_id)
        size = sum(high - low for _, low, high in packed)
        share = max(1, rules.bytes_per_dataset * size // max(1, sum(shares)))
        properties = {MAX_BYTES: str(share)} if rules.bytes_per_dataset else {}
        units.append(WorkUnit(str(len(units)), urn, low_mark, high_mark, size, properties))
    if not units:
        return None
    return DatasetPlan(urn, planned_low, Watermark(start, topic_id), tuple(units), tuple(skipped))


def _begins(
    rules: PlanRules,
    urn: str,
    logs: Mapping[int, PartitionLog | str],
    state: DatasetState | None,
    topic_id: str,
    *,
    topic_followed: bool,
) -> tuple[dict[str, Position], list[SkippedRange], list[Range]]:
    """Where partitions without a stored position begin, what is lost, and what there is to read. Raises as
    `plan_dataset`."""
    stored = stored_positions(state)
    planned_low = state.watermark if state is not None else None
    if planned_low is not None and planned_low.incarnation not in ("", topic_id):
        if not topic_id:
            raise unreadable(urn, "its topic id: the cluster shows no controller to ask")
        raise _made_again(urn, f"topic id {planned_low.incarnation}", f"topic id {topic_id}")
    missing = stored.keys() - {str(partition) for partition in logs}
    if missing and planned_low is not None and planned_low.incarnation == topic_id != "":  # a topic never loses any
        raise unreadable(urn, f"the broker does not know partitions {', '.join(sorted(missing))} of the topic yet")
    if missing:
        raise _made_again(urn, f"partitions {', '.join(stored)}", f"{len(logs)} partitions")
    start: dict[str, Position] = {}
    skipped: list[SkippedRange] = []
    ranges: list[Range] = []
    for partition, log in logs.items():
        if isinstance(log, str):
            raise unreadable(urn, f"partition {partition}: {log}")
        if stored:
            position = stored.get(str(partition), 0)
            if isinstance(position, int) and log.high < position <= log.open_end:
                raise _behind_open(urn, partition, position, log)
            if not isinstance(position, int) or position > log.high:
                expected, found = f"offset {position!r} of partition {partition}", f"offsets {log.low} to {log.end}"
                same = planned_low is not None and planned_low.incarnation == topic_id != ""
                raise _made_again(urn, expected, found, _nearest(stored, logs), same=same)
            low = position
            if low < log.low:
                if rules.expired_offsets == "skip":
                    continue
                skipped.append(_given_up(rules, urn, partition, low, log, topic_id))
                low = as_offset(skipped[-1].high)
            if str(partition) not in stored:
                start[str(partition)] = 0
        elif topic_followed:
            low = start[str(partition)] = 0
            if low < log.low:
                why = "the partition is new, and others of its topic were read before"
                skipped.append(_passed_over(rules, partition, low, log, topic_id, why))
                low = as_offset(skipped[-1].high)
        else:
            low = start[str(partition)] = log.begin
        ranges.append((partition, low, log.high))
    return start, skipped, ranges


def up_to(
    again: Watermark | None, logs: Mapping[int, PartitionLog | str], state: DatasetState | None, topic_id: str
) -> Mapping[int, PartitionLog | str]:
    """What partitions hold, as far as it is to be read again before anything newer; all of it where `again` names
    nothing. What was not read and has gone since is not waited for."""
    if again is None or again.incarnation not in ("", topic_id):
        return logs
    stored, found = stored_positions(state), dict(logs)
    for partition, log in logs.items():
        end = again.positions.get(str(partition))
        begin = stored.get(str(partition), log.begin if isinstance(log, PartitionLog) and not stored else 0)
        if isinstance(log, PartitionLog) and isinstance(end, int) and isinstance(begin, int):
            found[partition] = log._replace(high=min(log.high, max(end, begin, log.low)))
    return found


def pack(ranges: Sequence[Range], target: int, *, split: bool = True) -> list[tuple[Range, ...]]:
    """Ranges by work unit, of up to `target` offsets each: large ones cut into even parts, small ones together."""
    units: list[tuple[Range, ...]] = []
    room = -1
    for partition, low, high in sorted(ranges, key=lambda r: r[1] - r[2]):
        size = high - low
        if size > target:
            parts = -(-size // target) if split else 1
            cuts = [low + size * part // parts for part in range(parts + 1)]
            units += [((partition, begin, end),) for begin, end in pairwise(cuts)]
        elif size <= room:
            units[-1] = (*units[-1], (partition, low, high))
            room -= size
        else:
            units.append(((partition, low, high),))
            room = target - size
    return units


def fair_shares(sizes: Sequence[int], limit: int) -> list[int]:
    """How much of each size to take so that the sum is at most `limit` (0: no limit) and no share could grow but at
    the cost of a smaller one. A limit below the number of sizes goes to the largest, so that none waits for ever."""
    shares = list(sizes)
    if limit and sum(sizes) > limit:
        for done, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            shares[index] = min(sizes[index], limit // (len(sizes) - done))
            limit -= shares[index]
    return shares


def _nearest(stored: Mapping[str, Position], logs: Mapping[int, PartitionLog | str]) -> dict[str, int]:
    """For each stored position the nearest one that its partition has; empty if one can't be told."""
    nearest: dict[str, int] = {}
    for partition, log in logs.items():
        position = stored.get(str(partition), 0)
        if isinstance(log, str) or not isinstance(position, int):
            return {}
        if str(partition) in stored:
            nearest[str(partition)] = min(max(position, log.low), log.end)
    return nearest


def _given_up(
    rules: PlanRules, urn: str, partition: int, position: int, log: PartitionLog, topic_id: str
) -> SkippedRange:
    """What is lost by going on where the source's policy says."""
    if rules.expired_offsets not in ("earliest", "latest", "nearest"):
        raise _deleted(urn, partition, position, log)
    why = f"expired_offsets is {rules.expired_offsets}"
    return _passed_over(rules, partition, position, log, topic_id, why)


def _passed_over(
    rules: PlanRules, partition: int, position: int, log: PartitionLog, topic_id: str, why: str
) -> SkippedRange:
    low = log.high if rules.expired_offsets == "latest" else log.low
    reason = f"expired: Kafka holds offsets {log.low} to {log.high}; {why}"
    return SkippedRange(str(partition), position, low, reason, incarnation=topic_id)


def expired(urn: str, logs: Mapping[int, PartitionLog | str], state: DatasetState | None) -> PlanError | None:
    """The error that tells of the first partition whose records were deleted before they were read."""
    stored = stored_positions(state)
    for partition, log in logs.items():
        position = stored.get(str(partition), 0) if stored else None
        if isinstance(log, PartitionLog) and isinstance(position, int) and position < log.low:
            return _deleted(urn, partition, position, log)
    return None


def _deleted(urn: str, partition: int, position: int, log: PartitionLog) -> PlanError:
    return PlanError(
        "Kafka has deleted records before they were read",
        remedy=("run", "--set=source.expired_offsets=earliest"),
        dataset=urn,
        partition=partition,
        expected=f"offset {position}",
        found=f"offsets {log.low} to {log.high}; {log.low - position} are gone (expired)",
        todo="set source.expired_offsets to earliest (or nearest) or latest (the loss is recorded) or set the"
        " watermark by hand",
    )


def _made_again(
    urn: str, expected: str, found: str, nearest: Mapping[str, int] = MappingProxyType({}), *, same: bool = False
) -> PlanError:
    """What stored positions do not fit. `nearest`: those that do, if it may be the same topic; `same`: if it surely is.
    Where it may be either, only a person can say which positions pass nothing over."""
    remedy = ("dataset set-watermark", urn, json.dumps(nearest) if nearest else "null") if same or not nearest else ()
    positions = f", to {json.dumps(nearest)} to go on at the nearest offsets" if nearest else ""
    return PlanError(
        "the stored position is not in the topic",
        remedy=remedy,
        dataset=urn,
        expected=expected,
        found=found,
        todo="the topic was truncated or made again: set the dataset's watermark by hand"
        f" (distcommit dataset set-watermark), to null to begin at source.start{positions}",
    )


def _behind_open(urn: str, partition: int, position: int, log: PartitionLog) -> PlanError:
    """What was read as uncommitted, of a partition whose committed records end before it."""
    return PlanError(
        "an open transaction is in front of the stored position",
        remedy=("run",),
        dataset=urn,
        partition=partition,
        expected=f"that all is committed or aborted before offset {position}, which is where reading goes on",
        found=f"an open transaction from offset {log.high} on; the partition ends at {log.open_end}",
        todo="wait until its producer has ended it and run again; its watermark is kept, and is right: do not set it."
        " If it never ends: Kafka's kafka-transactions.sh names it by describe-producers and ends it by abort",
    )


def unreadable(urn: str, error: str) -> SourceError:
    """The error for a dataset that the brokers can't serve now."""
    todo = "see to the topic or its brokers and run again; its watermark is kept"
    return SourceError("the brokers can't serve the dataset now", dataset=urn, found=error, todo=todo)


def read_to(datasets: Iterable[KafkaDataset], states: Mapping[str, DatasetState]) -> dict[PartitionName, Position]:
    """The stored position of each partition that has one."""
    stored = ((dataset, stored_positions(states.get(dataset.urn))) for dataset in datasets)
    return {name: found[str(name[1])] for dataset, found in stored for name in dataset.names() if str(name[1]) in found}


def stored_positions(state: DatasetState | None) -> Mapping[str, Position]:
    """The positions that are stored of a dataset."""
    return state.watermark.positions if state is not None and state.watermark is not None else {}
