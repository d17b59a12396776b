"""Readers see whole commits, of one dataset or of many in one snapshot."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from distcommit import read
from distcommit.app.job_file.fixed_settings import fixed_settings_of
from distcommit.app.job_file.load_job_file import load_config
from distcommit.app.reading.snapshot_choice import AsOf, choose_snapshot, parsed_as_of
from distcommit.app.reading.snapshot_reader import Snapshot
from distcommit.core.errors import ConfigurationError, CorruptError, NotSettledError, SnapshotExpiredError
from distcommit.core.records.job_log_records import CutPhase
from distcommit.engine.committing.drain import publish_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.driver.run import run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.protocol.paths.store import SNAPSHOT_DELTAS, SNAPSHOTS
from distcommit.protocol.seal_decision import CommitPolicy
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.snapshots.snapshot_manifests import (
    put_snapshot,
    read_snapshot_manifest,
    snapshot_manifest_path,
    valid_manifests,
)
from distcommit.stores.snapshots.snapshot_retention import expire_older_snapshots
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.stores.state.recorded_fixed_settings import record_settings
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.world import SimulatedClock, launch_here

NAMES = [f"d{number}" for number in range(6)]


class Place:
    """A job on the local disk, run in this process; each run's clock is a second later."""

    def __init__(self, folder: Path, *, publish: str = "append", job_level: bool = False, kept: int = 20) -> None:
        self.roots = Roots(*(str(folder / name) for name in ("store", "staging", "output")))
        self.fs, self.publish, self.job_level, self.kept = LocalFileSystem(durable=False), publish, job_level, kept
        self.clock = SimulatedClock()
        self.launch: Launch = launch_here

    def store(self) -> JobStore:
        return open_store(self.fs, self.roots, "job", 2, create=True)

    def begin(self, ends: dict[str, int]) -> RunSettings:
        sink = FileSink.model_validate({"compression": "none", "publish": self.publish})
        source = ModelSource({name: ModelDataset({"0": end}) for name, end in ends.items()})
        store = self.store()
        self.clock.sleep(1)
        return RunSettings(
            store=store,
            run_id=f"run-{self.clock.now_ms()}",
            epoch=begin_run(store, f"run-{self.clock.now_ms()}"),
            partitions=1,
            flow=TaskFlow.straight(source, sink),
            policy=CommitPolicy.FULL,
            job_level=self.job_level,
            min_interval_s=0,
            max_attempts=3,
            task_attempts=1,
            kept_snapshots=self.kept,
            clock=self.clock,
        )

    def run(self, end: int, names: list[str] = NAMES) -> int:
        settings = self.begin(dict.fromkeys(names, end))
        result = run(self.launch, settings)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return settings.epoch

    def read(self, *datasets: str, as_of: AsOf = None) -> Snapshot:
        return read({"store": self.roots.store, "output": self.roots.output}, datasets or None, as_of=as_of)

    def counts(self, cut: Snapshot) -> dict[str, int]:
        return {urn: cut.to_arrow(urn).num_rows for urn in cut.datasets}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_all_datasets_are_read_from_the_newest_or_an_older_snapshot(place: Place) -> None:
    first = place.run(3)
    second = place.run(5)
    third = place.run(5)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 5)
    assert place.counts(place.read(as_of=first)) == dict.fromkeys(NAMES, 3)
    assert place.counts(place.read("d1", as_of=second)) == {"d1": 5}
    assert place.read().epoch == third
    newest = place.read()
    between = datetime.fromtimestamp(place.read(as_of=first).time_ms / 1000, UTC)
    assert place.counts(place.read(as_of=between)) == dict.fromkeys(NAMES, 3)
    assert newest.datasets["d0"].watermark is not None
    assert newest.datasets["d0"].watermark.positions == {"0": 5}
    assert newest.exactly_once


def test_snapshot_is_read_as_arrow_pandas_dataset_and_duckdb_relation(place: Place) -> None:
    duckdb = pytest.importorskip("duckdb")
    place.run(3)
    cut = place.read("d0", "d1")
    assert cut.to_arrow().num_rows == len(cut.to_pandas()) == cut.to_pyarrow_dataset().count_rows() == 6
    assert cut.to_duckdb("d0", duckdb.connect()).aggregate("count(*)").fetchall() == [(3,)]
    assert len(cut.files()) == 2
    assert all(Path(file).is_file() for file in cut.files("d0"))


