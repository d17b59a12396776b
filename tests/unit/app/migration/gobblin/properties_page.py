"""Generator of conf/docs/reference/gobblin-properties.md: each property is converted, and the page shows the result.

Run `python -m tests.unit.app.migration.gobblin.properties_page`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import distcommit
from distcommit.app.migration.gobblin.convert_gobblin_job import convert_job

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "gobblin-properties.md"
_HEAD = """\
# Conversion of Gobblin's properties

What `distcommit migrate convert-gobblin` makes of each property of Gobblin, with an example value. This page is made by
the converter itself: `python -m tests.unit.app.migration.gobblin.properties_page` writes it. [Move a job from
Gobblin](../guides/from-gobblin.md) explains the steps.

```bash
distcommit migrate convert-gobblin FILE.pull -o job.yaml
```

A property that is in no table has no rule: the command lists it with the reason "nothing here is known for it". A class
`gobblin_ports:NAME` is one that you write in Python ([custom parts](../guides/custom-parts.md)). Until then
`distcommit check` reports it, and the job does not run.
"""
_KAFKA = "source.class=KafkaSimpleSource\nkafka.brokers=b:9092\n"
_FILES = (
    "source.class=TextFileBasedSource\nsource.filebased.data.directory=/in\nconverter.classes=a.CsvToJsonConverter\n"
)
_TABLE = (
    "source.class=MysqlSource\nsource.conn.host=db\nsource.querybased.schema=shop\nsource.entity=orders\n"
    "extract.delta.fields=at\n"
)
_JDBC = "writer.builder.class=JdbcWriterBuilder\njdbc.publisher.url=jdbc:mysql://db:3306/shop\njdbc.publisher.table_name=t\n"
_TO_KAFKA = (
    "topic.whitelist=orders\nwriter.builder.class=KafkaDataWriterBuilder\nwriter.kafka.topic=copy\n"
    "writer.kafka.producerConfig.bootstrap.servers=b:9092\n"
)
_MAIL = "email.alert.enabled=true\nemail.host=mail\nemail.from=a@b\nemail.tos=c@d\n"
_FORK = "fork.branches=2\n"
SECTIONS: Mapping[str, tuple[str, str]] = {
    "Job": (
        _KAFKA,
        """\
job.name=orders
job.group=shop
job.description=orders of the shop
job.schedule=0 0/5 * * * ?
job.runonce=false
job.disabled=true
job.commit.policy=full
job.lock.enabled=true
job.lock.type=org.apache.gobblin.runtime.locks.FileBasedJobLock
job.lock.dir=/locks
job.template=shop.template
job.class=org.apache.gobblin.azkaban.AzkabanJobLauncher
job.jars=own.jar
jobconf.dir=/jobs
launcher.type=LOCAL
mr.job.max.mappers=4
mr.job.root.dir=/working
taskexecutor.threadpool.size=10
task.executionMode=STREAMING
task.status.reportintervalinms=30000
zookeeper.connection.string=localhost:2181
""",
    ),
    "Exactly-once store, state and folders": (
        _KAFKA,
        """\
gobblin.runtime.commit.sequence.store.dir=/sequences
gobblin.runtime.commit.sequence.store.fs.uri=hdfs://nn:9000
gobblin.runtime.delivery.semantics=EXACTLY_ONCE
state.store.dir=/state
state.store.fs.uri=hdfs://nn:9000
state.store.enabled=true
state.store.type=mysql
fs.uri=hdfs://nn:9000
data.publisher.final.dir=/out
data.publisher.fs.uri=hdfs://nn:9000
task.data.root.dir=/tasks
writer.fs.uri=hdfs://nn:9000
writer.staging.dir=/staging
writer.output.dir=/written
streaming.watermarkStateStore.type=zk
""",
    ),
    "Retries, limits and alerts": (
        _KAFKA,
        """\
task.maxretries=5
task.retry.intervalinsec=300
workunit.retry.enabled=true
workunit.retry.policy=onfull
extract.limit.enabled=true
extract.pull.limit=1000
metrics.enabled=true
failure.emails=a@b
""",
    ),
    "Alerts by e-mail": (
        _KAFKA + _MAIL,
        """\
