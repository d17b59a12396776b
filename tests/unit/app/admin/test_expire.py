"""Retention: expired files are deleted, and the audit, rebuilds and readers account for them."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from distcommit import Job
from distcommit.app.admin.expire import age_ms, expiring, find_expired
from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.cli.views.maintenance_views import expiry_view
from distcommit.core.errors import ConfigurationError, CorruptError, SnapshotExpiredError
from distcommit.core.records.maintenance_units import ExpiryCutoff
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.run_settings import RunSettings
from distcommit.pipeline.maintenance.expiry_source import ExpirableFiles
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_tombstone
from distcommit.protocol.paths.store import segment_name
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.split_by_time import TimePartition, folder_end_ms
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.folders.tombstones import read_tombstone
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator.operator_actions import set_watermark
from distcommit.stores.snapshots.expiry_requests import newest_expiry_request, put_expiry_request
from distcommit.stores.state.job_store import open_store
from tests.models.rejecting_flows import TurningAway
from tests.unit.app.reading.test_snapshot_reader import Place
from tests.unit.app.serving.test_service import write
from tests.unit.cli.views.test_output import rendered

OLD_S, OLD_MS = 1_000_000_000, 1_000_000_000_000
"""The modification time of expired files, in seconds, and the expiry cutoff."""


def aged(place: Place) -> None:
    """Give all published files an old modification time."""
    for path in Path(place.roots.output).rglob("*.parquet"):
        os.utime(path, (OLD_S - 1, OLD_S - 1))


def retain(place: Place, kept_snapshots: int | None = None) -> RunResult:
    settings = expiring(place.begin({}), OLD_MS, kept_snapshots)
    result = run(place.launch, settings)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    assert result.succeeded, result
    return result


def retain_and_delete(place: Place) -> None:
    put_expiry_request(place.store(), OLD_MS, place.clock.now_ms(), "somebody")
    retain(place)
    retain(place, 2)


def audit(place: Place) -> AuditResult:
    result = audit_store(place.store(), place.begin({}).flow.source.provenance, deep=True)
    assert result.exact, result
    return result


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.run(3, ["a", "b"])
    aged(place)
    place.run(5, ["a", "b"])
    return place


def test_expired_files_are_deleted_and_are_neither_a_gap_nor_read_again(place: Place) -> None:
    assert find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True).records == 6
    retain_and_delete(place)
    result = audit(place)
    assert (result.records, result.expired, result.gaps) == (4, 6, 0)
    assert place.counts(place.read()) == {"a": 2, "b": 2}
    assert len(list(Path(place.roots.output).rglob("*.parquet"))) == 2
    place.run(6, ["a", "b"])
    assert audit(place).records == 6
    assert place.counts(place.read()) == {"a": 3, "b": 3}
    assert not find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True).files


class Rejecting(Place):
    """A job that rejects records 1 and 4 of each dataset."""

    def begin(self, ends: dict[str, int]) -> RunSettings:
        settings = super().begin(ends)
        flow = TurningAway(frozenset(f"{urn}/0/{number}" for urn in ends for number in (1, 4)))
        return replace(settings, flow=flow(settings.flow.source, settings.flow.sinks[0]))


def test_expired_error_files_are_deleted_and_are_not_reprocessed(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(3, ["a"])
    aged(place)
    place.run(5, ["a"])
    before = audit(place)
    assert (before.records, before.rejected) == (3, 2)
    expired = find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True)
    assert (expired.records, expired.rejected, expired.files, expired.rows[0].rejected) == (3, 1, 2, 1)
    retain_and_delete(place)
    audited = audit(place)
    assert (audited.records, audited.rejected, audited.expired, audited.gaps) == (1, 1, 3, 0)
    (remaining_file,) = Path(place.roots.output, "_rejected").rglob("*.parquet")
    assert remaining_file.stat().st_mtime > OLD_S
    settings = place.begin({"a": 5})
    errors = ReprocessSource(place.fs, place.roots.output, TaskFlow.straight(settings.flow.source, FileSink()), "a")
    result = run(place.launch, replace(settings, flow=errors.flow.with_source(errors)))
    assert (result.totals.records_read, result.totals.records_published) == (1, 1)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    assert audit(place).rejected == 0


def test_error_files_are_not_in_a_time_folder_even_if_the_dataset_is_named_like_one(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(2, ["2001-09-08"])
    sink = FileSink.model_validate({"partition_by": {"granularity": "day"}})
    flow = TaskFlow.straight(place.begin({}).flow.source, sink)
    live = ExpirableFiles(place.fs, place.roots.output, "2001-09-08", 99, flow).live_files()
    (file,) = [candidate for candidate in live if candidate.footer.kind == "rejected"]
    assert file.end_ms > OLD_MS


def test_lost_store_is_rebuilt_after_expired_error_files_were_deleted(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(3, ["a"])
    aged(place)
    retain_and_delete(place)
    rebuilt(place)
    assert (audit(place).expired, audit(place).rejected) == (3, 0)


def test_empty_folders_are_deleted_after_retention(place: Place) -> None:
    """The dataset's own folder and a folder with a foreign file are kept."""
    output = Path(place.roots.output)
    for urn in ("a", "b"):
        (old,) = (path for path in (output / urn).glob("*.parquet") if path.stat().st_mtime < OLD_S)
        (output / urn / "2001" / "day").mkdir(parents=True)
        old.rename(output / urn / "2001" / "day" / old.name)
    (output / "b" / "2001" / "note").touch()
    retain_and_delete(place)
    assert (output / "a").is_dir()
    assert [path.name for path in (output / "b").rglob("*") if path.suffix != ".parquet"] == ["2001", "note"]
    assert not (output / "a" / "2001").exists()
    (output / "b" / "2001" / "note").unlink()
    audit(place)


