"""Job files of Gobblin's own repository: each is converted, checked, and accounted for property by property."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit.app.checks.job_check import check_file
from distcommit.app.migration.gobblin.convert_gobblin_job import convert_job
from distcommit.app.migration.gobblin.read_properties import read_properties
from distcommit.app.migration.gobblin.untranslated_reasons import UNKNOWN
from tests.unit.app.migration.gobblin.properties_page import PAGE, SECTIONS, properties_page, rows_of

FOLDER = Path(__file__).parents[4] / "inputs" / "gobblin"
FILES: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "kafka-hdfs.pull": (
        {
            "source.type": "kafka",
            "sink.format": "parquet",
            "paths.output": "hdfs://namenode:9000/gobblin/job-output/KafkaToFiles",
        },
        [],
        [],
    ),
    "kafka-console.pull": ({"sink.type": "console", "source.topic_patterns": ["articles"]}, [], []),
    "streaming-kafka-kafka.pull": (
        {"source.topics": ["clicks"], "sink.type": "kafka", "sink.format": "bytes", "schedule.interval_s": 60},
        ["SamplingConverter"],
        [],
    ),
    "PNDA.pull": (
        {"source.start": "earliest"},
        ["PNDAConverter"],
        ["PNDA.quarantine.dataset.uri", "kite.writer.dataset.uri"],
    ),
    "mysql-table_append.pull": (
        {"source.type": "sql", "source.watermark": "created", "source.lookback": 86400},
        [],
        [],
    ),
    "sqlserver-table_full.pull": ({"source.type": "spark", "sink.publish": "replace"}, [], []),
    "avro-to-mysql.pull": ({"source.format": "avro", "sink.type": "mariadb", "sink.table": "units"}, [], []),
    "hdfs-monthly-to-hdfs-daily.pull": (
        {"sink.partition_by.column": "change_dt", "sink.partition_by.granularity": "day"},
        [],
        [],
    ),
    "sftp-example.job": (
        {
            "source.paths": ["sftp://reader@localhost:22/example/input/*prices*"],
            "source.columns": ["item", "price", "stock"],
        },
        [],
        [],
    ),
    "simplejson.pull": ({"source.type": "python"}, ["SimpleJsonConverter", "SimpleJsonSource"], []),
    "wikipedia-orc.pull": (
        {"source.type": "python", "sink.format": "orc"},
        ["WikipediaConverter", "WikipediaSource"],
        ["wikipedia.api.rooturl", "wikipedia.avro.schema"],
    ),
}
"""Some settings of each converted file, the classes that have to be written, and the unknown properties."""


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOURCE_PASSWORD", "SINK_PASSWORD"):
        monkeypatch.setenv(name, "from-the-environment")


@pytest.mark.parametrize("name", FILES)
def test_file_of_gobblin_becomes_a_job_whose_only_problems_are_the_reported_classes(name: str, tmp_path: Path) -> None:
    settings, classes, unknown = FILES[name]
    result = convert_job(FOLDER / name, tmp_path / "job.yaml")
    assert result.classes_to_write == [f"gobblin_ports:{each}" for each in classes]
    checked = check_file(tmp_path / "job.yaml", connect=False)
    assert checked.passed == (not classes)
    for problem in checked.problems:
        assert any(each in problem.text for each in result.classes_to_write), problem
    tree = yaml.safe_load(result.job_file)
    for key, value in settings.items():
        at = tree
        for part in key.split("."):
            at = at[part]
        assert at == value, key
    assert sorted(row.name for row in result.untranslated if row.reason == UNKNOWN) == unknown


@pytest.mark.parametrize("name", FILES)
def test_each_property_of_a_file_is_reported_and_no_secret_is_copied(name: str) -> None:
    result = convert_job(FOLDER / name)
    reported = {row.name for row in result.translated} | {row.name for row in result.untranslated}
    assert reported == {key for key, entry in read_properties(FOLDER / name).items() if entry.value}
    assert "not-this-one" not in result.job_file


def test_each_input_is_tested() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(FILES)


def test_page_of_properties_shows_the_results_of_the_converter() -> None:
    assert PAGE.read_text(encoding="utf-8") == properties_page(), (
        "run python -m tests.unit.app.migration.gobblin.properties_page to update the page"
    )


@pytest.mark.parametrize("title", SECTIONS)
def test_each_property_of_the_page_has_a_setting_or_a_reason(title: str) -> None:
    for name, _, setting, reason in rows_of(*SECTIONS[title]):
        assert setting or reason, name
        assert UNKNOWN not in reason, name
