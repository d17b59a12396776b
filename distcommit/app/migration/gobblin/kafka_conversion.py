"""Conversion of Gobblin's Kafka sources to the source `kafka`."""

from __future__ import annotations

import re

from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, choice_of, listed
from distcommit.app.migration.gobblin.read_properties import Property

_BYTES = {
    "KafkaSimpleSource",
    "KafkaSource",
    "UniversalKafkaSource",
    "KafkaDeserializerSource",
    "KafkaSimpleStreamingSource",
}
_OWN_EXTRACTOR = "what its extractor makes of a record is converters here; records come with key and value as bytes"


def put_kafka(job: JobFileDraft, source: Property, kind: str) -> None:
    """Set `source` to the topics of a Kafka source."""
    brokers = job.pop("kafka.brokers")
    if brokers is None:
        raise source.wrong("a Kafka source needs brokers", expected="kafka.brokers")
    job.put(source, "source.type", "kafka", "" if kind in _BYTES else _OWN_EXTRACTOR)
    job.put(brokers, "source.brokers", ",".join(listed(brokers)))
    _topics(job)
    start = job.pop("bootstrap.with.offset")
    if start is not None and start.value.lower() == "skip":
        job.skip(start, "a new topic is not skipped automatically: name it in source.exclude, or it begins at its end")
        start = None
    starts = {"earliest": "earliest", "latest": "latest", "nearest": "latest", "skip": "latest"}
    job.put(start, "source.start", choice_of(start, starts) if start is not None else "latest")
    expired = job.pop("reset.on.offset.out.of.range")
    if expired is not None:
        translated = choice_of(expired, {name: name for name in ("earliest", "latest", "nearest", "skip")})
        job.put(expired, "source.expired_offsets", translated, "skipped records are recorded as lost")
    _decoding(job)
    for name, key in {"security.protocol": "security.protocol", "sasl.mechanism": "sasl.mechanism"}.items():
        entry = job.pop(f"source.kafka.consumerConfig.{name}")
        if entry is not None:
            job.tree["source"].setdefault("client", {})[key] = entry.value
            job.put(entry, "source.client", job.tree["source"]["client"])


def _topics(job: JobFileDraft) -> None:
    topic = job.pop("gobblin.streaming.kafka.topic.singleton")
    if topic is not None:
        job.put(topic, "source.topics", [topic.value])
    for name, key in {"topic.whitelist": "topic_patterns", "topic.blacklist": "exclude_patterns"}.items():
        entry = job.pop(name)
        patterns = listed(entry) if entry is not None else []
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                assert entry is not None
                raise entry.wrong(f"{pattern!r} is not a valid Python regular expression: {error}") from None
        if patterns or (name == "topic.whitelist" and topic is None):
            job.put(entry, f"source.{key}", patterns or [".*"])


def _decoding(job: JobFileDraft) -> None:
    kind, registry = job.pop("kafka.deserializer.type"), job.pop("kafka.schema.registry.url")
    if kind is None:
        job.skip(registry, "a registry goes with a converter: avro, protobuf or json_schema")
        return
    match kind.value.upper():
        case "CONFLUENT_AVRO" | "CONFLUENT_JSON" if registry is not None:
            converter = {"CONFLUENT_AVRO": "avro", "CONFLUENT_JSON": "json_schema"}[kind.value.upper()]
            section = {"type": converter, "registry": {"url": registry.value}}
            job.put(kind, "converters", [section])
            job.put(registry, "converters", [section])
        case "GSON":
            job.put(kind, "converters", [{"type": "json"}], "fields are inferred from the first records")
            job.skip(registry, "records are plain JSON")
        case "BYTE_ARRAY" | "STRING":
            job.skip(kind, "needs no setting: records come with key and value as bytes")
            job.skip(registry, "records are bytes")
        case _:
            job.skip(kind, "a class of your own is a converter (type: python)")
            job.skip(registry, "a registry goes with a converter: avro, protobuf or json_schema")