def test_reading_an_expired_snapshot_raises_an_error_that_names_the_expiry_request(place: Place) -> None:
    old, at = place.read(), datetime.fromtimestamp(place.clock.now_ms() / 1000, UTC)
    epoch = old.epoch
    retain_and_delete(place)
    for read_expired in (lambda: place.read(as_of=epoch), lambda: place.read(as_of=at), old.files):
        with pytest.raises(
            SnapshotExpiredError, match="expired: somebody requested the deletion of files older than 2001-09"
        ):
            read_expired()


def test_expired_files_are_kept_as_long_as_a_kept_snapshot_lists_them(place: Place) -> None:
    old = place.read()
    files = old.files()
    retain(place)
    retain(place)
    assert old.files() == files
    assert place.counts(old) == {"a": 5, "b": 5}
    assert place.counts(place.read()) == {"a": 2, "b": 2}
    assert audit(place).superseded_files == 2
    retain(place, 2)
    retain(place, 2)
    assert audit(place).superseded_files == 0
    assert not any(Path(file).exists() for file in set(files) - set(place.read().files()))


def test_lost_store_is_rebuilt_to_its_previous_watermarks_after_retention(place: Place) -> None:
    retain_and_delete(place)
    rebuilt(place)
    assert audit(place).expired == 6


def rebuilt(place: Place) -> None:
    """Lose the store, recreate it, and require the previous watermarks."""
    before = {urn: state.watermark for urn, state in stored_states(place.store()).items()}
    owner = read_owner(place.fs, place.roots.output)
    assert owner is not None
    shutil.rmtree(place.roots.store)
    store = open_store(place.fs, place.roots, "job", 2, create=True, lost_store_id=owner.store_id)
    result = rebuild_store(store, plan_rebuild(store, {}, accept_gaps=False), "rebuild", "somebody", accept_gaps=False)
    assert result.written, result.problems
    assert {urn: state.watermark for urn, state in stored_states(place.store()).items()} == before


def test_expired_records_stay_counted_after_partitions_are_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(3, ["a"])
    aged(place)
    retain_and_delete(place)
    place.publish = "replace"  # the new publisher must continue after the expired records
    place.run(5, ["a"])
    place.run(6, ["a"])
    result = audit(place)
    assert (result.expired, result.replaced, result.records) == (3, 2, 1)


def test_newest_tombstone_covers_all_earlier_retentions(place: Place) -> None:
    retain_and_delete(place)
    aged(place)
    place.run(7, ["a", "b"])
    retain_and_delete(place)
    assert audit(place).expired == 10
    tombstones = [path for path in Path(place.roots.output).rglob("*") if is_tombstone(str(path))]
    assert len(tombstones) == 4, "each dataset must have its newest tombstone and the superseded one"
    retain(place, 2)
    newest = [path for path in Path(place.roots.output).rglob("*") if is_tombstone(str(path))]
    named = [file for path in newest for file in read_tombstone(place.fs, str(path)).files]
    assert len(newest) == 2, "each tombstone must name only its predecessor"
    assert len(named) == 2
    request = newest_expiry_request(place.store())
    assert request is not None
    assert request.cutoff_ms == OLD_MS


def test_damaged_expiry_request_raises_corrupt_error(place: Place) -> None:
    retain_and_delete(place)
    (path,) = Path(place.roots.store, "expiry_requests").iterdir()
    path.write_text("nothing")
    with pytest.raises(CorruptError):
        newest_expiry_request(place.store())
    with pytest.raises(SnapshotExpiredError, match="no longer kept"):
        place.read(as_of=2)


