"""The rules that convert the properties of a Gobblin job with a Kafka source, section by section."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, choice_of, integer_of, listed, truth
from distcommit.app.scheduling.quartz import from_quartz
from distcommit.app.scheduling.timetables import Cron
from distcommit.core.errors import ConfigurationError

_OWN_EXTRACTOR = "what its extractor makes of a record is converters here; records come with key and value as bytes"
_BYTES = {"KafkaSimpleSource", "KafkaSource", "UniversalKafkaSource", "KafkaDeserializerSource"}


def _source(job: JobFileDraft) -> None:
    source = job.pop("source.class")
    brokers = job.pop("kafka.brokers")
    if source is None:
        raise ConfigurationError(
            "the job names no source",
            id="GOBBLIN_JOB_INVALID",
            expected="source.class",
            todo="add the common properties",
        )
    if brokers is None:
        raise source.wrong("only jobs with a Kafka source are converted", expected="kafka.brokers beside it")
    kind = source.value.rpartition(".")[2]
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
    for name, key in {"extract.primary.key.fields": "keys", "extract.delta.fields": "delta_fields"}.items():
        fields = job.pop(name)
        if fields is not None:
            job.put(fields, f"source.extract.{key}", listed(fields))
    for name, key in {"security.protocol": "security.protocol", "sasl.mechanism": "sasl.mechanism"}.items():
        entry = job.pop(f"source.kafka.consumerConfig.{name}")
        if entry is not None:
            job.tree["source"].setdefault("client", {})[key] = entry.value
            job.put(entry, "source.client", job.tree["source"]["client"])


def _topics(job: JobFileDraft) -> None:
    for name, key in {"topic.whitelist": "topic_patterns", "topic.blacklist": "exclude_patterns"}.items():
        entry = job.pop(name)
        patterns = listed(entry) if entry is not None else []
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                assert entry is not None
                raise entry.wrong(f"{pattern!r} is not a valid Python regular expression: {error}") from None
        if patterns or name == "topic.whitelist":
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


_SEQUENCE_STORE = (
    "gobblin.runtime.commit.sequence.store.dir",
    "gobblin.runtime.commit.sequence.store.fs.uri",
)
"""Properties of the folder in which Gobblin stores commit sequences for exactly-once delivery."""


def _committing(job: JobFileDraft) -> None:
    policy = job.pop("job.commit.policy")
    if policy is not None:
        translated = choice_of(policy, {name: name for name in ("full", "successful", "partial")})
        note = "here of each topic by itself; commit.scope: job is all or nothing" if translated == "full" else ""
        job.put(policy, "commit.policy", translated, note)
    lock = job.pop("job.lock.enabled")
    if lock is not None:
        job.put(lock, "lock.enabled", truth(lock), "" if truth(lock) else "two runs at once are safe also without it")
    for name in _SEQUENCE_STORE:
        job.skip(job.pop(name), "commit sequences are in paths.store, with all else that the job knows")
    semantics = job.pop("gobblin.runtime.delivery.semantics") or job.pop("delivery.semantics")
    if semantics is not None:
        translated = choice_of(semantics, {"AT_LEAST_ONCE": "at_least_once", "EXACTLY_ONCE": "exactly_once"})
        job.put(semantics, "commit.delivery", translated)


def _retrying(job: JobFileDraft) -> None:
    retries, wait = job.pop("task.maxretries"), job.pop("task.retry.intervalinsec")
    if retries is not None:
        job.put(retries, "task.attempts", integer_of(retries) + 1)
    if wait is not None:
        job.put(wait, "task.retry_wait_s", integer_of(wait), "doubled each time, up to a minute")
    enabled, policy = job.pop("workunit.retry.enabled"), job.pop("workunit.retry.policy")
    if policy is not None:
        translated = choice_of(
            policy, {"always": "always", "onfull": "on_full", "onpartial": "on_partial", "never": "never"}
        )
        job.put(policy, "task.retry_across_runs", translated)
    if enabled is not None and truth(enabled) and policy is None:
        job.put(enabled, "task.retry_across_runs", "always")
    elif enabled is not None and not truth(enabled):
        job.put(
            enabled, "task.retry_across_runs", "never", "failed work units are read again together with new records"
        )
    elif enabled is not None:
        job.skip(enabled, "said by workunit.retry.policy")


def _scheduling(job: JobFileDraft) -> None:
    schedule, once = job.pop("job.schedule"), job.pop("job.runonce")
    if once is not None and truth(once):
        job.skip(once, "`distcommit run` runs once")
        job.skip(schedule, "job.runonce is true")
        return
    job.skip(once, "needs no setting: a job with a schedule runs by it")
    if schedule is None:
        return
    try:
        translated = from_quartz(schedule.value)
        if "cron" in translated:
            Cron(str(translated["cron"]))
    except ValueError as error:
        job.skip(schedule, f"set schedule by hand: {error}")
        return
    note = "times are UTC: Gobblin's were its machine's, see schedule.time_zone" if "cron" in translated else ""
    job.put(schedule, "schedule", translated, note)


def _launching(job: JobFileDraft) -> None:
    kind, threads = job.pop("launcher.type"), job.pop("taskexecutor.threadpool.size")
    tasks = job.pop("mr.job.max.mappers")
    master = choice_of(kind, {"LOCAL": "", "MAPREDUCE": "yarn", "YARN": "yarn"}) if kind is not None else ""
    slots = str(integer_of(threads, least=1)) if threads is not None else "2"
    translated = master or f"local[{slots},4]"
    if kind is not None:
        job.put(
            kind,
            "spark.master",
            translated,
            "executors need this package (conf/docs/guides/cluster.md)" if master else "",
        )
    elif threads is not None:
        job.put(None, "spark.master", translated)
    if threads is not None and not master:
        job.put(threads, "spark.master", translated)
    elif threads is not None:
        job.skip(threads, "how many tasks an executor runs is spark.conf, spark.executor.cores")
    if tasks is not None:
        job.put(tasks, "spark.partitions", integer_of(tasks, least=1))


def _limits(job: JobFileDraft) -> None:
    enabled, kind = job.pop("extract.limit.enabled"), job.pop("extract.limit.type")
    limit = job.pop("extract.limit.timeLimit") or job.pop("extract.limit.time.limit")
    unit = job.pop("extract.limit.timeLimitTimeunit") or job.pop("extract.limit.time.limit.timeunit")
    if enabled is None or not truth(enabled) or kind is None or kind.value.lower() != "time" or limit is None:
        for entry in (enabled, kind, limit, unit):
            reason = "limits are limits.seconds, source.records_per_dataset and source.bytes_per_dataset"
            job.skip(entry, "the limit is off" if enabled is None or not truth(enabled) else reason)
        return
    seconds = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400}
    factor = choice_of(unit, seconds) if unit is not None else 1
    for entry in (enabled, kind, limit, unit):
        if entry is not None:
            job.put(entry, "limits.seconds", integer_of(limit, least=1) * factor, "of a run, there of each task")


def _alerting(job: JobFileDraft) -> None:
    names = ("email.host", "email.smtp.port", "email.from", "email.tos")
    enabled, failures = job.pop("email.alert.enabled"), job.pop("job.max.failures")
    host, port, sender, recipients = (job.pop(name) for name in names)
    if enabled is None or not truth(enabled):
        for entry in (failures, enabled, host, port, sender, recipients):
            job.skip(entry, "alerts are off (email.alert.enabled)")
        return
    if host is None or sender is None or recipients is None:
        raise enabled.wrong("an e-mail needs more than this", expected=", ".join(names))
    mail: dict[str, Any] = {"host": host.value, "sender": sender.value, "recipients": listed(recipients)}
    if port is not None:
        mail["port"] = integer_of(port, least=1)
    for entry in (enabled, host, port, sender, recipients):
        if entry is not None:
            job.put(entry, "alerts.emails", [mail])
    after = integer_of(failures, least=1) if failures is not None else 1
    job.put(failures, "alerts.after_failed_runs", after)


def _checkers(job: JobFileDraft) -> None:
    policies, types = job.pop("qualitychecker.task.policies"), job.pop("qualitychecker.task.policy.types")
    if policies is None:
        job.skip(types, "there are no policies")
        return
    levels = [item.upper() for item in listed(types)] if types is not None else []
    checkers, unsupported = [], []
    for index, policy in enumerate(listed(policies)):
        level = "mandatory" if levels[index : index + 1] == ["FAIL"] else "optional"
        if policy.rpartition(".")[2] == "RowCountPolicy":
            checkers.append({"type": "row_count_of_source", "level": level})
        else:
            unsupported.append(policy.rpartition(".")[2])
    for item in (policies, types):
        if checkers and item is not None:
            job.put(item, "task_checkers", checkers)
        if unsupported or not checkers:
            job.skip(item, f"these are task_checkers of yours (type: python), or of ours: {', '.join(unsupported)}")


def _writing(job: JobFileDraft) -> None:
    destination = job.pop("writer.destination.type")
    if destination is not None and destination.value.upper() != "HDFS":
        raise destination.wrong("only jobs that write files are converted", expected="HDFS", todo="see conf/sinks")
    job.skip(destination, "needs no setting: where files go is paths.output")
    form = job.pop("writer.output.format")
    translated = {"AVRO": "avro", "PARQUET": "parquet", "ORC": "orc"}.get(form.value.upper() if form else "AVRO")
    if translated is None:
        job.skip(form, "files of plain text are not written: Parquet is, with the record's bytes in the column value")
    job.put(form if translated else None, "sink.format", translated or "parquet")
    codec = job.pop("writer.codec.type")
    if codec is not None:
        codecs = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTANDARD": "zstd", "ZSTD": "zstd", "NOCOMPRESSION": "none"}
        if (compression := codecs.get(codec.value.upper())) is None:
            job.skip(codec, "sink.compression is zstd, snappy, gzip or none")
        else:
            job.put(codec, "sink.compression", compression)
    _partitioning(job)


def _partitioning(job: JobFileDraft) -> None:
    partitioner, granularity = job.pop("writer.partitioner.class"), job.pop("writer.partition.granularity")
    zone, columns = job.pop("writer.partition.timezone"), job.pop("writer.partition.columns")
    if partitioner is None or "TimeBased" not in partitioner.value:
        for entry in (partitioner, granularity, zone, columns):
            job.skip(entry, "folders by a field's values are sink.partition_by")
        return
    by = {"column": "kafka_timestamp", "granularity": "hour", "time_zone": "America/Los_Angeles"}
    if granularity is not None:
        by["granularity"] = choice_of(granularity, {name: name for name in ("year", "month", "day", "hour")})
    if zone is not None:
        by["time_zone"] = zone.value
    note = "by the time that Kafka has of a record"
    for entry in (partitioner, granularity, zone):
        if entry is not None:
            job.put(entry, "sink.partition_by", by, note)
    job.skip(
        columns, "folders go by Kafka's time; by a field of yours: sink.partition_by.column, once it is a timestamp"
    )


RULES: tuple[Callable[[JobFileDraft], None], ...] = (
    *(_source, _writing, _committing, _retrying, _scheduling, _launching, _limits, _alerting, _checkers),
)
"""All rules, in the order of the job file's sections."""
