"""Watermarks set for only some of a dataset's partitions: the other partitions would be read again."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from distcommit import Job
from distcommit.core.errors import ConfigurationError
from tests.unit.app.admin.test_set_watermarks import job, watermarks

__all__ = ["job"]


def test_setting_a_watermark_without_all_known_partitions_is_refused(job: Job) -> None:
    assert watermarks(job)["t"] == {"0": 5, "1": 7}
    with pytest.raises(ConfigurationError, match=r"""'t': \{"1": 7\} have positions, and are not named"""):
        job.set_watermark("t", {"0": 6})
    assert watermarks(job)["t"] == {"0": 5, "1": 7}
    job.set_watermark("t", {"0": 6, "1": 7})
    assert watermarks(job)["t"] == {"0": 6, "1": 7}
    job.set_watermark("t", None)
    job.set_watermark("t", {"0": 6})
    assert watermarks(job)["t"] == {"0": 6}


def test_overwriting_import_without_all_known_partitions_is_refused(job: Job, tmp_path: Path) -> None:
    file = tmp_path / "positions.csv"
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([("dataset", "partition", "next_offset"), ("t", "0", "6")])
    with pytest.raises(ConfigurationError, match="are not named"):
        job.import_watermarks(file, overwrite=True)
    assert watermarks(job)["t"] == {"0": 5, "1": 7}
    assert [row.action for row in job.import_watermarks(file).rows] == ["kept"]