def test_files_of_an_unfinished_sequence_are_not_in_a_snapshot(place: Place) -> None:
    place.run(3)
    settings = place.begin(dict.fromkeys(NAMES, 5))

    def dies_before_its_end(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        if "drain" in function.__name__:
            raise KeyboardInterrupt
        return launch_here(function, settings, tasks, kind)

    with pytest.raises(KeyboardInterrupt):
        run(dies_before_its_end, settings)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 3)
    with pytest.raises(NotSettledError, match="not settled yet"):
        place.read(as_of=settings.epoch)
    at = datetime.fromtimestamp(place.clock.now_ms() / 1000, UTC)
    with pytest.raises(NotSettledError, match="leave as_of out for the newest snapshot; or read again once"):
        place.read(as_of=at)  # a later run with this epoch would be another snapshot
    later = place.run(5)
    assert place.counts(place.read(as_of=settings.epoch)) == dict.fromkeys(NAMES, 5)
    assert place.read(as_of=settings.epoch).epoch == later


def test_run_writes_snapshot_deltas_of_changed_datasets_only(place: Place) -> None:
    place.run(3)
    before = set(delta_names(place))
    place.run(3)
    assert set(delta_names(place)) == before
    place.run(4, ["d0"])
    (new,) = set(delta_names(place)) - before
    assert b"d0" in new_bytes(place, new)
    assert b"d1" not in new_bytes(place, new)


def delta_names(place: Place) -> list[str]:
    return [entry.name for entry in place.fs.list_folder(f"{place.roots.store}/{SNAPSHOT_DELTAS}")]


def new_bytes(place: Place, name: str) -> bytes:
    return place.fs.read(f"{place.roots.store}/{SNAPSHOT_DELTAS}/{name}")


@pytest.mark.thorough
def test_delta_chain_has_a_base_and_at_most_eight_deltas(place: Place) -> None:
    place.kept = 4
    for end in range(1, 13):
        place.run(end)
    root = choose_snapshot(place.store(), None)
    assert all(1 <= len(bucket.snapshot.deltas) <= 9 for bucket in root.buckets.values())
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 12)
    named = {
        name
        for manifest in valid_manifests(place.fs, place.roots.store, place.store().job_log().refresh())
        for bucket in manifest.buckets.values()
        for name in bucket.snapshot.deltas
    }
    assert set(delta_names(place)) == named


def manifest_names(place: Place) -> list[str]:
    return sorted(
        entry.name for entry in place.fs.list_folder(f"{place.roots.store}/{SNAPSHOTS}") if not entry.is_folder
    )


def test_reading_before_the_oldest_snapshot_raises_cut_gone_error(place: Place) -> None:
    place.kept = 2
    first = place.run(3)
    began = datetime.fromtimestamp(place.read().time_ms / 1000, UTC)
    for end in (4, 5, 6):
        place.run(end)
    assert len(manifest_names(place)) == 3
    with pytest.raises(SnapshotExpiredError, match="no longer kept"):
        place.read(as_of=first)
    with pytest.raises(SnapshotExpiredError, match="no longer kept"):
        place.read(as_of=began)
    with pytest.raises(ConfigurationError, match="no run of that epoch"):
        place.read(as_of=99)


def test_time_names_the_same_snapshot_for_ever_whatever_the_clocks_show(place: Place) -> None:
    """Each time is requested again after each run, the first ones before their snapshot exists."""
    place.kept = 100
    chance, times = random.Random(7), list[datetime]()
    answers: dict[datetime, tuple[int, int]] = {}
    place.run(1)
    for end in range(2, 14):
        now_s = place.clock.now_ms() / 1000
        times += [datetime.fromtimestamp(now_s + chance.choice([-4, -1, 0, 0.5, 1, 3]), UTC) for _ in range(3)]
        for at in times:
            try:
                snapshot = choose_snapshot(place.store(), at)
            except NotSettledError:
                assert at not in answers
                continue
            assert answers.setdefault(at, snapshot.name) == snapshot.name
        place.clock.jump(chance.choice([-3, -1, 0, 0, 2, 4]))
        place.run(end, ["d0"])
    assert len(answers) > len(times) // 2
    assert len({*answers.values()}) > 4


def test_displayed_time_of_a_snapshot_names_that_snapshot(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms / 1000, UTC)

    odd_ms = next(ms for ms in range(2**31 * 1000, 2**31 * 1001) if int(shown(ms).timestamp() * 1000) < ms)
    for at_ms in (odd_ms, odd_ms + 1000):
        monkeypatch.setattr(place.clock, "now_ms", lambda at_ms=at_ms: at_ms)
        place.run(3)
    assert place.read(as_of=shown(odd_ms)).time_ms == odd_ms