@pytest.mark.parametrize(
    ("folder", "granularity", "zone", "end"),
    [
        ("2024", "year", "UTC", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2024-12", "month", "UTC", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2024-02-28", "day", "UTC", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-28-23", "hour", "UTC", datetime(2024, 2, 29, tzinfo=UTC)),
        ("2024-02-28", "day", "America/New_York", datetime(2024, 2, 29, 5, tzinfo=UTC)),
        ("2024-10-27-02", "hour", "Europe/Brussels", datetime(2024, 10, 27, 2, tzinfo=UTC)),
        ("2024-13-01", "day", "UTC", None),
        ("time=unknown", "day", "UTC", None),
        ("9999", "year", "UTC", None),
        ("2024-01", "day", "UTC", None),
    ],
)
def test_time_folder_ends_when_its_whole_period_is_over(
    folder: str, granularity: str, zone: str, end: datetime | None
) -> None:
    partition = TimePartition.model_validate({"granularity": granularity, "time_zone": zone})
    assert folder_end_ms(folder, partition) == (None if end is None else end.timestamp() * 1000)


def test_time_folder_decides_expiry_instead_of_the_file_modification_time(place: Place) -> None:
    flow = place.begin({}).flow
    sink = FileSink.model_validate({"partition_by": {"granularity": "day"}})
    flow = replace(flow, branches=(replace(flow.branches[0], sink=sink),))
    aged = ExpirableFiles(place.fs, place.roots.output, "a", 99, flow)
    for folder, end in (("2001-09-08", 999_993_600_000), ("2001-09-09", 1_000_080_000_000)):
        file = next(Path(place.roots.output, "a").rglob("*.parquet"))
        (Path(place.roots.output, "a") / folder).mkdir()
        file.rename(Path(place.roots.output, "a") / folder / file.name)
        (live,) = [candidate for candidate in aged.live_files() if folder in candidate.path]
        assert live.end_ms == end
        assert ExpiryCutoff(OLD_MS).is_expired(live.end_ms) == (end < OLD_MS)
    assert not ExpiryCutoff(OLD_MS).is_expired(0)


@pytest.mark.parametrize(("urn", "branch"), [("2000", MAIN_BRANCH), ("a", "2000")])
def test_folder_of_a_dataset_or_branch_is_not_taken_for_a_time_folder(tmp_path: Path, urn: str, branch: str) -> None:
    """The files are in folders by day, and the job was changed to folders by year and day."""
    place = Place(tmp_path)
    settings = place.begin({urn: 3})
    (only,) = settings.flow.branches
    result = run(place.launch, replace(settings, flow=replace(settings.flow, branches=(replace(only, name=branch),))))
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    (file,) = Path(place.roots.output).rglob("*.parquet")
    assert file.parent.name == "2000"
    (file.parent / "2024-01-31").mkdir()
    file.rename(file.parent / "2024-01-31" / file.name)
    sink = FileSink.model_validate({"partition_by": [{"granularity": "year"}, {"granularity": "day"}]})
    flow = replace(settings.flow, branches=(replace(only, sink=sink, name=branch),))
    (live,) = ExpirableFiles(place.fs, place.roots.output, urn, 99, flow).live_files()
    assert not ExpiryCutoff(OLD_MS).is_expired(live.end_ms)


@pytest.mark.parametrize("text", ["90", "d", "-1d", "0d", "90x", "1.5d", "", "٣d"])
def test_invalid_age_raises_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not an age"):
        age_ms(text)


def test_valid_ages_are_converted_to_milliseconds() -> None:
    assert (age_ms("36h"), age_ms("90d"), age_ms("2w")) == (129_600_000, 7_776_000_000, 1_209_600_000)


def test_dataset_without_a_watermark_is_left_out_of_retention_and_named(place: Place) -> None:
    set_watermark(place.store(), "a", None, "somebody")  # reading restarts from `start` once its topic is back
    expired = find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=False)
    assert (expired.datasets, expired.files, expired.records, [row.dataset for row in expired.rows]) == (1, 1, 3, ["b"])
    assert (expired.skipped_count, [text[:24] for text in expired.skipped]) == (1, ["a: it has no watermark a"])
    retain_and_delete(place)
    assert {folder: len(list((Path(place.roots.output) / folder).glob("*.parquet"))) for folder in "ab"} == {
        "a": 2,
        "b": 1,
    }


def test_command_that_has_skipped_all_old_files_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    job = Job.from_file(write(tmp_path / "jobs", "a"))
    store = job.open_store(create=True)
    assert job.expire("1d").succeeded
    segment = Path(store.bucket_log(0).folder) / segment_name(1)
    segment.parent.mkdir(parents=True, exist_ok=True)
    segment.write_bytes(b"torn")
    result = job.expire("1d")
    assert (result.succeeded, result.datasets, result.skipped_count) == (False, 0, 1)
    assert "incomplete: repeat the command" in rendered(expiry_view(result))
    assert "no file of other" in rendered(expiry_view(msgspec.structs.replace(result, succeeded=True)))
    assert result.skipped[0].startswith("bucket 0: ")
