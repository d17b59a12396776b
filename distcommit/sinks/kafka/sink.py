"""The sink of Kafka topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import ConfigDict, Field, SecretStr, field_validator

from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.sink import Abilities, AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.support.comparable_addresses import broker_addresses
from distcommit.core.support.setting_checks import check_client_settings
from distcommit.core.support.settings_model import SettingError, SettingsModel, rule
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.fs.database_credentials import checking_credentials
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.base.table_names import DATASET
from distcommit.sinks.kafka import messages
from distcommit.sinks.kafka.topic_names import id_number, is_topic, topic_of

if TYPE_CHECKING:
    from distcommit.sinks.kafka.client import KafkaTarget

_SHORT_TIMEOUT_S = 10.0
_OWNED = frozenset(
    (
        "bootstrap.servers",
        "metadata.broker.list",
        "transactional.id",
        "transaction.timeout.ms",
        "enable.idempotence",
        "acks",
        "request.required.acks",
        "delivery.report.only.error",
        "isolation.level",
        "group.id",
        "enable.auto.commit",
        "enable.partition.eof",
        "auto.offset.reset",
    )
)


class KafkaSink(SettingsModel, CommitterSink, SinkSettings):
    """Topics of one Kafka cluster (2.8 or newer).

    Attributes:
        type: `kafka`.
        brokers: `host:port` of some brokers, separated by commas.
        topic: topic of a dataset; `{dataset}` stands for the dataset's name. Without it all datasets share a topic.
        create: whether missing topics are created, with the brokers' defaults.
        ledger: compacted topic with the record of all commits; a missing one is created. Each job should have its own,
            as a committer reads the rows of all jobs of its ledger.
        transactional_ids: number of concurrent transactions of the job, and of partitions of the ledger. Each dataset
            always has the same transactional id.
        format: `bytes`: the message's value is the column `value`. `json`: it is an object of all columns that no other
            setting names.
        key: column of bytes or text with the key; empty for messages without keys.
        value: column of bytes or text with the value.
        headers: column with the headers; empty for messages without headers.
        timestamp: column with the timestamp; empty for the time of sending.
        partition: column with the partition; empty to let the client choose by the key.
        transaction_timeout_s: time after which the brokers abort an unfinished transaction, in seconds. All records
            that a run commits of a dataset are sent in one transaction within this time. Readers wait as long for a
            transaction of a killed run.
        request_timeout_s: time limit of a request, in seconds.
        client: further settings of librdkafka, such as `sasl.password`, as for a Kafka source.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    name: ClassVar[str] = "kafka"
    abilities: ClassVar[Abilities] = Abilities(audit=True, can_roll_back=False)

    type: Literal["kafka"]
    brokers: str = Field(min_length=1)
    topic: str
    create: bool = False
    ledger: str
    transactional_ids: int = Field(default=16, ge=1, le=1000)
    format: Literal["bytes", "json"] = "bytes"
    key: str = "key"
    value: str = "value"
    headers: str = ""
    timestamp: str = ""
    partition: str = ""
    transaction_timeout_s: int = Field(default=60, ge=1, le=900)
    request_timeout_s: float = Field(default=30, gt=0)
    client: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("client", mode="before")
    @classmethod
    def _client_is_not_ours(cls, client: Any) -> Any:
        required = "must not be set, because exactly-once delivery depends on it"
        return check_client_settings(client, _OWNED, required, "remove it")

    _check_files = field_validator("client")(check_secret_files)

    @rule
    def _names_topics(self) -> Iterator[SettingError]:
        for setting, name in (("topic", self.topic.replace(DATASET, "a")), ("ledger", self.ledger)):
            if not is_topic(name) or len(name) > 200:
                yield SettingError("must be a topic's name of at most 200 letters, digits, '.', '_' and '-'", setting)
        if self.topic == self.ledger:
            yield SettingError("must be another topic than topic", "ledger")

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"ledger": FixedSetting(self.ledger), "transactional_ids": FixedSetting(str(self.transactional_ids))}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"topic {topic_of(self.topic, dataset_urn)} of {self.brokers}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        brokers = broker_addresses(self.brokers)
        return [Target("topic", name, brokers) for name in (topic_of(self.topic, dataset_urn), self.ledger)]

    def is_in_system(self, fact: SourceFact) -> bool:
        """Return whether the source reads the cluster with this sink's cluster id. Raises TransientError if no broker
        answers."""
        if fact.name != "cluster":
            return False
        from distcommit.sinks.kafka.client import cluster_id  # noqa: PLC0415 - a job file is read without a client

        return cluster_id(self.target()) == fact.setting.value

    @property
    def grouped_by(self) -> str:
        return f"transactional id, of {self.transactional_ids}"

    def commit_group(self, dataset_urn: str) -> str:
        """Group datasets by transactional id, so that buckets do not fence each other."""
        return f"transactional id {id_number(dataset_urn, self.transactional_ids)}"

    def required_columns(self) -> Sequence[str]:
        return self.mapping.named_columns

    def check_schema(self, schema: pa.Schema) -> None:
        self.mapping.check(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        from distcommit.sinks.kafka.client import ledger_topic_id  # noqa: PLC0415 - a job file is read without a client

        return messages.KafkaWriter(self.mapping, area, origin, ledger_topic_id(self.target(), attempt.run_id))

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        from distcommit.sinks.kafka.committer import KafkaCommitter  # noqa: PLC0415 - a job file is read without a client

        return KafkaCommitter(self.target(), self.topic, context, create=self.create)

    @property
    def mapping(self) -> messages.Mapping:
        return messages.Mapping(self.format, self.key, self.value, self.headers, self.timestamp, self.partition)

    def check_connection(self) -> str:
        from distcommit.sinks.kafka.client import cluster_id  # noqa: PLC0415 - a job file is read without a client

        target = replace(self.target(), request_timeout_s=min(self.request_timeout_s, _SHORT_TIMEOUT_S))
        with checking_credentials():
            return f"cluster {cluster_id(target) or 'without an id'}"

    def target(self) -> KafkaTarget:
        from distcommit.sinks.kafka.client import KafkaTarget  # noqa: PLC0415 - a job file is read without a client

        client = {key: with_secret_files(value.get_secret_value()) for key, value in self.client.items()}
        return KafkaTarget(
            self.brokers,
            tuple(sorted(client.items())),
            self.ledger,
            self.transactional_ids,
            self.transaction_timeout_s,
            self.request_timeout_s,
        )
