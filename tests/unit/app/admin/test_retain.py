"""Retention: what is too old goes on purpose; audit, rebuild and readers know it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from distcommit.app.admin.expire import age_ms, find_expired, retaining
from distcommit.app.admin.rebuild import known_states, plan_rebuild, rebuild_store
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.core.errors import ConfigurationError, CorruptError, CutGoneError
from distcommit.core.work import MAIN_BRANCH
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.settings import RunSettings
from distcommit.pipeline.maintenance.expire import ExpirableFiles, ExpiryCutoff
from distcommit.pipeline.maintenance.reprocess import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.output import is_tombstone
from distcommit.sinks.files.sink import FileSink
from distcommit.sinks.files.time_folders import TimePartition, folder_end_ms
from distcommit.stores.folders.ownership import read_claim
from distcommit.stores.folders.tombstones import read_tombstone
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.operator.operator_actions import set_watermark
from distcommit.stores.snapshots.expiry_cutoffs import newest_expiry_request, put_expiry_request
from distcommit.stores.state.job_store import open_store
from tests.models.turning_away import TurningAway
from tests.unit.app.job_file.test_readers import Place

OLD_S, OLD_MS = 1_000_000_000, 1_000_000_000_000
"""When a file was written that is old, in seconds, and before when files are."""


def aged(place: Place) -> None:
    """All that is published by now was written long ago."""
    for path in Path(place.roots.output).rglob("*.parquet"):
        os.utime(path, (OLD_S - 1, OLD_S - 1))


def retain(place: Place, kept_cuts: int | None = None) -> RunResult:
    settings = retaining(place.begin({}), OLD_MS, kept_cuts)
    result = run(place.launch, settings)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    assert result.succeeded, result
    return result


def retain_and_delete(place: Place) -> None:
    put_expiry_request(place.store(), OLD_MS, place.clock.now_ms(), "somebody")
    retain(place)
    retain(place, 2)


def audit(place: Place) -> AuditResult:
    found = audit_store(place.store(), place.begin({}).flow.source.provenance, deep=True)
    assert found.exact, found
    return found


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.run(3, ["a", "b"])
    aged(place)
    place.run(5, ["a", "b"])
    return place


def test_what_is_old_is_deleted_and_neither_a_gap_nor_read_again(place: Place) -> None:
    assert find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True).records == 6
    retain_and_delete(place)
    found = audit(place)
    assert (found.records, found.retained, found.gaps) == (4, 6, 0)
    assert place.counts(place.read()) == {"a": 2, "b": 2}
    assert len(list(Path(place.roots.output).rglob("*.parquet"))) == 2
    place.run(6, ["a", "b"])
    assert audit(place).records == 6
    assert place.counts(place.read()) == {"a": 3, "b": 3}
    assert not find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True).files


class Rejecting(Place):
    """Turns records 1 and 4 of each dataset away."""

    def begin(self, ends: dict[str, int]) -> RunSettings:
        settings = super().begin(ends)
        flow = TurningAway(frozenset(f"{urn}/0/{number}" for urn in ends for number in (1, 4)))
        return replace(settings, flow=flow(settings.flow.source, settings.flow.sinks[0]))


def test_what_was_turned_away_long_ago_goes_too_and_can_not_be_fed_again(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(3, ["a"])
    aged(place)
    place.run(5, ["a"])
    before = audit(place)
    assert (before.records, before.rejected) == (3, 2)
    told = find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=True)
    assert (told.records, told.rejected, told.files, told.rows[0].rejected) == (3, 1, 2, 1)
    retain_and_delete(place)
    found = audit(place)
    assert (found.records, found.rejected, found.retained, found.gaps) == (1, 1, 3, 0)
    (left,) = Path(place.roots.output, "_rejected").rglob("*.parquet")
    assert left.stat().st_mtime > OLD_S
    settings = place.begin({"a": 5})
    errors = ReprocessSource(place.fs, place.roots.output, TaskFlow.straight(settings.flow.source, FileSink()), "a")
    result = run(place.launch, replace(settings, flow=errors.flow.with_source(errors)))
    assert (result.totals.records_read, result.totals.records_published) == (1, 1)
    end_run(settings.store, settings.epoch, clean=result.succeeded)
    assert audit(place).rejected == 0


def test_what_was_turned_away_is_in_no_time_folder_whatever_its_dataset_is_called(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(2, ["2001-09-08"])
    sink = FileSink.model_validate({"partition_by": {"granularity": "day"}})
    flow = TaskFlow.straight(place.begin({}).flow.source, sink)
    live = ExpirableFiles(place.fs, place.roots.output, "2001-09-08", 99, flow).live()
    (file,) = [each for each in live if each.footer.kind == "rejected"]
    assert file.end_ms > OLD_MS


def test_a_store_that_is_lost_is_rebuilt_where_what_was_turned_away_is_taken(tmp_path: Path) -> None:
    place = Rejecting(tmp_path)
    place.run(3, ["a"])
    aged(place)
    retain_and_delete(place)
    rebuilt(place)
    assert (audit(place).retained, audit(place).rejected) == (3, 0)


def test_folders_in_which_nothing_is_left_go_too(place: Place) -> None:
    """But for the dataset's own, and for one in which somebody has put something."""
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


