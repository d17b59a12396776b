"""Planner of all topics, with one metadata request; a topic's problem does not affect the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, Protocol

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import DatasetProblem, Planned, SkippedDataset, SourceState
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.records.log_records import DatasetStatus
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.kafka.client import KafkaConnection, KafkaQueries
from distcommit.sources.kafka.plan_dataset import (
    PlanRules,
    expiry_error,
    limited_to_reread,
    plan_dataset,
    planned_log,
    read_to,
    stored_positions,
    unreadable,
)
from distcommit.sources.kafka.read_topic_ids import topic_ids
from distcommit.sources.kafka.topics import KafkaDataset, Start, TopicSelection, UnknownTopicId, no_such_topic
from distcommit.sources.plan_error import PlanError

_CHUNK = 256
_ANOTHER_CLUSTER = (
    "correct source.brokers. Offsets of another cluster refer to other records: to read it, give the job new folders"
    " (paths), and begin at source.start or import positions of that cluster (distcommit migrate import-watermarks"
    " JOB.yaml --from POSITIONS.csv, or --kafka-group NAME)."
)
_INTERNAL = (
    "a pattern matches it, but its name is internal to Kafka; add it to source.topics to read it, or to source.exclude"
    " to hide this line"
)


class PlannedSource(PlanRules, Protocol):
    @property
    def topics(self) -> Sequence[str]:
        """Topics that the job file names."""

    @property
    def dataset(self) -> Literal["topic", "partition"]:
        """Whether a dataset is a topic or a partition."""

    @property
    def start(self) -> Start:
        """Where a new topic begins."""

    @property
    def selection(self) -> TopicSelection:
        """The topics of the job."""

    def connection(self) -> KafkaConnection:
        """Return the settings to connect to the brokers."""


def plan_datasets(source: PlannedSource, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
    """Yield plans of owned, idle datasets with new records, problems, and the cluster's id as a fact.

    Raises:
        SourceError: if no broker responds.
        ConfigurationError: if librdkafka rejects the settings.
    """
    queries = KafkaQueries(source.connection())
    selected = list(_datasets(source, queries, owned, states))
    if queries.cluster_id:
        yield SourceFact("cluster", FixedSetting(queries.cluster_id, _ANOTHER_CLUSTER))
    yield from (problem for problem in selected if not isinstance(problem, KafkaDataset))
    datasets = (dataset for dataset in selected if isinstance(dataset, KafkaDataset))
    while chunk := list(islice(datasets, _CHUNK)):
        yield from _plan_chunk(source, queries, chunk, states)


def _plan_chunk(
    source: PlannedSource, queries: KafkaQueries, chunk: Sequence[KafkaDataset], states: SourceState
) -> Iterator[DatasetPlan | DatasetProblem]:
    names = [name for dataset in chunk for name in dataset.names()]
    unseen = [name for dataset in chunk for name in dataset.names() if not stored_positions(states.get(dataset.urn))]
    ids: Mapping[str, str | UnknownTopicId] = {}
    if queries.knows_topic_ids:  # before the offsets: the extractor compares the id again after reading
        ids = topic_ids(source.connection(), queries.admin, {dataset.topic for dataset in chunk})
    start_time = None if isinstance(source.start, str) else source.start
    all_offsets = queries.logs(names, start_time, unseen, read_to(chunk, states))
    for dataset in chunk:
        logs = {name[1]: planned_log(all_offsets[name], source.start) for name in dataset.names()}
        state, topic_id = states.get(dataset.urn), ids.get(dataset.topic, "")
        retried_end = states.to_read_again(dataset.urn)
        try:
            if isinstance(topic_id, UnknownTopicId):
                raise unreadable(dataset.urn, f"its topic id: {topic_id.error}")
            is_new = state is None or (state.watermark is None and not state.done_epoch)
            followed = is_new and any(stored_positions(states.anywhere(urn)) for urn in dataset.of_topic)
            limited = limited_to_reread(retried_end, logs, state, topic_id)
            most = states.records_per_dataset
            planned = plan_dataset(source, dataset.urn, limited, state, topic_id, topic_followed=followed, most=most)
        except SourceError as error:
            remedy = error.remedy if isinstance(error, PlanError) else ()
            yield DatasetProblem(dataset.urn, str(error), remedy)
            continue
        if source.expired_offsets == "skip" and (loss := expiry_error(dataset.urn, logs, state)) is not None:
            yield DatasetProblem(dataset.urn, str(loss), loss.remedy)
        if planned is not None:
            yield planned


def _datasets(
    source: PlannedSource, queries: KafkaQueries, owned: Callable[[str], bool], states: SourceState
) -> Iterator[KafkaDataset | DatasetProblem | SkippedDataset]:
    select = source.selection
    missing = {topic for topic in source.topics if topic in select}
    for topic in queries.topics():
        name = topic.topic
        missing.discard(name)
        if source.dataset == "topic" and not owned(name):  # the cheapest check first: most topics belong to others
            continue
        if select.skips_internal(name) and owned(name):
            yield SkippedDataset(name, _INTERNAL)
        if name not in select:
            continue
        if topic.error or not topic.partitions:
            if owned(name):
                yield DatasetProblem(name, str(unreadable(name, topic.error or "no partitions")))
            continue
        for dataset in topic.datasets(source.dataset):
            state = states.get(dataset.urn)
            busy = state is not None and (state.status is not DatasetStatus.IDLE or state.is_stopped)
            if busy or not owned(dataset.urn):
                continue
            leaderless = sorted(topic.leaderless.intersection(dataset.partitions))
            yield _without_leaders(dataset.urn, leaderless) if leaderless else dataset
    for name in sorted(filter(owned, missing)):
        yield DatasetProblem(name, str(no_such_topic(name)))


def _without_leaders(urn: str, partitions: list[int]) -> DatasetProblem:
    return DatasetProblem(urn, str(unreadable(urn, f"no leader for partitions {partitions}")))
