"""What is kept of runs is read as what was written."""

from __future__ import annotations

from pathlib import Path

from distcommit.stores.documents import decode_document, encode_document
from distcommit.stores.horizons import RetentionHorizon
from distcommit.stores.run_datasets import decode_run_datasets, encode_run_datasets
from distcommit.stores.run_records import CancelRequest, RunBeginning
from distcommit.stores.run_times import decode_run_times, encode_run_times
from distcommit.stores.schedule_requests import ScheduleRequest
from distcommit.stores.tombstones import Tombstone
from tests.golden import samples
from tests.golden.make import (
    GOLDEN_RETAINED,
    GOLDEN_RUNS,
    GOLDEN_SCHEDULE,
    GOLDEN_TIMES,
    make_retained,
    make_runs,
    make_schedule,
    make_times,
)
from tests.golden.test_golden import SPECIFICATION

PATH = "path"


def test_the_beginning_of_a_run_is_read_as_what_was_written() -> None:
    data = (GOLDEN_RUNS / "begun.json").read_bytes()
    assert decode_document(data, RunBeginning, 1, "beginning", PATH) == samples.RUN_BEGINNING
    assert encode_document(samples.RUN_BEGINNING) == data


def test_a_request_to_end_is_read_as_what_was_written() -> None:
    data = (GOLDEN_RUNS / "cancel.json").read_bytes()
    assert decode_document(data, CancelRequest, 1, "request", PATH) == samples.CANCEL_REQUEST
    assert encode_document(samples.CANCEL_REQUEST) == data


def test_the_table_of_a_run_s_datasets_is_read_as_what_was_written() -> None:
    data = (GOLDEN_RUNS / "run_datasets.parquet").read_bytes()
    assert decode_run_datasets(data, PATH) == samples.RUN_DATASETS
    assert decode_run_datasets(encode_run_datasets(samples.RUN_DATASETS), PATH) == samples.RUN_DATASETS


def test_a_request_to_pause_a_job_is_read_as_what_was_written(tmp_path: Path) -> None:
    data = (GOLDEN_SCHEDULE / "paused.json").read_bytes()
    assert decode_document(data, ScheduleRequest, 1, "request", PATH) == samples.SCHEDULE_REQUEST
    make_schedule(tmp_path / "schedule")
    assert (tmp_path / "schedule" / "paused.json").read_bytes() == data
    assert "| ScheduleRequest | version, who, at_ms |" in SPECIFICATION


def test_the_table_of_a_run_s_times_is_read_as_what_was_written() -> None:
    data = (GOLDEN_TIMES / "run_times.parquet").read_bytes()
    assert decode_run_times(data, PATH) == samples.RUN_TIMES
    assert decode_run_times(encode_run_times(samples.RUN_TIMES), PATH) == samples.RUN_TIMES


def test_the_golden_files_are_those_that_are_made(tmp_path: Path) -> None:
    make_runs(tmp_path / "runs")
    make_times(tmp_path / "times")
    assert {path.name for path in (tmp_path / "times").iterdir()} == {path.name for path in GOLDEN_TIMES.iterdir()}
    assert "| RunTime | phase, task, host, pid, daemon_pid, kind, dataset, began_ms, ended_ms, count |" in SPECIFICATION
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {path.name for path in GOLDEN_RUNS.iterdir()}
    assert "| RunDataset | dataset, bucket, outcome, records, files, positions_lost, kind, reason |" in SPECIFICATION


def test_what_came_with_retention_is_read_as_what_was_written(tmp_path: Path) -> None:
    data = (GOLDEN_RETAINED / "retained.json").read_bytes()
    assert decode_document(data, Tombstone, 3, "a tombstone", PATH) == samples.RETAINED
    assert not samples.RETAINED.objection()
    data = (GOLDEN_RETAINED / "horizon.json").read_bytes()
    assert decode_document(data, RetentionHorizon, 1, "a horizon", PATH) == samples.HORIZON
    make_retained(tmp_path / "retained")
    made = {path.name: path.read_bytes() for path in (tmp_path / "retained").iterdir()}
    assert made == {path.name: path.read_bytes() for path in GOLDEN_RETAINED.iterdir()}
