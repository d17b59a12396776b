"""Conversion of Gobblin's writers and publishers to sinks, of the job and of each branch."""

from __future__ import annotations

import re

from distcommit.app.migration.gobblin.classes_to_port import simple_name
from distcommit.app.migration.gobblin.construct_conversion import Chain, chains_of
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, choice_of, listed
from distcommit.app.migration.gobblin.read_properties import Property

_BUILDERS = {
    "KafkaDataWriterBuilder": "KAFKA",
    "JdbcWriterBuilder": "MYSQL",
    "ConsoleWriterBuilder": "CONSOLE",
}
"""Destinations of writer builders. Other builders write files, or to writer.destination.type."""

_FILE_BUILDERS = {
    *("AvroDataWriterBuilder", "SimpleDataWriterBuilder", "ParquetDataWriterBuilder", "ParquetHdfsDataWriterBuilder"),
    *("GobblinOrcWriterBuilder", "HiveWritableHdfsDataWriterBuilder"),
}
_PUBLISHERS = {
    *("BaseDataPublisher", "JdbcPublisher", "NoopPublisher"),
    "TimePartitionedDataPublisher",
}
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTANDARD": "zstd", "ZSTD": "zstd", "NOCOMPRESSION": "none"}
_DATABASES = {"mysql": "mariadb", "mariadb": "mariadb", "postgresql": "postgresql"}
_DEFAULT_PORTS = {"mariadb": "3306", "postgresql": "5432"}
PASSWORD = "${SINK_PASSWORD}"
_GRANULARITIES = {"yyyy": "year", "MM": "month", "dd": "day", "HH": "hour"}


def put_sinks(job: JobFileDraft) -> None:
    """Set the sink of the job, or of each branch.

    Raises:
        ConfigurationError: with file and line, if the destination is not supported.
    """
    for chain in chains_of(job):
        _sink(job, chain)
        publisher = chain.pop(job, "data.publisher.type") or job.pop("data.publisher.type")
        name = simple_name(publisher.value) if publisher is not None else ""
        if name == "BaseDataPublisherWithReplacement":
            job.skip(publisher, "each run adds files; set sink.publish: replace or replace_partitions if a run has all")
            continue
        known = "needs no setting: all is published by commits that are written ahead"
        own = "a publisher of your own becomes the commit_steps of a sink of type: python"
        job.skip(publisher, known if name in _PUBLISHERS else own)


def _sink(job: JobFileDraft, chain: Chain) -> None:
    builder, destination = chain.pop(job, "writer.builder.class"), chain.pop(job, "writer.destination.type")
    name = simple_name(builder.value) if builder is not None else ""
    target = _BUILDERS.get(name, destination.value.upper() if destination is not None else "HDFS")
    if target == "HDFS":
        known = "needs no setting: sink.type and sink.format choose what is written"
        own = "sink.type and sink.format choose what is written; a writer of your own is a sink of type: python"
        job.skip(builder, known if name in _FILE_BUILDERS else own)
        job.skip(destination, "needs no setting: where files go is paths.output")
        _files(job, chain)
        return
    of = builder if name in _BUILDERS else destination
    assert of is not None
    if job.reads_whole_tables and target != "CONSOLE":
        problem = "a table that is read whole in each run can only replace files"
        raise of.wrong(problem, expected="a writer of files")
    match target:
        case "KAFKA":
            _kafka(job, chain, of)
        case "MYSQL" | "POSTGRESQL":
            _table(job, chain, of)
        case "CONSOLE":
            job.put(of, f"{chain.section}sink", {"type": "console"}, "a preview: no position moves")
        case _:
            expected = "HDFS, KAFKA or MYSQL"
            raise of.wrong("no sink writes there", expected=expected, todo="see conf/docs/connectors/sinks.md")
    for entry in (builder, destination):
        if entry is not of:
            job.skip(entry, "sink.type replaces it")
    job.skip(chain.pop(job, "writer.output.format"), "the sink has its own format")


def _files(job: JobFileDraft, chain: Chain) -> None:
    if job.reads_whole_tables:
        job.put(None, f"{chain.section}sink.publish", "replace")
    form = chain.pop(job, "writer.output.format")
    translated = {"AVRO": "avro", "PARQUET": "parquet", "ORC": "orc"}.get(form.value.upper() if form else "AVRO")
    if translated is None:
        job.skip(form, "files of plain text are not written: Parquet is, with the record's bytes in the column value")
    job.put(form if translated else None, f"{chain.section}sink.format", translated or "parquet")
    codec = chain.pop(job, "writer.codec.type")
    if codec is not None:
        if (compression := _CODECS.get(codec.value.upper())) is None:
            job.skip(codec, "sink.compression is zstd, snappy, gzip or none")
        else:
            job.put(codec, f"{chain.section}sink.compression", compression)
    _partitioning(job, chain)


