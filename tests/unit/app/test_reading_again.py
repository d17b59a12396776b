"""`task.retry_across_runs` in a job file: with sources that plan by it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.job_file.config import load_config
from distcommit.model.errors import ConfigurationError
from tests.jobs.kafka_job import PACKAGE_ROOT
from tests.unit.app.test_delivery import config

CONF = PACKAGE_ROOT / "conf"
ALWAYS = "task.retry_across_runs=always"


def test_what_failed_can_be_read_again_by_itself_from_kafka_and_from_a_source_of_one_s_own(tmp_path: Path) -> None:
    assert config(tmp_path, "", ALWAYS).task.retry_across_runs == "always"
    assert load_config(CONF / "kafka-to-parquet.yaml", [ALWAYS]).task.retry_across_runs == "always"


@pytest.mark.parametrize("file", ["files-to-parquet", "sql-to-parquet", "rest-to-parquet"])
def test_a_source_that_plans_up_to_its_newest_end_refuses_it(file: str) -> None:
    with pytest.raises(ConfigurationError, match="always does not go with this source"):
        load_config(CONF / f"{file}.yaml", [ALWAYS])
    assert load_config(CONF / f"{file}.yaml", ["task.retry_across_runs=never"]).task.retry_across_runs == "never"


def test_micro_batches_refuse_it() -> None:
    source = "source={type: micro_batch, dataset_column: topic}"
    with pytest.raises(ConfigurationError, match="does not go with this source"):
        load_config(CONF / "kafka-to-parquet.yaml", [source, ALWAYS])
