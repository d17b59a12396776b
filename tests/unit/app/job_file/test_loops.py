"""Jobs whose sink writes to their own source: each run would read the records of the last one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distcommit.app.demo.broker import MockBroker
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.source import DatasetProblem, Planned
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.records.deferred_records import DeferredRecords
from distcommit.core.records.fixed_settings import FixedSetting, SourceFact
from distcommit.core.support.comparable_addresses import broker_addresses, database_address
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.engine.planning.loop_check import LoopCheck
from distcommit.sources.files.path_patterns import PathPattern
from tests.unit.sources.retried_ranges import states_of

KAFKA = {"type": "kafka", "brokers": "broker1:9092,Broker2:9093"}
TO_KAFKA = {"type": "kafka", "brokers": "broker2:9093", "ledger": "ledger"}
SQL = {"type": "sql", "url": "postgresql://reader@db/shop", "watermark": "id", "lookback": 0}
SQLITE = {"type": "sql", "url": "sqlite:////data/shop.db", "watermark": "id", "lookback": 0}
MYSQL = {"type": "sql", "url": "mysql://reader@localhost/shop", "watermark": "id", "lookback": 0}
TO_POSTGRESQL = {"type": "postgresql", "url": "postgresql://writer@db:5432/shop"}
TO_COPY = {**TO_POSTGRESQL, "table": "copy"}
TO_SQLITE = {"type": "sqlite", "path": "/data/shop.db"}
DELTA = {"type": "delta", "location": "/data/lake"}
ICEBERG = {"type": "iceberg", "namespace": "shop", "catalog": {"type": "sql", "uri": "sqlite:////data/catalog.db"}}


def spark(kind: str, **options: str) -> dict[str, Any]:
    return {"type": "spark", "format": kind, "watermark": "id", "lookback": 0, "datasets": {"orders": options}}


def parsed(source: dict[str, Any], sink: dict[str, Any], folder: Path) -> JobConfig:
    paths = {name: str(folder / name) for name in ("store", "staging", "output")}
    return parse_config({"job": "j", "source": source, "sink": sink, "paths": paths}, folder / "job.yaml")


LOOPS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**KAFKA, "topics": ["orders"]}, {**TO_KAFKA, "topic": "orders"}),
    ({**KAFKA, "topics": ["orders", "copy-orders"]}, {**TO_KAFKA, "topic": "copy-{dataset}"}),
    ({**KAFKA, "topics": ["orders"]}, {**TO_KAFKA, "topic": "{dataset}"}),
    ({**KAFKA, "topic_patterns": [".*"]}, {**TO_KAFKA, "topic": "all"}),
    ({**KAFKA, "topic_patterns": ["l.*"]}, {**TO_KAFKA, "topic": "all"}),
    ({**KAFKA, "topics": ["orders", "ledger"]}, {**TO_KAFKA, "topic": "all"}),
    ({**SQL, "tables": ["orders"]}, TO_POSTGRESQL),
    ({**SQL, "table_patterns": ["orders.*"]}, {**TO_POSTGRESQL, "table": "orders_copy"}),
    ({**SQL, "table_patterns": ["distcommit_.*"]}, {**TO_POSTGRESQL, "table": "copy"}),
    ({**SQL, "schema": "public", "tables": ["orders"]}, TO_POSTGRESQL),
    ({**SQL, "queries": {"q": "SELECT * FROM orders JOIN q AS a USING (id)"}}, TO_POSTGRESQL),
    ({**SQL, "queries": {"n": 'SELECT * FROM a, ONLY "public" . "copy" b'}}, TO_COPY),
    ({**SQL, "queries": {"n": "WITH w AS (SELECT 1 FROM (COPY)) SELECT * FROM w"}}, TO_COPY),
    ({**SQLITE, "queries": {"n": "SELECT * FROM main.[N]"}}, TO_SQLITE),
    ({**MYSQL, "queries": {"n": "SELECT 1 FROM `shop`.`n`"}}, {"type": "mariadb", "url": "mariadb://w@localhost/shop"}),
    ({**SQLITE, "table_patterns": [".*"]}, {"type": "sqlite", "path": "/data/shop.db", "table": "copy"}),
    ({**MYSQL, "tables": ["orders"]}, {"type": "mariadb", "url": "mariadb://writer@127.0.0.1:3306/shop"}),
    (spark("jdbc", url="jdbc:postgresql://db/shop", dbtable="public.orders"), TO_POSTGRESQL),
    (spark("delta", path="/data/lake/orders"), DELTA),
    (spark("parquet", path="/data/*/orders"), DELTA),
    (spark("parquet", path="/data/l{ak,os}e/*/part*.parquet"), DELTA),
    (spark("parquet", path="/data/{lake/orders,x}"), DELTA),
    (spark("iceberg", path="lake.shop.orders"), ICEBERG),
    (spark("kafka", **{"kafka.bootstrap.servers": "broker2:9093", "subscribe": "a,all"}), {**TO_KAFKA, "topic": "all"}),
]
APART: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({**KAFKA, "topics": ["orders"]}, {**TO_KAFKA, "topic": "copy-{dataset}"}),
    ({**KAFKA, "topics": ["orders"]}, {**TO_KAFKA, "topic": "orders", "brokers": "elsewhere:9092"}),
    ({**KAFKA, "topic_patterns": [".*"], "exclude": ["all", "ledger"]}, {**TO_KAFKA, "topic": "all"}),
    ({**SQL, "tables": ["orders"]}, {**TO_POSTGRESQL, "table": "copy_{dataset}"}),
    ({**SQL, "tables": ["orders"]}, {**TO_POSTGRESQL, "url": "postgresql://writer@db/warehouse"}),
    ({**SQL, "schema": "public", "tables": ["orders"]}, {**TO_POSTGRESQL, "schema": "copy"}),
    ({**SQL, "queries": {"n": "SELECT copy, a.copy FROM copies AS a, other WHERE copy > 1"}}, TO_COPY),
    ({**SQL, "queries": {"n": "SELECT id FROM raw.copy WHERE extract(day FROM copy) > 1"}}, TO_COPY),
    ({**SQL, "queries": {"n": "SELECT 1 FROM a WHERE id IS DISTINCT FROM copy ORDER BY id, copy"}}, TO_COPY),
    ({**SQL, "queries": {"n": "SELECT 'FROM copy' AS a FROM b -- FROM copy"}}, TO_COPY),
    ({**SQLITE, "url": "sqlite:////data/b.db", "queries": {"n": "SELECT 1 FROM n"}}, TO_SQLITE),
    (spark("delta", path="/data/lake/orders_raw"), {**DELTA, "table": "copy_{dataset}"}),
    (spark("csv", path="/data/*/in/*.csv"), DELTA),
    (spark("csv", path="s3a://bucket/landing-*/*.csv"), {**DELTA, "location": "s3://bucket/lake"}),
    (spark("iceberg", path="lake.raw.orders"), ICEBERG),
]


@pytest.mark.parametrize(("source", "sink"), LOOPS)
def test_sink_that_writes_to_its_own_source_is_refused(
    source: dict[str, Any], sink: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="which the source reads"):
        parsed(source, sink, tmp_path)


@pytest.mark.parametrize(("source", "sink"), APART)
def test_sink_and_source_of_one_system_that_are_apart_are_accepted(
    source: dict[str, Any], sink: dict[str, Any], tmp_path: Path
) -> None:
    parsed(source, sink, tmp_path)


def test_error_for_a_source_without_schema_names_the_schema_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set source\.schema if the source reads another schema"):
        parsed({**SQL, "tables": ["orders"]}, {**TO_POSTGRESQL, "schema": "copy"}, tmp_path)


@pytest.mark.parametrize(
    ("catalogs", "is_refused"),
    [
        ({"lake": {"type": "rest", "uri": "https://old.example/api"}}, False),
        ({"lake": {"type": "rest", "uri": "https://Catalog.example:443/api/"}}, True),
        ({"lake": {"type": "rest"}}, True),
        ({}, True),
        ({"lake": {"type": "hive", "uri": "thrift://old.example:9083"}}, False),
        ({"lake": {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db"}}, False),
    ],
)
def test_iceberg_tables_of_one_name_are_apart_if_their_catalogs_are(
    catalogs: dict[str, dict[str, str]], is_refused: bool, tmp_path: Path
) -> None:
    paths = {name: str(tmp_path / name) for name in ("store", "staging", "output")}
    conf = {f"spark.sql.catalog.{name}.{key}": text for name, of in catalogs.items() for key, text in of.items()}
    sink = {**ICEBERG, "catalog": {"type": "rest", "uri": "https://catalog.example/api"}}
    tree = {"job": "j", "source": spark("iceberg", path="lake.shop.orders"), "sink": sink, "paths": paths}
    if not is_refused:
        parse_config({**tree, "spark": {"conf": conf}}, tmp_path / "job.yaml")
        return
    with pytest.raises(ConfigurationError, match="which the source reads"):
        parse_config({**tree, "spark": {"conf": conf}}, tmp_path / "job.yaml")


def test_iceberg_catalog_in_a_database_is_known_by_its_jdbc_url(tmp_path: Path) -> None:
    conf = {"spark.sql.catalog.lake.uri": "jdbc:sqlite:/data/catalog.db"}
    paths = {name: str(tmp_path / name) for name in ("store", "staging", "output")}
    tree = {"job": "j", "source": spark("iceberg", path="lake.shop.orders"), "sink": ICEBERG, "paths": paths}
    with pytest.raises(ConfigurationError, match="which the source reads"):
        parse_config({**tree, "spark": {"conf": conf}}, tmp_path / "job.yaml")


@pytest.mark.parametrize("pattern", ["output/*/*.csv", "output/d/x.csv", "**/*.csv", "*/*/*.csv", "store/**/*.csv"])
def test_files_below_the_jobs_own_folders_are_refused(pattern: str, tmp_path: Path) -> None:
    source = {"type": "files", "format": "csv", "dataset": "d", "paths": [f"{tmp_path}/{pattern}"]}
    with pytest.raises(ConfigurationError, match="the source reads the job's own folders"):
        parsed(source, {"type": "files"}, tmp_path)


@pytest.mark.parametrize("pattern", ["*.csv", "*/*.csv", "in/**/*.csv", "in*/x.csv"])
def test_files_beside_the_jobs_own_folders_are_accepted(pattern: str, tmp_path: Path) -> None:
    source = {"type": "files", "format": "csv", "dataset": "d", "paths": [f"{tmp_path}/{pattern}"]}
    parsed(source, {"type": "files"}, tmp_path)


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"path": "{}/*/*/*.parquet"}, True),
        ({"path": "{}", "recursiveFileLookup": "true"}, True),
        ({"path": "{}/output"}, True),
        ({"path": "{}"}, False),
        ({"path": "{}/in*/*/*.parquet"}, False),
    ],
)
def test_spark_reader_of_the_jobs_own_folders_is_refused(
    options: dict[str, str], is_refused: bool, tmp_path: Path
) -> None:
    source = spark("parquet", **{name: value.replace("{}", str(tmp_path)) for name, value in options.items()})
    if not is_refused:
        parsed(source, {"type": "files"}, tmp_path)
        return
    with pytest.raises(ConfigurationError, match="the source reads the job's own folders"):
        parsed(source, {"type": "files"}, tmp_path)


def test_dataset_of_a_pattern_whose_own_topic_the_pattern_selects_is_a_loop(tmp_path: Path) -> None:
    """Only the dataset's name shows the loop, so planning leaves the dataset out of the run."""
    source = {**KAFKA, "topic_patterns": ["orders.*"]}
    flow = parsed(source, {**TO_KAFKA, "topic": "{dataset}-copy"}, tmp_path).task_flow()
    assert flow.loop_of("orders") == "topic orders-copy"
    assert flow.loop_of("customers") == ""
    plans = [DatasetPlan(urn, None, Watermark({}), ()) for urn in ("orders", "customers")]
    problem, planned = map(LoopCheck(flow).check, plans)
    assert isinstance(problem, DatasetProblem)
    assert "topic orders-copy" in problem.error
    assert planned == plans[1]