job.max.failures=3
email.alert.enabled=true
email.notification.enabled=true
email.host=mail
email.smtp.port=25
email.from=a@b
email.tos=c@d
email.user=u
email.password=p
""",
    ),
    "Source: Kafka": (
        _KAFKA,
        """\
source.class=KafkaSimpleSource
kafka.brokers=b:9092
topic.whitelist=orders
topic.blacklist=.*_test
gobblin.streaming.kafka.topic.singleton=orders
bootstrap.with.offset=earliest
reset.on.offset.out.of.range=nearest
topics.move.to.latest.offset=orders
kafka.deserializer.type=GSON
kafka.schema.registry.url=http://r:8081
kafka.workunit.packer.type=BI_LEVEL
source.kafka.consumerConfig.security.protocol=SSL
source.kafka.consumerConfig.sasl.jaas.config=secret
extract.namespace=shop
extract.table.name=orders
extract.table.type=append_only
extract.primary.key.fields=id
extract.delta.fields=at
""",
    ),
    "Source: tables": (
        _TABLE,
        """\
source.class=MysqlSource
source.entity=orders
source.conn.host=db
source.conn.port=3306
source.conn.username=reader
source.conn.password=p
source.conn.driver=com.mysql.jdbc.Driver
source.conn.timeout=30
source.timezone=UTC
source.max.number.of.partitions=20
source.querybased.schema=shop
source.querybased.query=SELECT id, at FROM orders
source.querybased.extract.type=append_daily
source.querybased.watermark.type=date
source.querybased.append.max.watermark.limit=CURRENTDATE-1
source.querybased.low.watermark.backup.secs=3600
source.querybased.start.value=20240101000000
source.querybased.end.value=20240201000000
source.querybased.is.watermark.override=true
source.querybased.partition.interval=1
source.querybased.hour.column=hour_sk
source.querybased.skip.high.watermark.calc=true
source.querybased.is.specific.api.active=true
source.querybased.is.compression.enabled=true
source.querybased.fetch.size=1000
extract.table.type=snapshot_append
extract.is.full=false
extract.full.run.time=20240101000000
extract.primary.key.fields=id
extract.delta.fields=at
""",
    ),
    "Source: files": (
        _FILES,
        """\
source.class=TextFileBasedSource
source.filebased.data.directory=/in
source.filebased.fs.uri=hdfs://nn:9000
source.filebased.files.to.pull=/in/a.csv
source.filebased.preserve.file.name=true
source.entity=prices
source.schema=[{"columnName":"id","dataType":{"type":"int"}}]
source.skip.first.record=true
converter.csv.to.json.delimiter=;
date.partitioned.source.min.watermark.value=2024/01
filebased.report.status.on.count=100
source.conn.private.key=/keys/private
source.conn.known.hosts=/keys/known_hosts
extract.table.name=prices
extract.table.type=snapshot_only
""",
    ),
    "Converters and quality policies": (
        _KAFKA,
        """\
converter.classes=AvroFieldsPickConverter,AvroFilterConverter,AvroToJdbcEntryConverter,OwnConverter
converter.avro.fields=id,kind
converter.filter.field=kind
converter.filter.value=click
converter.avro.jdbc.entry_fields_pairs={"id":"click_id"}
converter.avro.timestamp.format=yyyy-MM-dd HH:mm:ss
converter.sample.ratio=0.1
qualitychecker.row.policies=One,Two,Three
qualitychecker.row.policy.types=FAIL,OPTIONAL,ERR_FILE
qualitychecker.row.err.file=/errors
qualitychecker.task.policies=RowCountPolicy,RowCountRangePolicy,SchemaCompatibilityPolicy
qualitychecker.task.policy.types=FAIL,OPTIONAL,FAIL
qualitychecker.row.count.range=0.1
""",
    ),
    "Forks": (
        _KAFKA + _FORK,
        """\