def _partitioning(job: JobFileDraft, chain: Chain) -> None:
    partitioner, columns, granularity, pattern, zone = (
        chain.pop(job, f"writer.partition{name}")
        for name in ("er.class", ".columns", ".granularity", ".pattern", ".timezone")
    )
    if partitioner is None or "TimeBased" not in partitioner.value:
        for entry in (partitioner, granularity, pattern, zone, columns):
            job.skip(entry, "folders by a field's values are sink.partition_by")
        return
    is_kafka = job.value("source.type") == "kafka"
    column = "kafka_timestamp" if is_kafka or columns is None else listed(columns)[0]
    by = {"column": column, "granularity": "hour", "time_zone": "America/Los_Angeles"}
    if granularity is not None:
        by["granularity"] = choice_of(granularity, {name: name for name in ("year", "month", "day", "hour")})
    elif pattern is not None:
        parts = re.findall(r"[A-Za-z]+", pattern.value)
        by["granularity"] = _GRANULARITIES.get(parts[-1] if parts else "", "hour")
    if zone is not None:
        by["time_zone"] = zone.value
    note = "by the time that Kafka has of a record" if is_kafka else "the column must be a timestamp"
    for entry in (partitioner, granularity, zone):
        if entry is not None:
            job.put(entry, f"{chain.section}sink.partition_by", by, note)
    if pattern is not None:
        job.put(pattern, f"{chain.section}sink.partition_by", by, "the names of folders are fixed")
    if columns is not None and not is_kafka:
        job.put(columns, f"{chain.section}sink.partition_by", by, note)
    else:
        by_field = "by a field of yours: sink.partition_by.column, once it is a timestamp"
        job.skip(columns, f"folders go by Kafka's time; {by_field}")


def _kafka(job: JobFileDraft, chain: Chain, of: Property) -> None:
    prefix = f"{chain.section}sink"
    topic, brokers, serializer = (
        chain.pop(job, f"writer.kafka.{name}")
        for name in ("topic", "producerConfig.bootstrap.servers", "producerConfig.value.serializer")
    )
    if topic is None or brokers is None:
        raise of.wrong(
            "the topic or the brokers of the Kafka writer are missing",
            expected="writer.kafka.topic and writer.kafka.producerConfig.bootstrap.servers",
            todo="set them in the job's file, or give the properties file that sets them with --sysconfig",
        )
    job.put(of, f"{prefix}.type", "kafka", "exactly once, by transactions")
    job.put(brokers, f"{prefix}.brokers", ",".join(listed(brokers)))
    job.put(topic, f"{prefix}.topic", topic.value)
    ledger = re.sub(r"[^A-Za-z0-9._-]", "_", f"{job.text('job.name')}{chain.suffix}_ledger")
    job.put(None, f"{prefix}.ledger", ledger)
    kind = simple_name(serializer.value) if serializer is not None else ""
    has_bytes = kind in ("ByteArraySerializer", "StringSerializer")
    if not has_bytes:
        job.skip(serializer, "values are JSON: no sink registers a schema")
    job.put(serializer if has_bytes else None, f"{prefix}.format", "bytes" if has_bytes else "json")


def _table(job: JobFileDraft, chain: Chain, of: Property) -> None:
    """Set a sink that writes to a table of a database.

    Raises:
        ConfigurationError: if the URL is missing or names another database.
    """
    prefix = f"{chain.section}sink"
    url, database, user, table, secret, replace = (
        chain.pop(job, f"jdbc.publisher.{name}")
        for name in ("url", "database_name", "username", "table_name", "password", "replace_table")
    )
    match = re.fullmatch(r"jdbc:(\w+)://([^/?:@]+)(?::(\d+))?(?:/([^?]*))?(\?.*)?", url.value) if url else None
    kind = _DATABASES.get(match[1], "") if match else ""
    if match is None or not kind or table is None or not (database or match[4]):
        raise (url or of).wrong(
            "no sink writes to this database",
            expected="jdbc.publisher.url=jdbc:mysql://HOST:PORT or jdbc:postgresql://..., database_name and table_name",
        )
    assert url is not None
    scheme = "postgresql" if kind == "postgresql" else "mysql"
    authority = f"{user.value}@{match[2]}" if user is not None else match[2]
    name = database.value if database is not None else match[4]
    job.put(of, f"{prefix}.type", kind)
    note = "its parameters are not converted: set TLS and credentials in the job file" if match[5] else ""
    job.put(url, f"{prefix}.url", f"{scheme}://{authority}:{match[3] or _DEFAULT_PORTS[kind]}/{name}", note)
    for entry in (database, user):
        job.skip(entry, f"is a part of {prefix}.url")
    job.put(table, f"{prefix}.table", table.value)
    if secret is not None:
        job.secret(secret, f"{prefix}.password", PASSWORD)
    job.skip(replace, "each run adds rows: a run reads new rows or files only")
