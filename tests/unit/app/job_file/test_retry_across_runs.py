"""`task.retry_across_runs` in a job file, for sources that know in advance where reading ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.job_file.load_job_file import load_config
from distcommit.core.errors import ConfigurationError
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.unit.app.job_file.test_delivery import config

CONF = PACKAGE_ROOT / "conf" / "jobs"
ALWAYS = "task.retry_across_runs=always"


def test_kafka_and_custom_sources_accept_retry_across_runs(tmp_path: Path) -> None:
    assert config(tmp_path, "", ALWAYS).task.retry_across_runs == "always"
    assert load_config(CONF / "kafka-to-parquet.yaml", [ALWAYS]).task.retry_across_runs == "always"


@pytest.mark.parametrize("file", ["files-to-parquet", "sql-to-parquet", "rest-to-parquet"])
def test_built_in_sources_with_a_known_end_accept_retry_across_runs(file: str) -> None:
    assert load_config(CONF / f"{file}.yaml", [ALWAYS]).task.retry_across_runs == "always"


@pytest.mark.parametrize(
    ("file", "sections"),
    [
        (
            "kafka",
            ["source={type: sql, url: 'sqlite:////a', tables: [a], table_type: snapshot_only}", "sink.publish=replace"],
        ),
        ("kafka", ["source={type: spark, format: orc, datasets: {a: {}}}", "sink.publish=replace"]),
        ("rest", ["source.watermark={field: id, type: integer, since: s, lookback: 0}"]),
    ],
)
def test_sources_without_a_known_end_refuse_retry_across_runs(file: str, sections: list[str]) -> None:
    path = CONF / f"{file}-to-parquet.yaml"
    with pytest.raises(ConfigurationError, match=r"task\.retry_across_runs must be never for this source"):
        load_config(path, [*sections, ALWAYS])
    assert load_config(path, [*sections, "task.retry_across_runs=never"]).task.retry_across_runs == "never"


def test_micro_batches_refuse_retry_across_runs() -> None:
    source = "source={type: micro_batch, dataset_column: topic}"
    with pytest.raises(ConfigurationError, match=r"task\.retry_across_runs must be never for this source"):
        load_config(CONF / "kafka-to-parquet.yaml", [source, ALWAYS])
