"""Kafka as a source: which topics, from where, how much, and the plan that follows from it."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from distcommit.model.errors import ConfigurationError, DistcommitError, SourceError
from distcommit.model.log_records import DatasetState, DatasetStatus
from distcommit.model.pins import Pin, SourceFact
from distcommit.model.source import DatasetProblem, KnownStates, PassedOver, Planned, Provenance, Source
from distcommit.model.watermark import Position, Watermark
from distcommit.model.work import DatasetPlan, SkippedRange, WorkUnit
from distcommit.sources.kafka_by_hand import position_problems
from distcommit.sources.kafka_names import (
    MAX_BYTES,
    OWNED_KEYS,
    KafkaDataset,
    PartitionLog,
    TopicSelection,
    Unanswered,
    no_such_topic,
    topic_named_by,
)
from distcommit.sources.secret_files import SECRET_FILE, with_secret_files

if TYPE_CHECKING:
    from distcommit.sources.kafka_client import KafkaConnection, KafkaQueries
    from distcommit.sources.kafka_extractor import KafkaExtractor

logger = logging.getLogger(__name__)

_CHUNK = 256
_ASKED_S = 3.0
_ANOTHER_CLUSTER = (
    "correct source.brokers. Offsets of another cluster count other records: to read that one, give the job new folders"
    " (paths), and begin at source.start, or import positions that count in it (distcommit import-watermarks JOB.yaml"
    " --from POSITIONS.csv, or --kafka-group NAME)."
)
_INTERNAL = (
    "a pattern matches it, but such names are Kafka's own: source.topics includes it, source.exclude silences this"
)
Range = tuple[int, int, int]
"""Partition, first offset, and the offset after the last."""


class KafkaSource(BaseModel, Source):
    """Topics of one Kafka cluster. A dataset is a topic, or `<topic>@<partition>`; positions are offsets.

    Attributes:
        type: `kafka`.
        brokers: `host:port` of brokers to begin with, separated by commas.
        topics: names of topics. One that does not exist is reported, in every run.
        topic_patterns: regular expressions that match whole names. They never match names that begin with `__`, which
            are Kafka's own: list those in `topics`.
        exclude: names of topics to leave out, also if they are in `topics`.
        exclude_patterns: regular expressions, matching whole names, of topics to leave out.
        dataset: what is committed together: a topic with all its partitions, or each partition by itself.
        start: where the partitions of a topic begin that was never read: `earliest`, `latest`, or an ISO 8601 time with
            its time zone (the first record of that time or later, `latest` if there is none). A partition that is added
            later begins at its beginning; `expired_offsets` counts for it, from offset 0.
        expired_offsets: what to do if Kafka has deleted records before they were read: `fail` leaves the whole dataset
            out of the run, with its reason, and `skip` only the partition, until a person sets its watermark;
            `earliest` and `nearest` go on with the oldest record that is left, `latest` behind the newest. What they
            pass over is recorded as lost. With any of them a position behind the end of a partition stops the dataset,
            since its offsets are no longer those that were read, and watermarks never move back by themselves: the
            reason names the nearest positions, for a person to set.
        records_per_work_unit: how large work units should be. Partitions of a topic are packed together up to this,
            and share output files; a larger partition is split into ranges.
        records_per_dataset: how many offsets of a dataset one run reads, 0 for all; shared fairly by its partitions.
        bytes_per_dataset: about how many bytes of a dataset one run reads, 0 for all, shared by its work units. With
            this limit partitions are not split, since a range is useless if the one before it stops early.
        idle_timeout_s: how long a work unit waits without any progress before it fails.
        request_timeout_s: how long a request for metadata or offsets may take.
        client: further settings for librdkafka, such as `sasl.password`. Values are masked wherever they could show.
            `${file:PATH}` in a value stands for what that file holds, read by each process that connects.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provenance: ClassVar[Provenance | None] = Provenance(
        "kafka_partition", "kafka_offset", thing_of=topic_named_by, unique_incarnations=True
    )

    type: Literal["kafka"]
    brokers: str = Field(min_length=1)
    topics: tuple[str, ...] = ()
    topic_patterns: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    dataset: Literal["topic", "partition"] = "topic"
    start: Literal["earliest", "latest"] | AwareDatetime = "earliest"
    expired_offsets: Literal["fail", "skip", "earliest", "latest", "nearest"] = "fail"
    records_per_work_unit: int = Field(default=1_000_000, ge=1)
    records_per_dataset: int = Field(default=0, ge=0)
    bytes_per_dataset: int = Field(default=0, ge=0)
    idle_timeout_s: float = Field(default=30, gt=0)
    request_timeout_s: float = Field(default=10, gt=0)
    client: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("topic_patterns", "exclude_patterns")
    @classmethod
    def _compiles(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns

    @field_validator("client", mode="before")
    @classmethod
    def _client_is_not_ours(cls, client: Any) -> Any:
        if not isinstance(client, Mapping):
            return client
        if taken := sorted(OWNED_KEYS.intersection(client)):
            raise ConfigurationError(
                "source.client has settings that the source itself decides",
                expected="only settings that do not change what is read, and how far",
                found=", ".join(taken),
                todo="remove them; see source.brokers, source.start and source.expired_offsets",
            )
        texts = {key: str(v).lower() if isinstance(v, bool | int | float) else v for key, v in client.items()}
        for key, text in texts.items():
            for path in SECRET_FILE.findall(text) if isinstance(text, str) else ():
                if not path.startswith("/"):
                    raise ConfigurationError(
                        "a secret's file has to be named by an absolute path", key=key, found=f"${{file:{path}}}"
                    )
        return texts

    @model_validator(mode="after")
    def _has_topics(self) -> KafkaSource:
        if not self.topics and not self.topic_patterns:
            raise ValueError("topics or topic_patterns must name at least one topic")
        return self

    def pins(self) -> Mapping[str, Pin]:
        """What names datasets. The cluster is pinned by its id, which `plan` finds: brokers may be renamed."""
        return {"dataset": Pin(self.dataset)}

    def plan(self, owned: Callable[[str], bool], states: Mapping[str, DatasetState]) -> Iterator[Planned]:
        """Plans owned datasets that are idle and have something new, with one metadata request for all.

        A topic's problem is its own: it is reported, and the others are planned. Topics that a pattern matched once and
        that are gone are left alone, with their watermarks. One that was deleted and made again, as its id tells, is
        a problem: its offsets count other records.

        Raises:
            SourceError: if no broker answers within `request_timeout_s`.
            ConfigurationError: if librdkafka refuses the client settings.
        """
        from distcommit.sources.kafka_client import KafkaQueries  # noqa: PLC0415 - a job file is read without a client

        queries = KafkaQueries(self.connection())
        found = list(self._datasets(queries, owned, states))
        if queries.cluster_id:
            yield SourceFact("cluster", Pin(queries.cluster_id, _ANOTHER_CLUSTER))
        yield from (told for told in found if not isinstance(told, KafkaDataset))
        datasets = (dataset for dataset in found if isinstance(dataset, KafkaDataset))
        while chunk := list(islice(datasets, _CHUNK)):
            yield from self._plan_chunk(queries, chunk, states)

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Offsets by partition of the job's topics; that a partition is there, only if the brokers answer soon."""
        from distcommit.sources.kafka_client import KafkaQueries  # noqa: PLC0415 - a job file is read without a client

        asked = replace(self.connection(), request_timeout_s=min(self.request_timeout_s, _ASKED_S))
        partitions: dict[str, tuple[int, ...]] = {}
        if datasets:
            try:
                partitions = {found.topic: found.partitions for found in KafkaQueries(asked).topics()}
            except DistcommitError as error:
                logger.warning("whether partitions are there is not known: %s", error)
        yield from position_problems(datasets, self.selection, partitions, by_partition=self.dataset == "partition")

    def open(self) -> KafkaExtractor:
        """A connected extractor.

        Raises:
            TransientError: if no broker answers within `request_timeout_s`.
            ConfigurationError: if librdkafka refuses the client settings.
        """
        from distcommit.sources.kafka_extractor import KafkaExtractor  # noqa: PLC0415 - a job file is read without a client

        return KafkaExtractor(self.connection(), self.idle_timeout_s)

    @property
    def selection(self) -> TopicSelection:
        """The topics of the job."""
        return TopicSelection(self.topics, self.topic_patterns, self.exclude, self.exclude_patterns)

    def dataset_of(self, topic: str, partition: str) -> str:
        """The URN of the dataset that a partition belongs to."""
        return topic if self.dataset == "topic" else f"{topic}@{partition}"

    def topic_of(self, urn: str) -> str:
        """The topic of a dataset."""
        return urn if self.dataset == "topic" else urn.rpartition("@")[0]

    def connection(self) -> KafkaConnection:
        """How to reach the brokers."""
        from distcommit.sources.kafka_client import KafkaConnection  # noqa: PLC0415 - a job file is read without a client

        client = {key: with_secret_files(value.get_secret_value()) for key, value in self.client.items()}
        return KafkaConnection(self.brokers, client, self.request_timeout_s)

    def _datasets(
        self, queries: KafkaQueries, owned: Callable[[str], bool], states: Mapping[str, DatasetState]
    ) -> Iterator[KafkaDataset | DatasetProblem | PassedOver]:
        """The owned, idle datasets that can be asked about, problems of those that can't, and what is passed over."""
        select = self.selection
        missing = {topic for topic in self.topics if topic in select}
        for found in queries.topics():
            missing.discard(found.topic)
            if select.passes_over(found.topic) and owned(found.topic):
                yield PassedOver(found.topic, _INTERNAL)
            if found.topic not in select:
                continue
            if found.error or not found.partitions:
                if owned(found.topic):
                    yield DatasetProblem(found.topic, str(_unreadable(found.topic, found.error or "no partitions")))
                continue
            for dataset in found.datasets(self.dataset):
                state = states.get(dataset.urn)
                if not owned(dataset.urn) or (state is not None and state.status is not DatasetStatus.IDLE):
                    continue
                leaderless = sorted(found.leaderless.intersection(dataset.partitions))
                error = _unreadable(dataset.urn, f"no leader for partitions {leaderless}")
                yield DatasetProblem(dataset.urn, str(error)) if leaderless else dataset
        for topic in sorted(filter(owned, missing)):
            yield DatasetProblem(topic, str(no_such_topic(topic)))

    def _plan_chunk(
        self, queries: KafkaQueries, chunk: Sequence[KafkaDataset], states: Mapping[str, DatasetState]
    ) -> Iterator[DatasetPlan | DatasetProblem]:
        names = [name for dataset in chunk for name in dataset.names()]
        unseen = [name for dataset in chunk for name in dataset.names() if not _stored(states.get(dataset.urn))]
        ids: Mapping[str, str | Unanswered] = {}
        if queries.knows_topic_ids:  # asked before the offsets: what is read is held against it again
            from distcommit.sources.kafka_topic_ids import topic_ids  # noqa: PLC0415 - a job file is read without a client

            ids = topic_ids(self.connection(), queries.admin, {dataset.topic for dataset in chunk})
        found = queries.logs(names, self.start, unseen)
        look_up = states.anywhere if isinstance(states, KnownStates) else states.get
        for dataset in chunk:
            logs = {name[1]: found[name] for name in dataset.names()}
            state, topic_id = states.get(dataset.urn), ids.get(dataset.topic, "")
            try:
                if isinstance(topic_id, Unanswered):
                    raise _unreadable(dataset.urn, f"its topic id: {topic_id.error}")
                followed = state is None and any(_stored(look_up(urn)) for urn in dataset.of_topic)
                planned = plan_dataset(self, dataset.urn, logs, state, topic_id, topic_followed=followed)
            except SourceError as error:
                yield DatasetProblem(dataset.urn, str(error))
                continue
            if self.expired_offsets == "skip" and (expired := _expired(dataset.urn, logs, state)) is not None:
                yield DatasetProblem(dataset.urn, str(expired))
            if planned is not None:
                yield planned


def plan_dataset(
    source: KafkaSource,
    urn: str,
    logs: Mapping[int, PartitionLog | str],
    state: DatasetState | None,
    topic_id: str = "",
    *,
    topic_followed: bool = False,
) -> DatasetPlan | None:
    """The plan of one dataset from what its partitions hold (or the error of one); None if there is nothing to do.

    A partition without a stored position gets a work unit even if it is empty, so that its position is stored. It
    begins where the source's `start` says, but at offset 0 if others of its dataset have positions: then it was added
    while they were read. If others of its topic are datasets that have positions (`topic_followed`), it may also be one
    that could not be read when they were: it begins at the oldest record, and what was deleted before that is recorded
    as lost, whatever `expired_offsets` says, but `latest`. A stored watermark without a topic id (from a cluster
    without them, or set by hand) counts for the topic that is there.

    Raises:
        SourceError: if a partition has an error, a stored position does not fit what it holds, or the topic is not the
            one that the stored positions count in.
    """
    stored = _stored(state)
    planned_low = state.watermark if state is not None else None
    if planned_low is not None and planned_low.incarnation not in ("", topic_id):
        if not topic_id:
            raise _unreadable(urn, "its topic id: the cluster shows no controller to ask")
        raise _made_again(urn, f"topic id {planned_low.incarnation}", f"topic id {topic_id}")
    if not stored.keys() <= {str(partition) for partition in logs}:
        raise _made_again(urn, f"partitions {', '.join(stored)}", f"{len(logs)} partitions")
    start: dict[str, Position] = {}
    skipped: list[SkippedRange] = []
    ranges: list[Range] = []
    for partition, log in logs.items():
        if isinstance(log, str):
            raise _unreadable(urn, f"partition {partition}: {log}")
        if stored:
            position = stored.get(str(partition), 0)
            if not isinstance(position, int) or position > log.high:
                expected, found = f"offset {position!r} of partition {partition}", f"offsets {log.low} to {log.high}"
                raise _made_again(urn, expected, found, _nearest(stored, logs))
            low = position
            if low < log.low:
                if source.expired_offsets == "skip":
                    continue
                skipped.append(_given_up(source, urn, partition, low, log, topic_id))
                low = int(skipped[-1].high)
            if str(partition) not in stored:
                start[str(partition)] = 0
        elif topic_followed:
            low = start[str(partition)] = 0
            if low < log.low:
                why = "the partition is new, and others of its topic were read before"
                skipped.append(_passed_over(source, partition, low, log, topic_id, why))
                low = int(skipped[-1].high)
        else:
            low = start[str(partition)] = log.begin
        ranges.append((partition, low, log.high))
    shares = fair_shares([high - low for _, low, high in ranges], source.records_per_dataset)
    kept = {*start, *(skip.partition for skip in skipped)}
    taken = [(p, low, low + n) for (p, low, _), n in zip(ranges, shares, strict=True) if n or str(p) in kept]
    units: list[WorkUnit] = []
    for packed in pack(taken, source.records_per_work_unit, split=not source.bytes_per_dataset):
        low_mark = Watermark({str(p): low for p, low, _ in packed}, topic_id)
        high_mark = Watermark({str(p): high for p, _, high in packed}, topic_id)
        size = sum(high - low for _, low, high in packed)
        share = max(1, source.bytes_per_dataset * size // max(1, sum(shares)))
        properties = {MAX_BYTES: str(share)} if source.bytes_per_dataset else {}
        units.append(WorkUnit(str(len(units)), urn, low_mark, high_mark, size, properties))
    if not units:
        return None
    return DatasetPlan(urn, planned_low, Watermark(start, topic_id), tuple(units), tuple(skipped))


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
        for place, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
            shares[index] = min(sizes[index], limit // (len(sizes) - place))
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
            nearest[str(partition)] = min(max(position, log.low), log.high)
    return nearest


def _given_up(
    source: KafkaSource, urn: str, partition: int, position: int, log: PartitionLog, topic_id: str
) -> SkippedRange:
    """What is lost by going on where the source's policy says."""
    if source.expired_offsets not in ("earliest", "latest", "nearest"):
        raise _deleted(urn, partition, position, log)
    why = f"expired_offsets is {source.expired_offsets}"
    return _passed_over(source, partition, position, log, topic_id, why)


def _passed_over(
    source: KafkaSource, partition: int, position: int, log: PartitionLog, topic_id: str, why: str
) -> SkippedRange:
    low = log.high if source.expired_offsets == "latest" else log.low
    reason = f"expired: Kafka holds offsets {log.low} to {log.high}; {why}"
    return SkippedRange(str(partition), position, low, reason, incarnation=topic_id)


def _expired(urn: str, logs: Mapping[int, PartitionLog | str], state: DatasetState | None) -> SourceError | None:
    """The error that tells of the first partition whose records were deleted before they were read."""
    stored = _stored(state)
    for partition, log in logs.items():
        position = stored.get(str(partition), 0) if stored else None
        if isinstance(log, PartitionLog) and isinstance(position, int) and position < log.low:
            return _deleted(urn, partition, position, log)
    return None


def _deleted(urn: str, partition: int, position: int, log: PartitionLog) -> SourceError:
    return SourceError(
        "Kafka has deleted records before they were read",
        dataset=urn,
        partition=partition,
        expected=f"offset {position}",
        found=f"offsets {log.low} to {log.high}; {log.low - position} are gone (expired)",
        todo="set source.expired_offsets to earliest (or nearest) or latest (the loss is recorded) or set the"
        " watermark by hand",
    )


def _made_again(urn: str, expected: str, found: str, nearest: Mapping[str, int] = MappingProxyType({})) -> SourceError:
    positions = f", to {json.dumps(nearest)} to go on at the nearest offsets" if nearest else ""
    return SourceError(
        "the stored position is not in the topic",
        dataset=urn,
        expected=expected,
        found=found,
        todo="the topic was truncated or made again (or isolation.level changed): set the dataset's watermark by hand"
        f" (distcommit set-watermark), to null to begin at source.start{positions}",
    )


def _unreadable(urn: str, error: str) -> SourceError:
    todo = "see to the topic or its brokers and run again; its watermark is kept"
    return SourceError("the brokers can't serve the dataset now", dataset=urn, found=error, todo=todo)


def _stored(state: DatasetState | None) -> Mapping[str, Position]:
    return state.watermark.positions if state is not None and state.watermark is not None else {}
