"""A job that continues another job whose datasets were renamed by `rebucket` starts at the positions of the current
names."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit import Job
from distcommit.core.errors import ConfigurationError

JOB = """\
job: {name}
source: {{type: kafka, brokers: "127.0.0.1:1", topics: [t], dataset: {kind}, request_timeout_s: 0.02}}
paths: {{store: {name}/store, staging: {name}/staging, output: {name}/output}}
commit: {{buckets: 2, durability: none}}
"""


def _job(folder: Path, name: str, kind: str) -> Job:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name, kind=kind))
    return Job.from_file(file)


@pytest.mark.parametrize("says", ["topic", "partition"])
@pytest.mark.parametrize("into", ["topic", "partition"])
def test_imported_position_is_the_one_of_the_current_dataset_name(tmp_path: Path, into: str, says: str) -> None:
    """The recorded naming rule of the store takes precedence over the other job's current file."""
    old = _job(tmp_path, "old", "partition")
    old.open_store(create=True)
    old.set_watermark("t@0", {"0": 100}, new=True)
    old.set_watermark("t@1", {"1": 100}, new=True)
    old = _job(tmp_path, "old", "topic")
    old.rebucket()
    old.set_watermark("t", {"0": 300, "1": 300})  # later runs have read up to here
    _job(tmp_path, "old", says)
    new = _job(tmp_path, "new", into)
    new.open_store(create=True)
    new.import_watermarks(tmp_path / "old.yaml")
    positions = {row.dataset: row.positions for row in new.status().datasets}
    assert positions == ({"t": {"0": 300, "1": 300}} if into == "topic" else {"t@0": {"0": 300}, "t@1": {"1": 300}})


def test_unselected_partition_of_a_dataset_does_not_drop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = _job(tmp_path, "old", "topic"), _job(tmp_path, "new", "topic")
    old.open_store(create=True)
    old.set_watermark("t", {"0": 300, "1": 301}, new=True)
    new.open_store(create=True)
    monkeypatch.setattr(type(new.config.source), "selects", lambda _, urn, partition: partition != "0")
    imported = new.import_watermarks(tmp_path / "old.yaml")
    assert {row.dataset: row.positions for row in new.status().datasets} == {"t": {"1": 301}}
    assert imported.skipped == ["t, partition 0: not of this job"]
    monkeypatch.setattr(type(new.config.source), "selects", lambda *_: False)
    with pytest.raises(ConfigurationError, match="job old: t: not a dataset of this job"):
        new.import_watermarks(tmp_path / "old.yaml")


def test_comparison_with_a_job_and_a_consumer_group_at_once_is_refused(tmp_path: Path) -> None:
    job = _job(tmp_path, "old", "topic")
    job.open_store(create=True)
    with pytest.raises(ConfigurationError, match="positions must come from one origin"):
        job.compare(tmp_path / "old.yaml", group="readers")
