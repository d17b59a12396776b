"""The logs of jobs in every state, shown record by record."""

from __future__ import annotations

import pytest

from distcommit.app.inspection.read_commit_log import read_log
from tests.golden.job import store_at
from tests.golden.jobs import JOBS
from tests.golden.make import JOBS as GOLDEN_JOBS


@pytest.mark.parametrize("name", JOBS)
def test_every_record_is_shown_and_counts_as_in_the_fold(name: str) -> None:
    store = store_at(GOLDEN_JOBS / name)
    for bucket in (None, *range(store.buckets)):
        log = store.job_log() if bucket is None else store.bucket_log(bucket)
        fold = log.refresh()
        lines = read_log(store, bucket=bucket).lines
        assert lines[-1].number == fold.number
        assert all(line.record and line.writer and not line.unreadable for line in lines)
        assert all(line.summary or line.record == "Checkpoint" for line in lines)
        newest = {number for number, _ in fold.ignored}
        assert {line.number for line in lines if line.ignored and line.number > fold.last_checkpoint} == newest
