"""The plan of one Kafka dataset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

from distcommit.core.errors import SourceError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark, as_offset
from distcommit.core.work_units import DatasetPlan, SkippedRange, WorkUnit
from distcommit.sources.kafka.topics import (
    MAX_BYTES,
    KafkaDataset,
    PartitionLog,
    PartitionName,
    PartitionOffsets,
    Start,
)
from distcommit.sources.plan_error import PlanError

Range = tuple[int, int, int]
"""Partition, first offset, and end (exclusive)."""


class PlanRules(Protocol):
    @property
    def expired_offsets(self) -> str:
        """Policy for records that were deleted unread."""

    @property
    def records_per_dataset(self) -> int:
        """Maximum offsets of a dataset per run; 0 for no limit."""

    @property
    def records_per_work_unit(self) -> int:
        """Approximate offsets of a work unit."""

    @property
    def bytes_per_dataset(self) -> int:
        """Approximate maximum bytes of a dataset per run; 0 for no limit."""


def planned_log(offsets: PartitionOffsets | str, start: Start) -> PartitionLog | str:
    """Return a partition's offsets and the beginning of a first read, or the brokers' error.

    Args:
        start: the source's `start`. A time means the first record that is not older, or the end.
    """
    if isinstance(offsets, str):
        return offsets
    low, high, at_start_time, open_end = offsets
    if start == "earliest":
        begin = low
    elif start == "latest" or at_start_time < 0:
        begin = high
    else:
        begin = min(max(low, at_start_time), high)
    return PartitionLog(low, high, begin, open_end)


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
    """Return the plan of one dataset; None if there is nothing to do.

    A partition without a stored position gets a work unit even if it is empty, so that its position is stored. Where it
    begins depends on the dataset:

    - If no partition of the dataset has a position, it begins at `PartitionLog.begin`, which follows the source's
      `start`.
    - If other partitions have positions, it was added later and begins at offset 0.
    - With `topic_followed` it may also have been unreadable when the other partitions were first read. It begins at the
      oldest existing record. If records before that were deleted, they are recorded as lost, and with
      `expired_offsets: latest` all existing records, too.

    A stored watermark without a topic id (of a cluster without ids, or set by an operator) applies to the current
    topic.

    Args:
        logs: by partition, its offsets or the brokers' error as text.
        topic_id: id of the topic; empty if the cluster has none.
        topic_followed: whether nothing of the dataset was ever published although other datasets of its topic have
            positions.
        most: maximum offsets to plan, in addition to the limit `records_per_dataset`; 0 for no limit.

    Raises:
        SourceError: if a partition has an error or is missing, a stored position is after a partition's end, the topic
            was recreated, or records were deleted before they were read and `expired_offsets` is `fail`.
    """
    planned_low = state.watermark if state is not None else None
    start, skipped, ranges = _begins(rules, urn, logs, state, topic_id, topic_followed=topic_followed)
    limit = min(filter(None, (rules.records_per_dataset, most)), default=0)
    shares = fair_shares([high - low for _, low, high in ranges], limit)
    always = {*start, *(skip.partition for skip in skipped)}
    selected = [(p, low, low + n) for (p, low, _), n in zip(ranges, shares, strict=True) if n or str(p) in always]
    units: list[WorkUnit] = []
    for packed in pack(selected, rules.records_per_work_unit, split=not rules.bytes_per_dataset):
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
    """Return positions of new partitions, lost ranges, and ranges to read. With `expired_offsets: skip`, partitions
    with lost records are absent."""
    stored = stored_positions(state)
    planned_low = state.watermark if state is not None else None
    if planned_low is not None and planned_low.incarnation not in ("", topic_id):
        if not topic_id:
            raise unreadable(urn, "its topic id: the cluster reports no controller")
        raise _recreated(urn, f"topic id {planned_low.incarnation}", f"topic id {topic_id}")
    missing = stored.keys() - {str(partition) for partition in logs}
    if (
        missing and planned_low is not None and planned_low.incarnation == topic_id != ""
    ):  # a topic never loses partitions
        raise unreadable(urn, f"the broker does not know partitions {', '.join(sorted(missing))} of the topic yet")
    if missing:
        raise _recreated(urn, f"partitions {', '.join(stored)}", f"{len(logs)} partitions")
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
                expected, actual = f"offset {position!r} of partition {partition}", f"offsets {log.low} to {log.end}"
                same = planned_low is not None and planned_low.incarnation == topic_id != ""
                raise _recreated(urn, expected, actual, _nearest(stored, logs), same=same)
            low = position
            if low < log.low:
                if rules.expired_offsets == "skip":
                    continue
                skipped.append(_lost(rules, urn, partition, low, log, topic_id))
                low = as_offset(skipped[-1].high)
            if str(partition) not in stored:
                start[str(partition)] = 0
        elif topic_followed:
            low = start[str(partition)] = 0
            if low < log.low:
                reason = "the partition is new, and others of its topic were read before"
                skipped.append(_skipped(rules, partition, low, log, topic_id, reason))
                low = as_offset(skipped[-1].high)
        else:
            low = start[str(partition)] = log.begin
        ranges.append((partition, low, log.high))
    return start, skipped, ranges


def limited_to_reread(
    retried_end: Watermark | None, logs: Mapping[int, PartitionLog | str], state: DatasetState | None, topic_id: str
) -> Mapping[int, PartitionLog | str]:
    """Return `logs` up to the end of a failed range, which is read before newer records. `PartitionLog.end` is
    unchanged.

    Partitions that `retried_end` does not name are unchanged; if its topic id differs, all are. If a named partition
    has no unread records of the failed range, its range is empty.
    """
    if retried_end is None or retried_end.incarnation not in ("", topic_id):
        return logs
    stored, limited = stored_positions(state), dict(logs)
    for partition, log in logs.items():
        end = retried_end.positions.get(str(partition))
        begin = stored.get(str(partition), log.begin if isinstance(log, PartitionLog) and not stored else 0)
        if isinstance(log, PartitionLog) and isinstance(end, int) and isinstance(begin, int):
            limited[partition] = log._replace(high=min(log.high, max(end, begin, log.low)), open_end=log.end)
    return limited


def pack(ranges: Sequence[Range], target: int, *, split: bool = True) -> list[tuple[Range, ...]]:
    """Distribute ranges over work units of up to `target` offsets. Small ranges share a work unit. With `split`, larger
    ranges are split."""
    units: list[tuple[Range, ...]] = []
    room = -1
    for partition, low, high in sorted(ranges, key=lambda r: r[1] - r[2]):
        size = high - low
        if size > target:
            parts = -(-size // target) if split else 1
            bounds = [low + size * part // parts for part in range(parts + 1)]
            units += [((partition, begin, end),) for begin, end in pairwise(bounds)]
        elif size <= room:
            units[-1] = (*units[-1], (partition, low, high))
            room -= size
        else:
            units.append(((partition, low, high),))
            room = target - size
    return units


def fair_shares(sizes: Sequence[int], limit: int) -> list[int]:
    """Divide `limit` fairly among demands (max-min fairness); 0 is no limit.

    If `limit` is below the number of demands, the largest get 1 each, so that none waits forever.
    """
    shares = list(sizes)
    if limit and sum(sizes) > limit:
        for done, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            shares[index] = min(sizes[index], limit // (len(sizes) - done))
            limit -= shares[index]
    return shares


def _nearest(stored: Mapping[str, Position], logs: Mapping[int, PartitionLog | str]) -> dict[str, int]:
    """Return the nearest valid position for each stored one; empty if any offsets are unknown."""
    nearest: dict[str, int] = {}
    for partition, log in logs.items():
        position = stored.get(str(partition), 0)
        if isinstance(log, str) or not isinstance(position, int):
            return {}
        if str(partition) in stored:
            nearest[str(partition)] = min(max(position, log.low), log.end)
    return nearest


def _lost(rules: PlanRules, urn: str, partition: int, position: int, log: PartitionLog, topic_id: str) -> SkippedRange:
    if rules.expired_offsets not in ("earliest", "latest", "nearest"):
        raise _deleted(urn, partition, position, log)
    reason = f"expired_offsets is {rules.expired_offsets}"
    return _skipped(rules, partition, position, log, topic_id, reason)


def _skipped(
    rules: PlanRules, partition: int, position: int, log: PartitionLog, topic_id: str, cause: str
) -> SkippedRange:
    low = log.high if rules.expired_offsets == "latest" else log.low
    reason = f"expired: Kafka holds offsets {log.low} to {log.end}; {cause}"
    return SkippedRange(str(partition), position, low, reason, incarnation=topic_id)


def expiry_error(urn: str, logs: Mapping[int, PartitionLog | str], state: DatasetState | None) -> PlanError | None:
    """Return the error of the first partition with records that were deleted unread, or None."""
    stored = stored_positions(state)
    for partition, log in logs.items():
        position = stored.get(str(partition), 0) if stored else None
        if isinstance(log, PartitionLog) and isinstance(position, int) and position < log.low:
            return _deleted(urn, partition, position, log)
    return None


def _deleted(urn: str, partition: int, position: int, log: PartitionLog) -> PlanError:
    return PlanError(
        "Kafka has deleted records before they were read",
        id="KAFKA_RECORDS_EXPIRED",
        remedy=("run", "--set=source.expired_offsets=earliest"),
        dataset=urn,
        partition=partition,
        expected=f"offset {position}",
        found=f"offsets {log.low} to {log.end}; {log.low - position} offsets have expired",
        todo="set source.expired_offsets to earliest (or nearest) or latest, which records the loss, or set the"
        " dataset's watermark",
    )


def _recreated(
    urn: str, expected: str, actual: str, nearest: Mapping[str, int] = MappingProxyType({}), *, same: bool = False
) -> PlanError:
    """Return the error of positions that are not in the topic. `same`: whether the topic id proves the same topic;
    otherwise only an operator can choose positions."""
    remedy = ("dataset set-watermark", urn, json.dumps(nearest) if nearest else "null") if same or not nearest else ()
    positions = f", or to {json.dumps(nearest)} to continue at the nearest offsets" if nearest else ""
    return PlanError(
        "the stored position is not in the topic",
        id="KAFKA_POSITION_MISSING",
        remedy=remedy,
        dataset=urn,
        expected=expected,
        found=actual,
        todo="the topic was truncated or recreated: set the dataset's watermark"
        f" (distcommit dataset set-watermark) to null to begin at source.start{positions}",
    )


def _behind_open(urn: str, partition: int, position: int, log: PartitionLog) -> PlanError:
    return PlanError(
        "an open transaction precedes the stored position",
        id="KAFKA_TRANSACTION_OPEN",
        remedy=("run",),
        dataset=urn,
        partition=partition,
        expected=f"only committed or aborted transactions before offset {position}, where reading continues",
        found=f"an open transaction from offset {log.high} on; the partition ends at {log.open_end}",
        todo="wait until its producer has ended it, then run again; the watermark is correct: do not set it."
        " If it never ends, find it with kafka-transactions.sh describe-producers and end it with abort",
    )


def unreadable(urn: str, error: str) -> SourceError:
    todo = "check the topic and its brokers, then run again; its watermark is kept"
    return SourceError("the brokers can't serve the dataset now", dataset=urn, found=error, todo=todo)


def read_to(datasets: Iterable[KafkaDataset], states: Mapping[str, DatasetState]) -> dict[PartitionName, Position]:
    """Return stored positions by partition."""
    return {
        name: stored[str(name[1])]
        for dataset in datasets
        for stored in [stored_positions(states.get(dataset.urn))]
        for name in dataset.names()
        if str(name[1]) in stored
    }


def stored_positions(state: DatasetState | None) -> Mapping[str, Position]:
    return state.watermark.positions if state is not None and state.watermark is not None else {}
