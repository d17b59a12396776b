"""Watermarks set by an operator: invalid positions are refused, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.watermark_types import (
    WATERMARK_PIN,
    CompositeWatermark,
    LongWatermark,
    StringWatermark,
    TimestampWatermark,
)
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.watermark import Position, Watermark, as_offset
from distcommit.testing.fakes.model_source import ModelSource
from tests.jobs.kafka_job import kafka_job

JOB = """\
job: by-hand
source: {type: kafka, brokers: "127.0.0.1:1", topics: [t, u], request_timeout_s: 0.02}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 1, durability: none}
"""


class Composite(ModelSource):
    """A custom source whose positions are a time and a name."""

    def fixed_settings(self) -> dict[str, FixedSetting]:
        return {WATERMARK_PIN: CompositeWatermark(TimestampWatermark(), StringWatermark()).pin()}


class Recoded(ModelSource):
    """A custom source whose positions are encoded in another way than those of `Composite`."""

    def fixed_settings(self) -> dict[str, FixedSetting]:
        return {WATERMARK_PIN: CompositeWatermark(LongWatermark(), StringWatermark()).pin()}


class Counted(ModelSource):
    """A custom source that validates its positions."""

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        return (
            f"{urn} counts in tens"
            for urn, positions in datasets.items()
            if any(as_offset(p) % 10 for p in positions.values())
        )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job whose store knows the datasets t and u, the second one without a watermark."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    created = Job.from_file(file)
    created.open_store(create=True)
    created.set_watermark("t", {"0": 5, "1": 7}, new=True)
    created.set_watermark("u", None, new=True)
    return created


def watermarks(job: Job) -> dict[str, Any]:
    return {row.dataset: row.positions for row in job.status().datasets}


WRONG: dict[str, Any] = {
    "another partition's name": {"zero": 1},
    "a text": {"0": "x"},
    "a fraction": {"0": 1.5},
    "a whole fraction": {"0": 1.0},
    "below zero": {"0": -1},
    "beyond 64 bits": {"0": 2**70},
    "beyond an offset": {"0": 2**63},
    "a leading zero": {"01": 1},
    "a negative partition": {"-1": 1},
    "a digit of another script": {"٣": 1},
    "nothing": {},
    "a boolean": {"0": True},
    "not a number": {"0": float("nan")},
    "no text for a partition": {0: 1},
    "no valid text": {"\udcff": 1},
}


@pytest.mark.parametrize("positions", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("urn", ["t", "u"])
def test_invalid_position_is_refused(job: Job, urn: str, positions: Any) -> None:
    before = watermarks(job)
    with pytest.raises(ConfigurationError, match="the positions are not valid"):
        job.set_watermark(urn, positions)
    assert watermarks(job) == before


@pytest.mark.parametrize("urn", ["typo", "t@0", "", "t\udcff", "T"])
@pytest.mark.parametrize("positions", [{"0": 1}, None])
def test_unknown_dataset_is_refused(job: Job, urn: str, positions: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"knows no such dataset|dataset URN is invalid"):
        job.set_watermark(urn, positions)
    assert watermarks(job).keys() == {"t", "u"}


def test_new_dataset_is_refused_unless_it_belongs_to_the_job_and_is_unknown(job: Job) -> None:
    with pytest.raises(ConfigurationError, match="not a dataset of this job"):
        job.set_watermark("typo", {"0": 1}, new=True)
    with pytest.raises(ConfigurationError, match="knows this dataset already"):
        job.set_watermark("t", {"0": 1}, new=True)


def test_dataset_of_one_partition_accepts_only_positions_of_that_partition(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("topics: [t, u]", "topics: [t], dataset: partition"))
    job = Job.from_file(file)
    job.open_store(create=True)
    for urn, positions in (("t@3", {"4": 1}), ("t", {"0": 1}), ("t@x", {"x": 1}), ("u@0", {"0": 1})):
        with pytest.raises(ConfigurationError, match=r"not a dataset of this job|not in this dataset"):
            job.set_watermark(urn, positions, new=True)
    job.set_watermark("t@3", {"3": 1}, new=True)
    assert watermarks(job) == {"t@3": {"3": 1}}


def test_partitions_that_the_topic_lacks_are_refused_if_the_brokers_are_reachable(tmp_path: Path) -> None:
    with kafka_job(tmp_path, {"a": 2}) as kafka:
        job = Job.from_file(kafka.path)
        job.open_store(create=True)
        with pytest.raises(ConfigurationError, match="no partition 2; it has 2 partitions"):
            job.set_watermark("a", {"1": 1, "2": 1}, new=True)
        job.set_watermark("a", {"0": 1, "1": 1}, new=True)
    assert watermarks(job) == {"a": {"0": 1, "1": 1}}


def test_set_watermark_command_reports_the_error_and_the_remedy(job: Job, tmp_path: Path) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["dataset", "set-watermark", str(tmp_path / "job.yaml"), *arguments, "--json"])
        return done.exit_code, done.stdout + done.stderr

    assert said("t", '{"zero": "x"}')[0] == 2
    assert "'zero' is not a partition's number" in said("u", '{"zero": "x"}')[1]
    assert "--new" in said("typo", '{"0": 1}')[1]
    assert said("t", '{"0": 3, "1": 3}')[0] == 0
    assert watermarks(job)["t"] == {"0": 3, "1": 3}


def test_import_validates_positions_like_set_watermark(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    named = f"{Counted.__module__}:Counted"
    of_its_own = JOB.replace(JOB.splitlines()[1], f'source: {{type: python, class: "{named}", options: {{}}}}')
    own.write_text(of_its_own)
    positions = tmp_path / "positions.csv"
    positions.write_text("dataset,partition,next_offset\nx,0,10\ny,0,15\n")
    with pytest.raises(ConfigurationError, match="y counts in tens"):
        Job.from_file(own).import_watermarks(positions)
    positions.write_text("dataset,partition,next_offset\nx,0,10\n")
    Job.from_file(own).import_watermarks(positions)
    with pytest.raises(ConfigurationError, match="x counts in tens"):
        Job.from_file(own).set_watermark("x", {"0": 11})
    Job.from_file(own).set_watermark("x", {"0": 20})
    stored = Job.from_file(own).open_store(create=False).bucket_log(0).refresh()
    assert stored.state_of("x").watermark == Watermark({"0": 20})


COMPOSITE = """\
job: by-hand
source: {type: python, class: "tests.unit.app.admin.test_set_watermarks:Composite"}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 1, durability: none}
"""


def test_composite_positions_are_set_and_shown_and_must_have_their_type(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(COMPOSITE)
    Job.from_file(file).open_store(create=True)
    position = ["2026-01-01T00:00:00.000000Z", "a b.csv"]
    command = ["dataset", "set-watermark", str(file), "d", json.dumps({"": position}), "--new"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert '"a b.csv"]' in done.output
    job = Job.from_file(file)
    assert watermarks(job) == {"d": {"": tuple(position)}}
    for wrong in ([1, "a"], ["a"], "a", [["a"], "b"], [None]):
        with pytest.raises(ConfigurationError, match="the positions are not valid"):
            job.set_watermark("d", {"": wrong})  # type: ignore[dict-item]
    job.set_watermark("d", {"": ["2026", "a"]})  # type: ignore[dict-item]
    assert watermarks(job) == {"d": {"": ("2026", "a")}}


def test_watermarks_of_different_types_are_refused(tmp_path: Path) -> None:
    file, other = tmp_path / "job.yaml", tmp_path / "other.yaml"
    file.write_text(COMPOSITE)
    Job.from_file(file).open_store(create=True)
    Job.from_file(file).set_watermark("d", {"": ("2026", "a")}, new=True)
    with pytest.raises(ConfigurationError) as refused:
        Job.from_file(file, ["source.class=tests.unit.app.admin.test_set_watermarks:Recoded"]).set_watermark(
            "d", {"": (1, "a")}
        )
    assert "composite (timestamp 1, string 1) 1" in refused.value.expected
    assert "composite (long 1, string 1) 1" in refused.value.found
    other.write_text(COMPOSITE.replace("Composite", "Recoded").replace("store: store", "store: s2"))
    with pytest.raises(ConfigurationError, match="have another type than those of this job") as refused:
        Job.from_file(other).import_watermarks(file)
    assert "composite (timestamp 1, string 1) 1" in refused.value.found


def test_composite_positions_are_imported_from_csv(tmp_path: Path) -> None:
    file, csv = tmp_path / "job.yaml", tmp_path / "positions.csv"
    file.write_text(COMPOSITE)
    job = Job.from_file(file)
    job.open_store(create=True)
    csv.write_text('dataset,partition,next_offset\nd,,"[""2026"", ""a""]"\n')
    job.import_watermarks(csv)
    assert watermarks(job) == {"d": {"": ("2026", "a")}}
    csv.write_text('dataset,partition,next_offset\ne,,"[""2026"", null]"\n')
    with pytest.raises(ConfigurationError, match="line 2"):
        job.import_watermarks(csv)


def test_comparison_of_jobs_without_offsets_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    source = f"type: sql, url: 'sqlite:///{tmp_path}/a.db', tables: [t], watermark: id, lookback: 0"
    file.write_text(f"job: a\nsource: {{{source}}}\npaths: {{store: store, staging: staging, output: output}}\n")
    Job.from_file(file).open_store(create=True)
    with pytest.raises(ConfigurationError, match="by the offsets in their files"):
        Job.from_file(file).compare(file)
