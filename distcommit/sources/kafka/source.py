"""Settings of the Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import AwareDatetime, ConfigDict, Field, SecretStr, field_validator

from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import (
    GroupPositions,
    Lag,
    Planned,
    SourceState,
    stored_incarnations,
)
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.records.log_records import DatasetState
from distcommit.core.support.comparable_addresses import broker_addresses
from distcommit.core.support.setting_checks import check_client_settings, check_patterns
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.core.watermark import Position
from distcommit.fs.database_credentials import checking_credentials
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sources.described_source import DescribedSource
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA
from distcommit.sources.kafka.check_set_positions import is_number, position_problems
from distcommit.sources.kafka.topics import (
    OWNED_KEYS,
    TopicSelection,
    topic_of_dataset,
)
from distcommit.sources.missing_dataset_check import require_listed

if TYPE_CHECKING:
    import pyarrow as pa

    from distcommit.sources.kafka.client import KafkaConnection
    from distcommit.sources.kafka.extractor import KafkaExtractor

logger = logging.getLogger(__name__)

_SHORT_TIMEOUT_S, _CHECK_TIMEOUT_S = 3.0, 10.0
_OR_DESCRIBE = ", or grant this user DESCRIBE on them"


class KafkaSource(DescribedSource):
    """Topics of one Kafka cluster. A dataset is a topic, or `<topic>@<partition>`; positions are offsets.

    Attributes:
        type: `kafka`.
        brokers: `host:port` of some brokers, separated by commas.
        topics: names of topics. Each run reports those that do not exist.
        topic_patterns: regular expressions for whole names. They never match names that begin with `__`, which are
            internal to Kafka; list those in `topics`.
        exclude: names of topics to leave out, even if they are in `topics`.
        exclude_patterns: regular expressions for whole names of topics to leave out.
        dataset: what is committed together: a topic with all its partitions, or each partition by itself.
        start: where a topic that was never read begins: `earliest`, `latest`, or an ISO 8601 time with a time zone (the
            first record at or after that time, or `latest` if there is none). A partition that is added later begins at
            offset 0, and `expired_offsets` applies to it.
        expired_offsets: policy for records that Kafka deleted before they were read. `fail` leaves the whole dataset
            out of the run and reports the reason. `skip` leaves out only the partition, until an operator sets its
            watermark. `earliest` and `nearest` continue with the oldest existing record, `latest` after the newest; the
            skipped records are recorded as lost. With any policy, a position beyond the end of a partition stops the
            dataset, because its offsets now belong to other records and watermarks never move back by themselves. The
            reason names the nearest positions for an operator to set.
        records_per_work_unit: approximate records of a work unit. Smaller partitions of a topic are packed together and
            share output files; larger ones are split into ranges.
        records_per_dataset: maximum offsets of a dataset per run, shared fairly by its partitions; 0 for no limit.
        bytes_per_dataset: approximate maximum bytes of a dataset per run, shared by its work units; 0 for no limit.
            With a limit, partitions are not split, because a range is useless if the one before it stops early.
        idle_timeout_s: seconds without progress after which a work unit fails.
        request_timeout_s: time limit in seconds of a metadata or offset request.
        client: further librdkafka settings, such as `sasl.password`. Values are masked in all output. `${file:PATH}` in
            a value stands for the file's content, read by each process that connects.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    provenance: ClassVar[Provenance | None] = Provenance(
        "kafka_partition", "kafka_offset", offset_space_of=topic_of_dataset, unique_incarnations=True
    )
    size_unit: ClassVar[Literal["", "records", "bytes"]] = "records"

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

    _compile = field_validator("topic_patterns", "exclude_patterns")(check_patterns)

    @field_validator("client", mode="before")
    @classmethod
    def _client_is_not_ours(cls, client: Any) -> Any:
        required = "must not be set, because the source controls which records are read"
        remedy = "use source.brokers, source.start or source.expired_offsets"
        return check_client_settings(client, OWNED_KEYS, required, remedy)

    _check_files = field_validator("client")(check_secret_files)

    @rule
    def _has_topics(self) -> Iterator[SettingError]:
        if not self.topics and not self.topic_patterns:
            yield SettingError("must name at least one topic", remedy="set topics or topic_patterns")

    @property
    def batch_schema(self) -> pa.Schema:
        return BATCH_SCHEMA

    def extract_of(self, dataset_urn: str) -> Extract:
        columns = (self.provenance.partition_column, self.provenance.offset_column) if self.provenance else ()
        topic = topic_of_dataset(dataset_urn)
        return self.described(Extract("kafka", topic, TableType.APPEND_ONLY, columns, columns[1:]))

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        """Return the setting that names datasets; `plan` reports the cluster's id, because brokers may be renamed."""
        return {"dataset": FixedSetting(self.dataset)}

    @property
    def named_by(self) -> str:
        return "dataset"

    def current_name(self, dataset_urn: str, partition: str) -> str:
        return self.dataset_of(topic_of_dataset(dataset_urn), partition)

    def selects(self, dataset_urn: str, partition: str) -> bool:
        topic = topic_of_dataset(dataset_urn)
        return is_number(partition) and topic in self.selection and dataset_urn == self.dataset_of(topic, partition)

    def reads(self, target: Target) -> bool:
        return target.kind == "topic" and target.name in self.selection and target.is_in(broker_addresses(self.brokers))

    @property
    def named_datasets(self) -> Sequence[str]:
        return self.topics if self.dataset == "topic" else ()

    @property
    def location(self) -> str:
        return f"kafka://{self.brokers.partition(',')[0]}"

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        """Plan owned, idle datasets with new records.

        A deleted topic that matched a pattern keeps its watermark and is skipped. A recreated topic is a problem,
        because its offsets refer to other records.

        Raises:
            SourceError: if no broker responds within `request_timeout_s`.
            ConfigurationError: if librdkafka rejects the settings.
        """
        from distcommit.sources.kafka.plan_topics import plan_datasets  # noqa: PLC0415 - a job file is read without a client

        yield from plan_datasets(self, owned, states)

    def check_connection(self) -> str:
        """Request the topics, and return the number of selected ones as text.

        Raises:
            ConfigurationError: if the brokers reject the user, the password or the SASL mechanism.
            SourceError: if no broker responds within 10 s, or a topic of `topics` is missing.
        """
        from distcommit.sources.kafka.client import KafkaQueries  # noqa: PLC0415 - a job file is read without a client

        connection = replace(self.connection(), request_timeout_s=min(self.request_timeout_s, _CHECK_TIMEOUT_S))
        with checking_credentials():
            names = {topic.topic for topic in KafkaQueries(connection).topics()}
        selection = self.selection
        selected = len([name for name in names if name in selection])
        missing = sorted(name for name in {*self.topics} - names if name in selection)
        require_listed("topics", missing, names, id="SOURCE_TOPIC_MISSING", selected=selected, todo=_OR_DESCRIBE)
        return f"{selected:,} of {len(names):,} topics selected"

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Yield the problems of invalid positions. If no broker responds within 3 s, any partition is accepted."""
        from distcommit.sources.kafka.read_topic_ids import partitions_of  # noqa: PLC0415 - a job file is read without a client

        partitions = partitions_of(_impatient(self)) if datasets else {}
        yield from position_problems(datasets, self.selection, partitions, by_partition=self.dataset == "partition")

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        from distcommit.sources.kafka.read_topic_ids import ids_of  # noqa: PLC0415 - a job file is read without a client

        return stored_incarnations(states, ids_of(_impatient(self), {urn: topic_of_dataset(urn) for urn in states}))

    def group_positions(self, group: str) -> GroupPositions:
        from distcommit.sources.kafka.group_positions import group_positions  # noqa: PLC0415 - a job file is read without a client

        return group_positions(self.connection(), self.selection, self.dataset, group)

    def lags(self, states: Mapping[str, DatasetState]) -> Iterator[Lag]:
        from distcommit.sources.kafka.lag import dataset_lags  # noqa: PLC0415 - a job file is read without a client

        yield from dataset_lags(self.connection(), self.dataset, states)

    def open(self) -> KafkaExtractor:
        """Return a connected extractor; raises the errors of its constructor."""
        from distcommit.sources.kafka.extractor import KafkaExtractor  # noqa: PLC0415 - a job file is read without a client

        return KafkaExtractor(self.connection(), self.idle_timeout_s)

    @property
    def selection(self) -> TopicSelection:
        return TopicSelection(self.topics, self.topic_patterns, self.exclude, self.exclude_patterns)

    def dataset_of(self, topic: str, partition: str) -> str:
        return topic if self.dataset == "topic" else f"{topic}@{partition}"

    def connection(self) -> KafkaConnection:
        """Return settings to connect; raises ConfigurationError if a secret file is unreadable."""
        from distcommit.sources.kafka.client import KafkaConnection  # noqa: PLC0415 - a job file is read without a client

        client = {key: with_secret_files(value.get_secret_value()) for key, value in self.client.items()}
        return KafkaConnection(self.brokers, client, self.request_timeout_s)


def _impatient(source: KafkaSource) -> KafkaConnection:
    return replace(source.connection(), request_timeout_s=min(source.request_timeout_s, _SHORT_TIMEOUT_S))