fork.branches=2
fork.operator.class=IdentityForkOperator
fork.branch.name.0=raw
fork.branch.name.1=copy
fork.record.queue.capacity=100
converter.classes.0=OwnConverter
qualitychecker.task.policies.0=RowCountPolicy
qualitychecker.row.policies.0=OwnPolicy
qualitychecker.row.policy.types.0=ERR_FILE
writer.destination.type.0=HDFS
writer.output.format.0=PARQUET
writer.codec.type.0=SNAPPY
writer.fs.uri.0=hdfs://nn:9000
data.publisher.type.0=BaseDataPublisher
data.publisher.final.dir.1=/out
""",
    ),
    "Writer: files": (
        _KAFKA,
        """\
writer.builder.class=AvroDataWriterBuilder
writer.destination.type=HDFS
writer.output.format=AVRO
writer.codec.type=SNAPPY
writer.file.path.type=tablename
writer.file.name=part
writer.buffer.size=4096
writer.partitioner.class=TimeBasedAvroWriterPartitioner
writer.partition.columns=at
writer.partition.granularity=day
writer.partition.pattern=yyyy/MM/dd
writer.partition.prefix=daily
writer.partition.timezone=UTC
data.publisher.type=BaseDataPublisher
data.publisher.replace.final.dir=true
data.publisher.final.name=orders
data.publisher.permissions=644
""",
    ),
    "Writer: a database": (
        _KAFKA + _JDBC,
        """\
writer.builder.class=JdbcWriterBuilder
jdbc.publisher.url=jdbc:mysql://db:3306/shop
jdbc.publisher.database_name=shop
jdbc.publisher.table_name=t
jdbc.publisher.username=writer
jdbc.publisher.password=p
jdbc.publisher.encrypt_key_loc=/keys/jdbc
jdbc.publisher.driver=com.mysql.cj.jdbc.Driver
jdbc.publisher.replace_table=true
writer.jdbc.batch_size=1000
writer.staging.table=t_staging
""",
    ),
    "Writer: Kafka": (
        _KAFKA + _TO_KAFKA,
        """\
writer.builder.class=KafkaDataWriterBuilder
writer.kafka.topic=copy
writer.kafka.producerConfig.bootstrap.servers=b:9092
writer.kafka.producerConfig.value.serializer=ByteArraySerializer
writer.kafka.producerConfig.acks=all
""",
    ),
}
"""Properties by section, each with the properties that its job needs besides."""


_NEEDS_NONE = re.compile(r"^needs? no setting(: |, )?")


def rows_of(base: str, properties: str) -> list[tuple[str, str, str, str]]:
    """Return name, example value, setting and reason or difference of each property.

    The properties of a section are converted together. Those that the base has count once.
    """
    given = dict(line.split("=", 1) for line in properties.splitlines())
    needed = dict(line.split("=", 1) for line in base.splitlines())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.pull"
        lines = {"job.name": "orders", **needed, **given}
        text = "".join(f"{key}={value}\n" for key, value in lines.items())
        file.write_text(text.replace("\\", "\\\\"), encoding="utf-8")
        result = convert_job(file)
    rows = []
    for name, value in given.items():
        settings = dict.fromkeys(row.setting for row in result.translated if row.name == name)
        notes = [row.note for row in result.translated if row.name == name and row.note]
        reasons = [row.reason for row in result.untranslated if row.name == name]
        rows.append((name, value, "; ".join(settings), "; ".join(dict.fromkeys([*notes, *reasons]))))
    return rows


def properties_page() -> str:
    """Return the page, as Markdown."""
    parts = [_HEAD]
    for title, (base, properties) in SECTIONS.items():
        parts.append(f"\n## {title}\n\n| property | converted to | difference, or why not |\n| --- | --- | --- |\n")
        for name, value, setting, reason in rows_of(base, properties):
            why = _NEEDS_NONE.sub("", reason)
            outcome = f"`{setting}`" if setting else "not converted" if why == reason else "needs no setting"
            parts.append(f"| {_code(f'{name}={value}')} | {_cell(outcome)} | {_cell(why)} |\n")
    return "".join(parts)


def _code(text: str) -> str:
    return _cell(f"`{text}`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(properties_page(), encoding="utf-8")
