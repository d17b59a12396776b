"""A reference model of a whole job in plain Python: the records that must be published after given runs.

It knows no logs, files or tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark, as_offset
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource

Positions = dict[str, int]
Place = tuple[str, int]
"""Partition and offset."""
Release = Literal["retry", "accept", "abandon"]


@dataclass(slots=True)
class JobDataset:
    """Expected state of one dataset of a job.

    `published`: the expected count of each (partition, offset); above one only after an operator moved the watermark
    back. `unsure`: records of an accepted sequence; each may be there once. `high`: the end of an open sequence.
    `lost`: one of its staged files was lost.
    """

    status: str = "idle"
    watermark: Positions | None = None
    high: Positions | None = None
    undecided: bool = False
    lost: bool = False
    published: Counter[Place] = field(default_factory=Counter)
    unsure: Counter[Place] = field(default_factory=Counter)

    def commit(self, high: Positions) -> None:
        """Publish everything from the watermark to `high`, and move the watermark there."""
        self.published.update(places(self.watermark, high))
        self.forget(high)

    def forget(self, watermark: Positions | None) -> None:
        """Delete the open sequence."""
        self.status, self.watermark, self.high, self.undecided, self.lost = "idle", watermark, None, False, False

    def mismatch(self, found: Counter[Place]) -> str:
        """Return a mismatch of the found records; empty if there is none."""
        allowed = self.published + self.unsure + Counter(places(self.watermark, self.high or {}))
        if missing := self.published - found:
            return f"not published: {sorted(missing.elements())[:5]}"
        if extra := found - allowed:
            return f"published too much or too often: {sorted(extra.elements())[:5]}"
        return ""


class JobModel:
    """The expected output of a job.

    `run` applies an undisturbed run. After anything else `adopt` checks that the found state is possible, and takes it
    over. Callers that remove or restore files set `lost`.
    """

    def __init__(self) -> None:
        self.datasets: dict[str, JobDataset] = {}

    def of(self, urn: str) -> JobDataset:
        """Return the dataset; create it if it is new."""
        return self.datasets.setdefault(urn, JobDataset())

    def run(self, source: ModelSource, policy: CommitPolicy, *, job_level: bool) -> None:
        """Apply an undisturbed whole run: replay first, then the source's records."""
        for known in self.datasets.values():
            if known.status == "pending" and known.undecided:
                known.forget(known.watermark)
            elif known.status == "pending" and known.lost:
                known.status = "quarantined"
            elif known.status == "pending" and known.high is not None:
                known.commit(known.high)
        if job_level and any(known.status != "idle" for known in self.datasets.values()):
            return
        ready: dict[str, Positions] = {}
        failed = False
        for urn, dataset in source.datasets.items():
            if self.of(urn).status == "idle":
                high, wrong = reach(self.of(urn).watermark, dataset, policy)
                failed |= wrong
                if high is not None:
                    ready[urn] = high
        for urn, high in ready.items():
            if job_level and failed:
                known = self.of(urn)
                known.status, known.high, known.undecided = "pending", high, True
            else:
                self.of(urn).commit(high)

    def release(self, urn: str, how: Release) -> None:
        """Apply the release of a quarantined dataset."""
        dataset = self.of(urn)
        if how == "retry":
            dataset.status = "pending"
        elif how == "accept" and dataset.high is not None:
            dataset.unsure.update(places(dataset.watermark, dataset.high))
            dataset.forget(dataset.high)
        else:
            dataset.forget(dataset.watermark)

    def adopt(self, state: DatasetState, ends: Mapping[str, int], decided_epochs: Iterable[int]) -> str:
        """Take over a dataset's state after a disturbed run; return why that state is impossible, if it is.

        Args:
            state: the state in the log.
            ends: the largest number of records of each partition so far.
            decided_epochs: of the job log.
        """
        dataset = self.of(state.dataset_urn)
        now = positions(state.watermark)
        for partition, position in (dataset.watermark or {}).items():
            if now is None or now.get(partition, -1) < position:
                return f"the watermark of {state.dataset_urn} went back: {dataset.watermark} to {now}"
        sequence = state.sequence
        high = positions(sequence.high) if sequence is not None else None
        if any(position > ends[partition] for partition, position in {**(now or {}), **(high or {})}.items()):
            return f"{state.dataset_urn} is said to reach {now}, {high}; it ends at {ends}"
        if sequence is not None and positions(sequence.low) != now:
            return f"{state.dataset_urn} is sealed on {sequence.low}, its watermark is {now}"
        if now is not None and now != dataset.watermark:
            dataset.commit(now)
        dataset.status, dataset.high, dataset.lost = state.status.value, high, False
        held = state.open is not None and state.open.held
        dataset.undecided = sequence is not None and held and sequence.epoch not in set(decided_epochs)
        return ""


def positions(watermark: Watermark | None) -> Positions | None:
    """Return a watermark of integer positions as a plain dict."""
    return None if watermark is None else {partition: as_offset(p) for partition, p in watermark.positions.items()}


def places(low: Mapping[str, int] | None, high: Mapping[str, int]) -> Iterator[Place]:
    """Yield every (partition, offset) from one watermark to another; a new partition begins at 0."""
    for partition, end in high.items():
        yield from ((partition, offset) for offset in range((low or {}).get(partition, 0), end))


def reach(low: Positions | None, dataset: ModelDataset, policy: CommitPolicy) -> tuple[Positions | None, bool]:
    """Return the end of an undisturbed run for a dataset (None: no progress), and whether a part of it failed."""
    before = dict(low or {})
    high = {**dict.fromkeys(dataset.partitions, 0), **before}
    read = failed = won = 0
    for partition, end in dataset.partitions.items():
        first, new = before.get(partition, 0), partition not in before
        cuts = [first + (end - first) * place // dataset.units for place in range(dataset.units + 1)]
        units = [(a, b) for a, b in pairwise(cuts) if a < b] or ([(first, end)] if new else [])
        if partition in dataset.fails:
            failed += len(units)
            continue
        bad = dataset.bad.get(partition, -1)
        for begin, stop in units:
            reached = max(begin, stop - dataset.short)
            if begin <= bad < reached:
                failed, reached = failed + 1, bad
                if policy is not CommitPolicy.PARTIAL or begin == bad:
                    continue
            read += 1
            if begin == high[partition]:
                won, high[partition] = won + 1, reached
    if failed and (policy is CommitPolicy.FULL or not won):
        return None, True
    return (None if not read or high == low else high), False