def test_a_reader_of_an_older_cut_is_told_that_retention_has_taken_it(place: Place) -> None:
    old, at = place.read(), datetime.fromtimestamp(place.clock.now_ms() / 1000, UTC)
    epoch = old.epoch
    retain_and_delete(place)
    for ask in (lambda: place.read(as_of=epoch), lambda: place.read(as_of=at), old.files):
        with pytest.raises(CutGoneError, match="expired: somebody requested the deletion of files older than 2001-09"):
            ask()


def test_files_stay_as_long_as_a_kept_cut_shows_them(place: Place) -> None:
    old = place.read()
    files = old.files()
    retain(place)
    retain(place)
    assert old.files() == files
    assert place.counts(old) == {"a": 5, "b": 5}
    assert place.counts(place.read()) == {"a": 2, "b": 2}
    assert audit(place).retired == 2
    retain(place, 2)
    retain(place, 2)
    assert audit(place).retired == 0
    assert not any(Path(file).exists() for file in set(files) - set(place.read().files()))


def test_a_store_that_is_lost_is_rebuilt_to_where_it_was(place: Place) -> None:
    retain_and_delete(place)
    rebuilt(place)
    assert audit(place).retained == 6


def rebuilt(place: Place) -> None:
    """The store is lost and made anew, and says what it had said."""
    before = {urn: state.watermark for urn, state in known_states(place.store()).items()}
    owner = read_claim(place.fs, place.roots.output)
    assert owner is not None
    shutil.rmtree(place.roots.store)
    store = open_store(place.fs, place.roots, "job", 2, create=True, lost_store_id=owner.store_id)
    done = rebuild_store(store, plan_rebuild(store, {}, accept_gaps=False), "rebuild", "somebody", accept_gaps=False)
    assert done.written, done.problems
    assert {urn: state.watermark for urn, state in known_states(place.store()).items()} == before


