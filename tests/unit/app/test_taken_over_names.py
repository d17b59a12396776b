"""A job that goes on where another one stopped, whose datasets had got other names by `rebucket`: where they stand
under their names of now counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit import Job

JOB = """\
job: {name}
source: {{type: kafka, brokers: "127.0.0.1:1", topics: [t], dataset: {kind}, request_timeout_s: 0.2}}
paths: {{store: {name}/store, staging: {name}/staging, output: {name}/output}}
commit: {{buckets: 2, durability: none}}
"""


def _job(folder: Path, name: str, kind: str) -> Job:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name, kind=kind))
    return Job.from_file(file)


@pytest.mark.parametrize("says", ["topic", "partition"])
@pytest.mark.parametrize("into", ["topic", "partition"])
def test_where_a_dataset_stands_under_its_name_now_counts(tmp_path: Path, into: str, says: str) -> None:
    """Whatever the other job's file says by now: the store has recorded the rule."""
    old = _job(tmp_path, "old", "partition")
    old.open_store(create=True)
    old.set_watermark("t@0", {"0": 100}, new=True)
    old.set_watermark("t@1", {"1": 100}, new=True)
    old = _job(tmp_path, "old", "topic")
    old.rebucket()
    old.set_watermark("t", {"0": 300, "1": 300})  # as runs since have read it
    _job(tmp_path, "old", says)
    new = _job(tmp_path, "new", into)
    new.open_store(create=True)
    new.import_watermarks(tmp_path / "old.yaml")
    found = {row.dataset: row.positions for row in new.status().datasets}
    assert found == ({"t": {"0": 300, "1": 300}} if into == "topic" else {"t@0": {"0": 300}, "t@1": {"1": 300}})