@pytest.mark.parametrize("at", [datetime(1, 1, 1), datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=-14)))])
def test_out_of_range_time_is_refused_with_a_typed_error(place: Place, at: datetime) -> None:
    place.run(3)
    with pytest.raises((ConfigurationError, NotSettledError)):
        place.read(as_of=at)
    with pytest.raises(ConfigurationError, match="as_of does not name a snapshot"):
        parsed_as_of("9" * 5000)


def test_as_of_accepts_epoch_and_time_as_text_and_refuses_other_values(place: Place) -> None:
    first = place.run(3)
    place.run(5)
    cut = place.read(as_of=first)
    time = datetime.fromtimestamp(cut.time_ms / 1000, UTC)
    assert place.read(as_of=str(first)).epoch == place.read(as_of=time.isoformat()).epoch == cut.epoch
    for wrong in ("yesterday", 1.5):
        message = f"as_of does not name a snapshot; expected the epoch of a run.*found {wrong}"
        with pytest.raises(ConfigurationError, match=message):
            place.read(as_of=wrong)  # type: ignore[arg-type]


def test_reading_a_fork_without_its_job_file_requires_a_branch(place: Place) -> None:
    """A dataset's folder contains the folders of all branches, each with a copy of its records."""
    place.run(3)
    job = load_config(Path(__file__).parents[4] / "conf" / "jobs" / "kafka-avro-fork.yaml")
    record_settings(place.store(), fixed_settings_of(job))
    with pytest.raises(ConfigurationError, match=r"the branch to read is not given.*archive, lake, errors"):
        place.read()
    errors = read({"store": place.roots.store, "output": place.roots.output}, branch="errors")
    assert place.counts(errors) == dict.fromkeys(NAMES, 0)


def test_time_after_the_newest_snapshot_raises_not_settled_error_with_the_reason(place: Place) -> None:
    first = place.run(3)
    at = datetime.fromtimestamp(place.clock.now_ms() / 1000, UTC)
    with pytest.raises(
        NotSettledError, match=f"may still be made.*epoch {first},.*as_of={first} always names this snapshot"
    ):
        place.read(as_of=at)
    assert (place.read(as_of=first).epoch, place.read().phase) == (place.read().epoch, 2)
    place.clock.jump(-60)
    late = place.run(4)
    place.clock.jump(120)
    place.run(5)
    assert place.read(as_of=at).epoch == late, (
        "the time must name the snapshot that was made later with an earlier clock"
    )


def test_replaced_files_are_kept_while_a_kept_snapshot_lists_them_and_then_deleted(tmp_path: Path) -> None:
    place = Place(tmp_path, publish="replace", kept=4)
    first = place.run(3)
    old = place.read(as_of=first)
    files = old.files()
    second = place.run(5)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 5 - 3)
    assert old.files() == files
    assert place.counts(place.read(as_of=first)) == dict.fromkeys(NAMES, 3)
    place.run(5)
    assert all(Path(file).exists() for file in files)
    place.run(5)
    place.run(5)
    assert not any(Path(file).exists() for file in files)
    with pytest.raises(SnapshotExpiredError, match="was deleted while it was read"):
        old.files()
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 2)
    assert second


def test_snapshot_manifest_of_a_fenced_run_is_ignored(place: Place) -> None:
    place.run(3)
    fenced = place.begin(dict.fromkeys(NAMES, 4))
    place.run(5)
    before = manifest_names(place)
    put_snapshot(fenced.store, fenced.epoch, "late", CutPhase.ENDED, [], 1)
    assert manifest_names(place) == before
    newest = choose_snapshot(place.store(), None)
    stray = replace(fenced)
    path = snapshot_manifest_path(place.roots.store, (stray.epoch, 2))
    Path(path).write_bytes(Path(snapshot_manifest_path(place.roots.store, newest.name)).read_bytes())
    assert (stray.epoch, 2) not in [
        root.name for root in valid_manifests(place.fs, place.roots.store, place.store().job_log().refresh())
    ]
    place.run(6)
    assert not Path(path).exists()


def test_half_published_job_scope_run_is_not_in_a_snapshot(tmp_path: Path) -> None:
    place = Place(tmp_path, job_level=True)
    place.run(3)

    def publishes_one_bucket(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        if function is publish_partition:
            settings = replace(settings, partitions=2)
            return launch_here(function, settings, 1, kind)
        return launch_here(function, settings, tasks, kind)

    place.launch = publishes_one_bucket
    half = place.run(5)
    watermarks = [
        state.done_epoch
        for bucket in range(2)
        for state in place.store().bucket_log(bucket).refresh().datasets.values()
    ]
    assert len(set(watermarks)) == 2, "the test must leave half of the run open"
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 3)
    with pytest.raises(NotSettledError):
        place.read(as_of=half)
    place.launch = launch_here
    place.run(5)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 5)
    assert place.counts(place.read(as_of=half)) == dict.fromkeys(NAMES, 5)