@pytest.mark.parametrize(("topic", "is_loop"), [("orders", True), ("copy", False)])
def test_one_kafka_cluster_at_addresses_that_differ_is_a_loop(topic: str, is_loop: bool, tmp_path: Path) -> None:
    """The cluster id shows the loop before anything is written."""
    with MockBroker.start({"orders": 1}) as broker:
        same = broker.bootstrap_servers.replace("127.0.0.1", "127.1")
        source = {"type": "kafka", "brokers": broker.bootstrap_servers, "topics": ["orders"]}
        flow = parsed(source, {**TO_KAFKA, "brokers": same, "topic": topic}, tmp_path).task_flow()
        loops, checked = LoopCheck(flow), list[Planned]()
        for planned in flow.source.plan(lambda urn: True, states_of({}, {})):
            if isinstance(planned, SourceFact):
                loops.add_fact(planned)
            elif not isinstance(planned, DeferredRecords):
                checked.append(loops.check(planned))
    (result,) = checked
    assert ("topic orders" in result.error if isinstance(result, DatasetProblem) else False) is is_loop


def test_sink_whose_cluster_can_not_be_asked_fails_the_dataset_that_may_be_a_loop(tmp_path: Path) -> None:
    away = {"brokers": "127.0.0.1:1", "request_timeout_s": 1, "topic": "{dataset}"}
    flow = parsed({**KAFKA, "topics": ["orders", "others"]}, {**TO_KAFKA, **away}, tmp_path).task_flow()
    loops = LoopCheck(flow)
    loops.add_fact(SourceFact("cluster", FixedSetting("id")))
    result = loops.check(DatasetPlan("orders", None, Watermark({}), ()))
    assert isinstance(result, DatasetProblem)
    assert "can't be asked for its id" in result.error
    plan = DatasetPlan("elsewhere", None, Watermark({}), ())
    assert loops.check(plan) is plan


def test_folders_whose_names_begin_with_a_dot_are_not_read_by_wildcards() -> None:
    assert not PathPattern.parse("/data/**/*.csv").may_match_in("/data/.jobs/j/output")
    assert PathPattern.parse("/data/.jobs/*/output/*/*.csv").may_match_in("/data/.jobs/j/output")


def test_addresses_are_compared_independently_of_their_form() -> None:
    assert database_address("mariadb://u@LOCALHOST/shop") == database_address("mysql://127.0.0.1:3306/shop")
    assert database_address("jdbc:postgresql://db/shop") == database_address("postgresql://u@db:5432/shop")
    assert broker_addresses("SSL://A:1, b:2") == {"a:1", "b:2"}
    assert not Target("topic", "t", broker_addresses("a:1")).is_in(broker_addresses("a:2"))