def test_what_is_retained_is_known_once_partitions_are_replaced(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.run(3, ["a"])
    aged(place)
    retain_and_delete(place)
    place.publish = "replace"  # as another publisher, which goes on from what retention has said
    place.run(5, ["a"])
    place.run(6, ["a"])
    found = audit(place)
    assert (found.retained, found.replaced, found.records) == (3, 2, 1)


def test_of_several_retentions_the_newest_says_all(place: Place) -> None:
    retain_and_delete(place)
    aged(place)
    place.run(7, ["a", "b"])
    retain_and_delete(place)
    assert audit(place).retained == 10
    stones = [path for path in Path(place.roots.output).rglob("*") if is_tombstone(str(path))]
    assert len(stones) == 4, "of each dataset the newest, and the one that it takes the place of"
    retain(place, 2)
    newest = [path for path in Path(place.roots.output).rglob("*") if is_tombstone(str(path))]
    named = [file for path in newest for file in read_tombstone(place.fs, str(path)).files]
    assert len(newest) == 2, "each names just the one before it, so that no run looks for what is long gone"
    assert len(named) == 2
    horizon = newest_expiry_request(place.store())
    assert horizon is not None
    assert horizon.before_ms == OLD_MS


def test_a_horizon_that_is_damaged_is_told(place: Place) -> None:
    retain_and_delete(place)
    (path,) = Path(place.roots.store, "horizons").iterdir()
    path.write_text("nothing")
    with pytest.raises(CorruptError):
        newest_expiry_request(place.store())
    with pytest.raises(CutGoneError, match="no longer kept"):
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
def test_a_folder_is_past_once_its_whole_time_is(
    folder: str, granularity: str, zone: str, end: datetime | None
) -> None:
    partition = TimePartition.model_validate({"granularity": granularity, "time_zone": zone})
    assert folder_end_ms(folder, partition) == (None if end is None else end.timestamp() * 1000)


def test_a_time_folder_counts_and_not_when_its_file_was_written(place: Place) -> None:
    flow = place.begin({}).flow
    sink = FileSink.model_validate({"partition_by": {"granularity": "day"}})
    flow = replace(flow, branches=(replace(flow.branches[0], sink=sink),))
    aged = ExpirableFiles(place.fs, place.roots.output, "a", 99, flow)
    for folder, end in (("2001-09-08", 999_993_600_000), ("2001-09-09", 1_000_080_000_000)):
        file = next(Path(place.roots.output, "a").rglob("*.parquet"))
        (Path(place.roots.output, "a") / folder).mkdir()
        file.rename(Path(place.roots.output, "a") / folder / file.name)
        (live,) = [each for each in aged.live() if folder in each.path]
        assert live.end_ms == end
        assert ExpiryCutoff(OLD_MS).is_expired(live) == (end < OLD_MS)
    assert not ExpiryCutoff(OLD_MS).is_expired(replace(live, end_ms=0))


@pytest.mark.parametrize(("urn", "branch"), [("2000", MAIN_BRANCH), ("a", "2000")])
def test_neither_the_folder_of_a_dataset_nor_of_a_branch_is_one_by_time(tmp_path: Path, urn: str, branch: str) -> None:
    """Files in folders by day, of a job that has folders by year and day since."""
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
    (live,) = ExpirableFiles(place.fs, place.roots.output, urn, 99, flow).live()
    assert not ExpiryCutoff(OLD_MS).is_expired(live)


@pytest.mark.parametrize("text", ["90", "d", "-1d", "0d", "90x", "1.5d", "", "٣d"])
def test_what_is_no_age_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not an age"):
        age_ms(text)


def test_ages() -> None:
    assert (age_ms("36h"), age_ms("90d"), age_ms("2w")) == (129_600_000, 7_776_000_000, 1_209_600_000)


def test_of_a_dataset_without_a_watermark_nothing_goes_and_it_is_named(place: Place) -> None:
    set_watermark(place.store(), "a", None, "somebody")  # to be read from `start` once its topic is back
    told = find_expired(place.store(), place.begin({}).flow, OLD_MS, dry_run=False)
    assert (told.datasets, told.files, told.records, [row.dataset for row in told.rows]) == (1, 1, 3, ["b"])
    assert (told.left_out_count, [text[:24] for text in told.left_out]) == (1, ["a: it has no watermark a"])
    retain_and_delete(place)
    assert {folder: len(list((Path(place.roots.output) / folder).glob("*.parquet"))) for folder in "ab"} == {
        "a": 2,
        "b": 1,
    }