def test_job_scope_run_with_a_quarantined_dataset_is_not_in_a_snapshot(tmp_path: Path) -> None:
    place = Place(tmp_path, job_level=True)
    place.run(3)

    def loses_a_staged_file(
        function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
    ) -> list[Result]:
        if function is publish_partition:
            next(path for path in Path(place.roots.staging).rglob("*.parquet")).unlink()
        return launch_here(function, settings, tasks, kind)

    place.launch = loses_a_staged_file
    place.run(5)
    states = [state for bucket in range(2) for state in place.store().bucket_log(bucket).refresh().datasets.values()]
    assert len({state.done_epoch for state in states}) == 2, "the test must leave one dataset open"
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 3)
    place.launch = launch_here
    place.run(5)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 3)


def test_snapshot_keeps_the_earlier_state_of_an_unreadable_bucket(place: Place) -> None:
    place.run(3)
    (log,) = [place.store().bucket_log(1).folder]
    newest = max(path for path in Path(log).glob("*.seg"))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-3])
    place.run(5)
    in_first = set(place.store().bucket_log(0).refresh().datasets)
    counts = place.counts(place.read())
    assert counts == {name: 5 if name in in_first else 3 for name in NAMES}
    newest.write_bytes(whole)


@pytest.mark.parametrize("folder", [SNAPSHOT_DELTAS, SNAPSHOTS])
def test_damaged_snapshot_files_raise_corrupt_error_and_the_next_run_replaces_them(place: Place, folder: str) -> None:
    place.run(3)
    for path in Path(f"{place.roots.store}/{folder}").glob("*.json"):
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptError):
        place.read()
    place.run(5)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 5)


def test_reading_without_a_run_or_with_an_unknown_dataset_is_refused(place: Place) -> None:
    place.store()
    with pytest.raises(NotSettledError, match="no snapshot"):
        place.read()
    place.run(3)
    with pytest.raises(ConfigurationError, match="has nothing of this dataset"):
        place.read("other")
    with pytest.raises(ConfigurationError, match="the store does not exist"):
        read({"store": place.roots.output, "output": place.roots.output})


def test_fenced_run_deletes_no_snapshot(place: Place) -> None:
    place.run(3)
    fenced = place.begin(dict.fromkeys(NAMES, 4))
    place.run(5)
    before = manifest_names(place), sorted(delta_names(place))
    expire_older_snapshots(fenced.store, fenced.epoch, 1)
    assert (manifest_names(place), sorted(delta_names(place))) == before
    assert read_snapshot_manifest(place.fs, place.roots.store, (1, 1)) is None


class FakeSpark:
    """A Spark session that records the files it is given to read."""

    def __init__(self) -> None:
        self.files: list[str] = []

    @property
    def read(self) -> FakeSpark:
        return self

    def format(self, form: str) -> FakeSpark:
        return self

    def option(self, name: str, value: str) -> FakeSpark:
        return self

    def load(self, files: list[str]) -> None:
        self.files = files


@pytest.mark.parametrize(
    ("job", "spark"),
    [
        ("s3://b/out/", "s3a://b/out/"),
        ("abfss://c@a.dfs.core.windows.net/out/", "abfss://c@a.dfs.core.windows.net/out/"),
        ("hdfs://host/out/", "hdfs://host/out/"),
        ("/out/", "/out/"),
    ],
)
def test_spark_is_given_files_with_the_schemes_of_hadoop(
    place: Place, monkeypatch: pytest.MonkeyPatch, job: str, spark: str
) -> None:
    place.run(1)
    monkeypatch.setattr(Snapshot, "files", lambda *_: [f"{job}a.parquet", f"{job}b.parquet"])
    session = FakeSpark()
    place.read().to_spark(session)  # type: ignore[arg-type]
    assert session.files == [f"{spark}a.parquet", f"{spark}b.parquet"]


def test_spark_cannot_read_az_urls_and_the_error_names_the_form_that_it_can(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run(1)
    monkeypatch.setattr(Snapshot, "files", lambda *_: ["az://c/out/a.parquet"])
    with pytest.raises(ConfigurationError, match=r"no file system for az://.*abfss://"):
        place.read().to_spark(FakeSpark())  # type: ignore[arg-type]
