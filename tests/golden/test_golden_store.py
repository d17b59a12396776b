"""The golden store: today's program finishes a job that version 1 left half-way, and damage affects only its own
bucket.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import DatasetState, DatasetStatus
from distcommit.core.watermark import Position, Watermark
from distcommit.engine.driver.run import RunResult
from distcommit.protocol.paths.shared_names import OWNER
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelSource
from tests.golden.job import BUCKETS, IDLE, IN_BUCKET_0, PENDING, RENAMED, RUNS, run_job, source, store_at
from tests.golden.make import GOLDEN

ALL = source(IDLE, PENDING)
MORE = {
    urn: {partition: count + 2 for partition, count in counts.items()} for urn, counts in {**IDLE, **PENDING}.items()
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checked_out(GOLDEN / "job", tmp_path / "job")


def checked_out(golden: Path, copy: Path) -> Path:
    """Copy the store as a checkout creates it: with other inodes and times and without empty folders."""
    shutil.copytree(golden, copy, copy_function=shutil.copyfile)
    for below, folders, files in os.walk(copy, topdown=False):
        if not folders and not files:
            Path(below).rmdir()
    return copy


def states(store: JobStore) -> dict[str, DatasetState]:
    return {urn: s for bucket in range(BUCKETS) for urn, s in store.bucket_log(bucket).refresh().datasets.items()}


def mark(partitions: Mapping[str, Position]) -> Watermark:
    return Watermark(dict(partitions))


def marks(counts: dict[str, dict[str, int]]) -> dict[str, Watermark]:
    return {urn: mark(partitions) for urn, partitions in counts.items()}


def watermarks(store: JobStore) -> dict[str, Watermark | None]:
    return {urn: state.watermark for urn, state in states(store).items()}


def records(counts: dict[str, dict[str, int]]) -> int:
    return sum(sum(partitions.values()) for partitions in counts.values())


def audit(store: JobStore) -> AuditResult:
    return audit_store(store, ModelSource.provenance, deep=True)


def rerun(store: JobStore, read: ModelSource = ALL) -> RunResult:
    return run_job(store, read, RUNS[2])


def staged(folder: Path) -> list[Path]:
    """Return the staged files, without the note that names the owner of the folder."""
    return [path for path in (folder / "staging").rglob("*") if path.is_file() and path.name != OWNER]


def test_golden_store_is_half_way(folder: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    dataset_states = states(store_at(folder))
    assert {urn for urn, state in dataset_states.items() if state.status is DatasetStatus.IDLE} == set(IDLE)
    assert {urn for urn, state in dataset_states.items() if state.status is DatasetStatus.PENDING} == set(PENDING)
    assert len(list((folder / "output" / "half-done").iterdir())) == RENAMED
    assert not (folder / "output" / "waiting").exists()
    assert len(staged(folder)) == 2
    looked = audit(store_at(folder))
    assert looked.records == records(IDLE)
    assert sorted(looked.pending) == ["half-done (pending)", "waiting (pending)"]


def test_pending_sequences_are_published_and_nothing_is_read_again(folder: Path) -> None:
    store = store_at(folder)
    result = rerun(store)
    assert result.succeeded, result
    assert (result.totals.sequences_replayed, result.totals.datasets_planned, result.totals.records_read) == (2, 0, 0)
    assert result.totals.steps_executed == 2, "files renamed before are verified by their checksum, not renamed again"
    audit_result = audit(store)
    assert (audit_result.exact, audit_result.records) == (True, records({**IDLE, **PENDING})), audit_result
    assert watermarks(store) == marks({**IDLE, **PENDING})
    assert [path.name for path in (folder / "staging").iterdir()] == [".distcommit"], "which has only the owner's note"
    assert staged(folder) == []


def test_new_records_continue_at_the_watermarks_of_version_1(folder: Path) -> None:
    store = store_at(folder)
    assert rerun(store, source(MORE)).succeeded
    audit_result = audit(store)
    assert (audit_result.exact, audit_result.records) == (True, records(MORE)), audit_result
    assert watermarks(store) == marks(MORE)


def test_published_file_with_other_bytes_of_the_same_size_is_lost_not_done(folder: Path) -> None:
    """Inode and time prove nothing after a checkout: only the checksum prevents a wrong DONE."""
    published = sorted((folder / "output" / "half-done").iterdir())[0]
    data = published.read_bytes()
    published.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    store = store_at(folder)
    assert not rerun(store).succeeded
    assert {urn: s.status for urn, s in states(store).items() if s.status is not DatasetStatus.IDLE} == {
        "half-done": DatasetStatus.QUARANTINED
    }
    assert watermarks(store)["half-done"] is None
    assert watermarks(store)["waiting"] == mark(PENDING["waiting"])


def test_staged_file_with_other_bytes_is_lost(folder: Path) -> None:
    for path in staged(folder):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    store = store_at(folder)
    assert not rerun(store).succeeded
    assert {urn for urn, s in states(store).items() if s.status is DatasetStatus.QUARANTINED} == set(PENDING)


@pytest.mark.parametrize("bucket", range(BUCKETS))
@pytest.mark.parametrize("damage", ["flipped", "cut", "foreign", "missing"])
def test_damaged_segment_stops_only_the_datasets_of_its_bucket(folder: Path, bucket: int, damage: str) -> None:
    log = folder / "store" / "log" / f"bucket={bucket:05d}"
    segment = sorted(log.iterdir())[-2]
    data = segment.read_bytes()
    if damage == "missing":
        segment.unlink()
    else:
        segment.write_bytes(
            {"flipped": data[:-3] + bytes([data[-3] ^ 4]) + data[-2:], "cut": data[:-1], "foreign": b"not ours"}[damage]
        )
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    store = store_at(folder)
    with pytest.raises(CorruptError) as caught:
        store.bucket_log(bucket).refresh()
    assert caught.value.ids == {"path": str(segment)}
    result = rerun(store, source(MORE))
    assert not result.succeeded
    assert any(segment.name in reason.text for reason in result.reasons.entries), result.reasons.entries
    others = {urn: counts for urn, counts in MORE.items() if (urn == IN_BUCKET_0) != (bucket == 0)}
    assert {urn: state.watermark for urn, state in store.bucket_log(1 - bucket).refresh().datasets.items()} == marks(
        others
    ), "the other bucket's datasets continue"
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before, "a corrupt log is left alone"
    if bucket == 1:
        assert len(staged(folder)) == 2, "files that its sequences need are kept"


def test_restored_segment_loses_nothing(folder: Path) -> None:
    segment = sorted((folder / "store" / "log" / "bucket=00001").iterdir())[-1]
    data = segment.read_bytes()
    segment.write_bytes(data[:-1])
    store = store_at(folder)
    assert not rerun(store).succeeded
    segment.write_bytes(data)
    assert run_job(store, ALL, "20260102T060708-00000000000d").succeeded
    audit_result = audit(store)
    assert (audit_result.exact, audit_result.records) == (True, records({**IDLE, **PENDING})), audit_result


def test_damaged_table_of_an_ended_run_stops_nothing(folder: Path) -> None:
    for path in (folder / "store").rglob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-9])
    for path in (folder / "store").rglob("manifest.json"):
        path.write_bytes(b"")
    store = store_at(folder)
    assert rerun(store).succeeded
    assert audit(store).exact
