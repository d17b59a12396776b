"""Conversion of a Gobblin job's properties into a job file: every property is translated or reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from distcommit.app.job_file.load_job_file import load_config
from distcommit.app.migration.gobblin.convert_gobblin_job import ConvertResult, convert_job
from distcommit.app.migration.gobblin.read_properties import read_properties
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError

LEAST = (
    "job.name=clicks\nkafka.brokers=b1:9092, b2:9092\n"
    "source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleSource\n"
)


def converted(folder: Path, more: str = "", **options: Any) -> tuple[dict[str, Any], ConvertResult]:
    file = folder / "clicks.pull"
    file.write_text(LEAST + more)
    result = convert_job(file, **options)
    return yaml.safe_load(result.job_file), result


def value_at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part]
    return tree


@pytest.mark.parametrize(
    ("properties", "key", "value"),
    [
        ("topic.whitelist=clicks\\\\..*,views", "source.topic_patterns", ["clicks\\..*", "views"]),
        ("topic.blacklist=.*_test", "source.exclude_patterns", [".*_test"]),
        ("", "source.topic_patterns", [".*"]),
        ("", "source.brokers", "b1:9092,b2:9092"),
        ("", "source.start", "latest"),
        ("bootstrap.with.offset=EARLIEST", "source.start", "earliest"),
        ("reset.on.offset.out.of.range=nearest", "source.expired_offsets", "nearest"),
        ("job.lock.enabled=false", "lock.enabled", False),
        ("job.commit.policy=partial", "commit.policy", "partial"),
        ("job.schedule=0 0/2 * * * ?", "schedule.cron", "*/2 * * * *"),
        ("launcher.type=MAPREDUCE", "spark.master", "yarn"),
        ("launcher.type=LOCAL\ntaskexecutor.threadpool.size=3", "spark.master", "local[3,4]"),
        ("mr.job.max.mappers=7", "spark.partitions", 7),
        ("task.maxretries=5", "task.attempts", 6),
        ("task.retry.intervalinsec=300", "task.retry_wait_s", 300),
        ("workunit.retry.policy=onfull", "task.retry_across_runs", "on_full"),
        ("workunit.retry.enabled=false\nworkunit.retry.policy=always", "task.retry_across_runs", "never"),
        ("writer.output.format=ORC", "sink.format", "orc"),
        ("writer.codec.type=SNAPPY", "sink.compression", "snappy"),
        (
            "writer.partitioner.class=a.b.TimeBasedAvroWriterPartitioner\nwriter.partition.granularity=day",
            "sink.partition_by",
            {"column": "kafka_timestamp", "granularity": "day", "time_zone": "America/Los_Angeles"},
        ),
        (
            "kafka.deserializer.type=CONFLUENT_AVRO\nkafka.schema.registry.url=http://r:8081",
            "converters",
            [{"type": "avro", "registry": {"url": "http://r:8081"}}],
        ),
        (
            "qualitychecker.task.policies=a.RowCountPolicy\nqualitychecker.task.policy.types=FAIL",
            "task_checkers",
            [{"type": "row_count_of_source", "level": "mandatory"}],
        ),
        (
            "extract.limit.enabled=true\nextract.limit.type=time\nextract.limit.timeLimit=15\n"
            "extract.limit.timeLimitTimeunit=minutes",
            "limits.seconds",
            900,
        ),
        (
            "email.alert.enabled=true\nemail.host=mail\nemail.from=a@b\nemail.tos=c@d,e@f\nemail.smtp.port=25",
            "alerts.emails",
            [{"host": "mail", "sender": "a@b", "recipients": ["c@d", "e@f"], "port": 25}],
        ),
        ("extract.primary.key.fields=id,line\nextract.delta.fields=at", "source.extract.keys", ["id", "line"]),
        ("extract.delta.fields=at", "source.extract.delta_fields", ["at"]),
        ("data.publisher.final.dir=/data/out", "paths.output", "/data/out/clicks"),
        ("data.publisher.final.dir=/data/out", "paths.store", "/data/out/distcommit/clicks/store"),
        ("writer.staging.dir=/work/staging", "paths.staging", "/work/staging/distcommit/clicks/staging"),
        ("task.data.root.dir=/work", "paths.staging", "/work/distcommit/clicks/staging"),
        (
            "fs.uri=hdfs://nn:9000\nstate.store.fs.uri=hdfs://nn:9000\nstate.store.dir=/state\n"
            "data.publisher.final.dir=/data/out",
            "paths.store",
            "hdfs://nn:9000/state/distcommit/clicks/store",
        ),
        (
            "fs.uri=s3://bucket\nstate.store.fs.uri=hdfs://nn:9000\nstate.store.dir=/state\n"
            "data.publisher.final.dir=/data/out",
            "paths",
            {
                "output": "s3://bucket/data/out/clicks",
                "store": "hdfs://nn:9000/state/distcommit/clicks/store",
                "staging": "s3://bucket/data/out/distcommit/clicks/staging",
            },
        ),
        (
            "fs.uri=hdfs://nn:9000\nstate.store.fs.uri=file:///\nstate.store.dir=/state\n"
            "data.publisher.final.dir=/data/out",
            "paths.store",
            "/state/distcommit/clicks/store",
        ),
        (
            "fs.uri=s3://bucket\nstate.store.fs.uri=hdfs://nn:9000\ndata.publisher.final.dir=/data/out",
            "paths.store",
            "s3://bucket/data/out/distcommit/clicks/store",
        ),
    ],
)
def test_property_is_translated_to_its_setting(tmp_path: Path, properties: str, key: str, value: Any) -> None:
    tree, result = converted(tmp_path, properties)
    assert value_at(tree, key) == value
    if properties:
        reported = {row.name for row in result.translated} | {row.name for row in result.untranslated}
        assert {line.partition("=")[0] for line in properties.splitlines()} <= reported


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ("extract.full.run.time=20240229120000", "a Kafka source has none"),
        ("fork.operator.class=a.B", "a job with one branch has no fork"),
        ("fork.record.queue.capacity=1", "without a queue"),
        ("qualitychecker.row.policies=a.SchemaRowCheckPolicy", "accepts every record"),
        ("qualitychecker.row.policy.types=FAIL", "there are no policies"),
        ("qualitychecker.row.count.range=0.1", "there are no policies"),
        ("converter.classes=a.IdentityConverter", "records are columns: IdentityConverter"),
        ("converter.avro.fields=a", "no converter of the job uses it"),
        ("job.max.failures=3", "alerts are off"),
        ("data.publisher.type=a.BaseDataPublisher", "written ahead"),
        ("data.publisher.type=a.BaseDataPublisherWithReplacement", "set sink.publish: replace"),
        ("jdbc.publisher.password=secret", "is a secret"),
        ("qualitychecker.row.err.file=/errors", "below _rejected in paths.output"),
        ("writer.builder.class=a.B", "sink.type and sink.format"),
        ("writer.partitioner.class=a.B", "sink.partition_by"),
        ("data.publisher.replace.final.dir=true", "sink.publish: replace"),
        ("state.store.type=mysql", "needs no setting"),
        ("gobblin.runtime.commit.sequence.store.dir=/sequences", "commit sequences are in paths.store"),
        ("gobblin.runtime.commit.sequence.store.fs.uri=hdfs://nn:9000", "commit sequences are in paths.store"),
        ("task.status.reportintervalinms=5000", "needs no setting"),
        ("workunit.retry.enabled=true\nworkunit.retry.policy=never", "said by workunit.retry.policy"),
    ],
)
def test_untranslated_property_is_reported_with_its_replacement(tmp_path: Path, properties: str, why: str) -> None:
    reasons = {row.name: row.reason for row in converted(tmp_path, properties)[1].untranslated}
    assert why in reasons[properties.partition("=")[0]]


def test_every_property_is_reported_and_untranslated_ones_are_named_in_the_job_file(tmp_path: Path) -> None:
    more = (
        "extract.namespace=ns\nextract.table.name=t\nextract.table.type=snapshot_only\njob.group=g\nmy.own=1\n"
        "source.kafka.consumerConfig.sasl.jaas.config=password\nconverter.classes=a.B\nfork.branches=2\n"
        "job.schedule=0 0 0 ? * 6#3\nwriter.file.path.type=tablename\nmetrics.enabled=true\nempty.one=\n"
    )
    tree, result = converted(tmp_path, more)
    reported = [row.name for row in result.translated] + [row.name for row in result.untranslated]
    assert set(reported) == set(read_properties(tmp_path / "clicks.pull")) - {"empty.one"}
    untranslated = {row.name: row for row in result.untranslated}
    assert untranslated["my.own"].reason == "nothing here is known for it"
    assert untranslated["my.own"].location == "clicks.pull:8"
    assert "6#3" in untranslated["job.schedule"].reason
    assert "schedule" not in tree
    assert "secret" in untranslated["source.kafka.consumerConfig.sasl.jaas.config"].reason
    for row in result.untranslated:
        assert f"{row.name}: " in result.job_file
    assert result.classes_to_write == ["gobblin_ports:B"]


TABLE = """\
job.name=orders
source.class=org.apache.gobblin.source.extractor.extract.jdbc.MysqlSource
source.conn.host=db
source.conn.username=reader
source.conn.password=not-this-one
source.querybased.schema=shop
source.entity=orders
"""
FILES = """\
job.name=prices
source.class=org.apache.gobblin.source.extractor.filebased.TextFileBasedSource
source.filebased.data.directory=/in
converter.classes=a.CsvToJsonConverter
"""


@pytest.mark.parametrize(
    ("properties", "key", "value"),
    [
        (TABLE + "extract.delta.fields=at", "source.url", "mysql://reader@db:3306/shop"),
        (TABLE + "extract.delta.fields=at", "source.password", "${SOURCE_PASSWORD}"),
        (TABLE + "extract.delta.fields=at", "source.watermark", "at"),
        (TABLE + "extract.delta.fields=at", "source.lookback", 0),
        (
            TABLE + "extract.delta.fields=at\nsource.querybased.low.watermark.backup.secs=7200\n"
            "source.querybased.watermark.type=hour",
            "source.lookback",
            7200,
        ),
        (
            TABLE + "extract.delta.fields=at\nsource.querybased.append.max.watermark.limit=CURRENT_HOUR - 3",
            "source.lookback",
            3 * 3600,
        ),
        (TABLE + "extract.delta.fields=at\nextract.table.type=SNAPSHOT_APPEND", "source.table_type", "snapshot_append"),
        (TABLE + "extract.is.full=true", "source.table_type", "snapshot_only"),
        (TABLE + "extract.is.full=true", "sink.publish", "replace"),
        (
            TABLE + "extract.delta.fields=at\nsource.querybased.query=SELECT id, at FROM orders",
            "source.queries",
            {"orders": "SELECT id, at FROM orders"},
        ),
        (TABLE + "extract.delta.fields=at\nsource.querybased.fetch.size=500", "source.batch_rows", 500),
        (
            TABLE.replace("Mysql", "Postgresql") + "extract.delta.fields=at",
            "source.url",
            "postgresql://reader@db:5432/shop",
        ),
        (
            TABLE.replace("Mysql", "Oracle") + "source.conn.sid=x\nsource.conn.port=1521\nextract.delta.fields=at",
            "source.options.url",
            "jdbc:oracle:thin:@db:1521:x",
        ),
        (
            TABLE + "extract.delta.fields=at\nwriter.builder.class=a.JdbcWriterBuilder\n"
            "jdbc.publisher.replace_table=true\njdbc.publisher.url=jdbc:postgresql://w:5433/dw?ssl=true\n"
            "jdbc.publisher.table_name=t",
            "sink",
            {"type": "postgresql", "url": "postgresql://w:5433/dw", "table": "t"},
        ),
        (FILES, "source.format", "csv"),
        (FILES, "source.paths", ["/in/*"]),
        (FILES + "fs.uri=file://localhost/\ndata.publisher.final.dir=/out", "paths.output", "/out/prices"),
        (FILES + "source.filebased.fs.uri=hdfs://nn:9000", "source.paths", ["hdfs://nn:9000/in/*"]),
        (FILES + "converter.csv.to.json.delimiter=\\\\|", "source.delimiter", "|"),
        (FILES + "source.skip.first.record=true", "source.header", True),
        (FILES.replace("Csv", "JsonString").replace("ToJsonC", "ToJsonIntermediateC"), "source.format", "jsonl"),
    ],
)
def test_tables_and_files_are_converted(tmp_path: Path, properties: str, key: str, value: Any) -> None:
    (tmp_path / "job.pull").write_text(properties)
    result = convert_job(tmp_path / "job.pull")
    assert value_at(yaml.safe_load(result.job_file), key) == value
    assert "not-this-one" not in result.job_file
    reported = {row.name for row in result.translated} | {row.name for row in result.untranslated}
    assert reported == set(read_properties(tmp_path / "job.pull"))


@pytest.mark.parametrize(
    ("properties", "key", "value"),
    [
        (
            "converter.classes=a.AvroFieldsPickConverter,a.AvroFilterConverter,a.Own\nconverter.avro.fields=id,kind\n"
            "converter.filter.field=kind\nconverter.filter.value=click",
            "converters",
            [
                {"type": "select", "columns": ["id", "kind"]},
                {"type": "filter", "when": {"column": "kind", "op": "==", "value": "click"}},
                {"type": "python", "class": "gobblin_ports:Own"},
            ],
        ),
        (
            "kafka.deserializer.type=GSON\nconverter.classes=a.AvroFieldsPickConverter\nconverter.avro.fields=id",
            "converters",
            [{"type": "json"}, {"type": "select", "columns": ["id"]}],
        ),
        (
            "qualitychecker.row.policies=a.One,a.Two,a.Three,a.Four\nqualitychecker.row.policy.types=FAIL,OPTIONAL,ERR_FILE",
            "row_checkers",
            [
                {"type": "python", "class": "gobblin_ports:One", "level": "mandatory", "on_failure": "fail"},
                {"type": "python", "class": "gobblin_ports:Two", "level": "optional"},
                {"type": "python", "class": "gobblin_ports:Three", "level": "mandatory", "on_failure": "divert"},
                {"type": "python", "class": "gobblin_ports:Four", "level": "optional"},
            ],
        ),
        (
            "qualitychecker.task.policies=a.RowCountRangePolicy,a.Own\nqualitychecker.task.policy.types=OPTIONAL,FAIL\n"
            "qualitychecker.row.count.range=0.05",
            "task_checkers",
            [
                {"type": "row_count_of_source", "level": "optional", "tolerance": 0.05},
                {"type": "python", "class": "gobblin_ports:Own", "level": "mandatory"},
            ],
        ),
        (
            "qualitychecker.task.policies=a.SchemaCompatibilityPolicy\nqualitychecker.task.policy.types=FAIL",
            "converters",
            [{"type": "schema", "evolution": "fail"}],
        ),
        (
            "fork.branches=2\nfork.operator.class=a.Own\nconverter.classes.0=a.Own",
            "fork",
            {
                "type": "python",
                "class": "gobblin_ports:Own",
                "branches": {
                    "fork_0": {
                        "converters": [{"type": "python", "class": "gobblin_ports:Own"}],
                        "sink": {"format": "avro"},
                    },
                    "fork_1": {"sink": {"format": "avro"}},
                },
            },
        ),
        (
            "fork.branches=2\nfork.operator.class=a.IdentityForkOperator\nfork.branch.name.0=raw\nfork.branch.name.1=topic\n"
            "writer.output.format.0=PARQUET\nwriter.codec.type.0=SNAPPY\n"
            "qualitychecker.task.policies.0=a.RowCountPolicy\nqualitychecker.task.policy.types.0=FAIL\n"
            "writer.builder.class.1=a.KafkaDataWriterBuilder\nwriter.kafka.topic.1=copy\n"
            "writer.kafka.producerConfig.bootstrap.servers.1=b:9092\n"
            "writer.kafka.producerConfig.value.serializer.1=x.ByteArraySerializer",
            "fork",
            {
                "type": "all",
                "branches": {
                    "raw": {
                        "task_checkers": [{"type": "row_count_of_source", "level": "mandatory"}],
                        "sink": {"format": "parquet", "compression": "snappy"},
                    },
                    "topic": {
                        "sink": {
                            "type": "kafka",
                            "brokers": "b:9092",
                            "topic": "copy",
                            "ledger": "clicks.1_ledger",
                            "format": "bytes",
                        }
                    },
                },
            },
        ),
        ("task.executionMode=STREAMING", "schedule", {"interval_s": 60}),
    ],
)
def test_constructs_and_branches_are_converted(tmp_path: Path, properties: str, key: str, value: Any) -> None:
    tree, result = converted(tmp_path, properties)
    assert value_at(tree, key) == value
    reported = {row.name for row in result.translated} | {row.name for row in result.untranslated}
    assert reported == set(read_properties(tmp_path / "clicks.pull"))


def test_more_specific_properties_override_general_ones_as_in_gobblin(tmp_path: Path) -> None:
    root, system = tmp_path / "jobs", tmp_path / "gobblin.read_properties"
    (root / "kafka").mkdir(parents=True)
    system.write_text("work=/srv\nmr.job.max.mappers=1\nstate.store.dir=${work}/state\n")
    (root / "all.properties").write_text(
        "mr.job.max.mappers=2\ntask.maxretries=1\ndata.publisher.final.dir=${work}/out\n"
    )
    (root / "kafka" / "some.properties").write_text("task.maxretries=2\njob.lock.enabled=true\n")
    (root / "kafka" / "common.inc").write_text("job.commit.policy=full\n")
    tree, result = converted(
        root / "kafka", "include=common.inc\njob.lock.enabled=false\n", sysconfig=system, root=root
    )
    assert tree["spark"]["partitions"] == 2
    assert tree["task"]["attempts"] == 3
    assert tree["lock"] == {"enabled": False}
    assert tree["commit"] == {"policy": "full"}
    assert tree["paths"]["output"] == "/srv/out/clicks"
    assert tree["paths"]["store"] == "/srv/state/distcommit/clicks/store"
    assert {row.name: row.location for row in result.translated}["job.commit.policy"] == "common.inc:1"
    assert "state.store.dir" not in converted(root / "kafka")[0]["paths"]["store"]


def test_template_as_sysconfig_supplies_properties_that_the_job_overrides(tmp_path: Path) -> None:
    template = tmp_path / "shop.template"
    template.write_text("gobblin.template.required_attributes=job.name\ntask.maxretries=1\nmr.job.max.mappers=2\n")
    tree, result = converted(tmp_path, "job.template=shop.template\ntask.maxretries=5\n", sysconfig=template)
    assert (tree["task"]["attempts"], tree["spark"]["partitions"]) == (6, 2)
    reasons = {row.name: row.reason for row in result.untranslated}
    assert "--sysconfig" in reasons["job.template"]
    assert "describes the template" in reasons["gobblin.template.required_attributes"]


@pytest.mark.parametrize("text", ["mr {\n  job = 1\n}\n", "mr.job { max.mappers = 2\n}\n"])
def test_template_in_hocon_is_refused(tmp_path: Path, text: str) -> None:
    template = tmp_path / "shop.template"
    template.write_text(text)
    with pytest.raises(ConfigurationError, match="HOCON"):
        converted(tmp_path, sysconfig=template)


def test_environment_variable_is_kept_in_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", "/elsewhere")
    tree, _ = converted(tmp_path, "data.publisher.final.dir=${env:OUT}/files")
    assert tree["paths"]["output"] == "${OUT}/files/clicks"


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("job.lock.enabled=maybe", 4, "neither true nor false"),
        ("# a comment\nmr.job.max.mappers=many", 5, "not a whole number"),
        ("task.maxretries=-1", 4, "too small"),
        ("job.commit.policy=most", 4, "expected full, successful, partial"),
        ("bootstrap.with.offset=somewhere", 4, "the value is unknown"),
        ("topic.whitelist=a,\\\n  (b", 4, "not a valid Python regular expression"),
        ("job.name=other", 4, "also at clicks.pull:1"),
        ("include=nowhere.properties", 4, "not there"),
        ("include=clicks.pull", 4, "include each other"),
        ("data.publisher.final.dir=${gobblin.work.dir}/out", 4, "the variable ${gobblin.work.dir} is not defined"),
        ("a=${b}\nb=${a}", 5, "name each other"),
        ("x=\\u12", 4, "cut short"),
        ("x=\0", 4, "not text"),
        ("writer.destination.type=TERADATA", 4, "no sink writes there"),
        ("writer.destination.type=KAFKA", 4, "the topic or the brokers of the Kafka writer are missing"),
        ("writer.destination.type=MYSQL", 4, "no sink writes to this database"),
        (
            "writer.builder.class=a.JdbcWriterBuilder\njdbc.publisher.url=jdbc:oracle:thin:@h\n"
            "jdbc.publisher.table_name=t",
            5,
            "no sink writes to this database",
        ),
        ("fork.branches=0", 4, "too small"),
        ("fork.branches=2\nfork.branch.name.0=a.b\nfork.branch.name.1=a_b", 4, "the same name"),
        (
            "qualitychecker.task.policies=a.RowCountRangePolicy\nqualitychecker.row.count.range=5%",
            5,
            "the value is not a number",
        ),
        ("qualitychecker.row.policies=a.B\nqualitychecker.row.policy.types=MAYBE", 5, "FAIL, OPTIONAL or ERR_FILE"),
        (
            "converter.classes=a.AvroToJdbcEntryConverter\nconverter.avro.jdbc.entry_fields_pairs=[1]",
            5,
            "pairs of names",
        ),
        ("email.alert.enabled=true\nemail.host=h", 4, "expected email.from, email.tos;"),
    ],
)
def test_invalid_property_is_refused_with_its_line_and_nothing_is_written(
    tmp_path: Path, more: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        converted(tmp_path, more, output=tmp_path / "job.yaml")
    assert message in str(refused.value)
    assert f"clicks.pull, line={line}]" in str(refused.value)
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no name"),
        ("job.name=a", "the property source.class is missing"),
        (
            "job.name=a\nsource.class=x.MysqlSource",
            "expected source.conn.host, source.entity, source.querybased.schema",
        ),
        ("job.name=a\nsource.class=x.KafkaSimpleSource", "a Kafka source needs brokers"),
        (TABLE, "needs a watermark column"),
        (TABLE + "extract.is.full=true\nwriter.builder.class=a.KafkaDataWriterBuilder", "can only replace files"),
        (
            TABLE + "extract.delta.fields=at\nsource.querybased.append.max.watermark.limit=x",
            "the limit can't be converted",
        ),
        (FILES + "source.schema=[1]", "not a list of columns"),
        ("job.name=a\nsource.class=x.AvroFileSource", "the source has no folder"),
        ("job.name=a\nsource.class=x.TextFileBasedSource", "lines of text without a format"),
        (LEAST + "writer.partitioner.class=TimeBased\nwriter.partition.timezone=Nowhere", "Nowhere"),
    ],
)
def test_properties_that_cannot_become_a_job_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "clicks.pull").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        convert_job(tmp_path / "clicks.pull")


def test_convert_command_writes_a_loadable_job_file_and_never_overwrites_one(tmp_path: Path) -> None:
    (tmp_path / "clicks.pull").write_text(LEAST)
    arguments = ["migrate", "convert-gobblin", str(tmp_path / "clicks.pull"), "-o", str(tmp_path / "job.yaml")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["job"] == "clicks"
    assert load_config(tmp_path / "job.yaml").job == "clicks"
    before = (tmp_path / "job.yaml").read_text()
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 2
    assert (tmp_path / "job.yaml").read_text() == before
    shown = CliRunner().invoke(app, ["migrate", "convert-gobblin", str(tmp_path / "clicks.pull")])
    assert yaml.safe_load(shown.stdout) == yaml.safe_load(before)


def test_error_hides_a_url_with_a_password(tmp_path: Path) -> None:
    (tmp_path / "clicks.pull").write_text(
        FILES + "writer.builder.class=JdbcWriterBuilder\njdbc.publisher.url=jdbc:mysql://writer:hidden@db/shop\n"
    )
    with pytest.raises(ConfigurationError, match=r"jdbc\.publisher\.url=\*\*\*") as refused:
        convert_job(tmp_path / "clicks.pull")
    assert "hidden" not in str(refused.value)
