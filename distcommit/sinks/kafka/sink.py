"""Kafka as a sink: which topics, how records become messages, and where the ledger is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from distcommit.core.interfaces.committer import CommitterContext, SinkCommitter
from distcommit.core.interfaces.sink import Abilities, AttemptIdentity, Origin, SinkSettings, SinkWriter, StagingArea
from distcommit.core.interfaces.targets import Target, broker_addresses
from distcommit.core.records.fixed_settings import Pin, SourceFact
from distcommit.core.work import MAIN_BRANCH
from distcommit.fs.secret_files import with_secret_files
from distcommit.sinks.base.committer_sink import CommitterSink
from distcommit.sinks.kafka import messages
from distcommit.sinks.kafka.names import DATASET, is_topic, lane_of, topic_of

if TYPE_CHECKING:
    from distcommit.sinks.kafka.client import KafkaTarget

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


class KafkaSink(BaseModel, CommitterSink, SinkSettings):
    """Topics of one Kafka cluster (2.8 or newer).

    Attributes:
        type: `kafka`.
        brokers: `host:port` of brokers to begin with, separated by commas.
        topic: where a dataset's records go; `{dataset}` stands for its name. Without it all go to one topic.
        create: whether topics that are missing are made, with the brokers' defaults.
        ledger: the compacted topic that says what was committed; made if it is missing. One for each job is best:
            a ledger that jobs share is read by all of them.
        transactional_ids: how many transactions the job may have under way at a time; the ledger has as many
            partitions. Each dataset always has the same one.
        format: `bytes`: the message's value is the column `value` as it is. `json`: an object of all columns that no
            other setting names.
        key: a column of bytes or text; empty: messages have none.
        value: a column of bytes or text.
        headers: a column; empty: messages have none.
        timestamp: a column; empty: the time they are sent.
        partition: a column; empty: the partition that the client chooses by their key.
        transaction_timeout_s: after how long the brokers abort a transaction that nobody ends. All that a run commits
            of a dataset is sent in one transaction, within this time; so long may one of a killed run hold up readers.
        request_timeout_s: how long a request may take.
        client: further settings for librdkafka, such as `sasl.password`; as those of a Kafka source.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: ClassVar[str] = "kafka"
    abilities: ClassVar[Abilities] = Abilities(audit=True, can_be_taken_back=False)

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
        if not isinstance(client, Mapping):
            return client
        if taken := sorted(_OWNED.intersection(client)):
            raise ValueError(f"{', '.join(taken)}: what is exactly once depends on it, so the sink sets it; remove it")
        return {key: str(v).lower() if isinstance(v, bool | int | float) else v for key, v in client.items()}

    @model_validator(mode="after")
    def _names_topics(self) -> KafkaSink:
        for setting, name in (("topic", self.topic.replace(DATASET, "a")), ("ledger", self.ledger)):
            if not is_topic(name) or len(name) > 200:
                raise ValueError(f"{setting} is a topic's name: at most 200 letters, digits, '.', '_' and '-'")
        if self.topic == self.ledger:
            raise ValueError("topic and ledger are two topics")
        return self

    def pins(self) -> Mapping[str, Pin]:
        return {"ledger": Pin(self.ledger), "transactional_ids": Pin(str(self.transactional_ids))}

    def published_in(self, dataset_urn: str, output: str, branch: str = MAIN_BRANCH) -> str:
        return f"topic {topic_of(self.topic, dataset_urn)} of {self.brokers}"

    def targets(self, dataset_urn: str) -> Iterable[Target]:
        brokers = broker_addresses(self.brokers)
        return [Target("topic", name, brokers) for name in (topic_of(self.topic, dataset_urn), self.ledger)]

    def is_in_system(self, fact: SourceFact) -> bool:
        """Clusters are compared by their ids."""
        if fact.name != "cluster":
            return False
        from distcommit.sinks.kafka.client import cluster_id  # noqa: PLC0415 - a job file is read without a client

        return cluster_id(self.target()) == fact.pin.value

    @property
    def grouped_by(self) -> str:
        return f"transactional id, of {self.transactional_ids}"

    def commit_group(self, dataset_urn: str) -> str:
        """Datasets of one transactional id: so no two buckets fence each other."""
        return f"transactional id {lane_of(dataset_urn, self.transactional_ids)}"

    def asked_columns(self) -> Sequence[str]:
        return self.mapping.asked

    def check_schema(self, schema: pa.Schema) -> None:
        self.mapping.check(schema)

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        from distcommit.sinks.kafka.client import ledger_made  # noqa: PLC0415 - a job file is read without a client

        return messages.KafkaWriter(self.mapping, area, origin, ledger_made(self.target(), attempt.run_id))

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        from distcommit.sinks.kafka.committer import KafkaCommitter  # noqa: PLC0415 - a job file is read without a client

        return KafkaCommitter(self.target(), self.topic, context, create=self.create)

    @property
    def mapping(self) -> messages.Mapping:
        """Which columns become what."""
        return messages.Mapping(self.format, self.key, self.value, self.headers, self.timestamp, self.partition)

    def target(self) -> KafkaTarget:
        """Where the cluster and its ledger are."""
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
