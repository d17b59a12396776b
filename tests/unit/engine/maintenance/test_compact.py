"""Compaction: which records the merged files have, what refuses a merged file, and what audits, rebuilds and readers
make of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distcommit import Job
from distcommit.app.admin import rebuild_job
from distcommit.app.admin.compact import CompactResult, add_sizes_after, compacting, find_compactable
from distcommit.app.admin.expire import expiring
from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.files.read_published_files import PublishedFile
from distcommit.app.auditing.offsets.joined_branches import Branches
from distcommit.app.checks import published_type_check
from distcommit.app.migration.compare_outputs import compare_outputs
from distcommit.cli.views.maintenance_views import compaction_view
from distcommit.core.errors import ConfigurationError, ConflictError, SnapshotExpiredError
from distcommit.engine.driver.run import RunResult, run
from distcommit.engine.run_settings import RunSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.maintenance import compaction_source
from distcommit.pipeline.maintenance.compaction_groups import CompactionPolicy
from distcommit.pipeline.maintenance.compaction_source import CompactionSource
from distcommit.pipeline.maintenance.reprocess_source import ReprocessSource
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files import merged_file
from distcommit.sinks.files.footer import Footer, read_footer, read_published_footer
from distcommit.sinks.files.offset_sets import OffsetSets
from distcommit.sinks.files.open_file import OpenFile
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.folder_ownership import read_owner
from distcommit.stores.logs.fencing import begin_run, end_run
from distcommit.stores.state.job_store import open_store
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.models.rejecting_flows import TurningAway
from tests.simulation.programs.compact import COMPACT, SMALL_FILES
from tests.unit.app.reading.test_snapshot_reader import Place
from tests.unit.app.serving.test_service import write
from tests.unit.cli.views.test_output import rendered
from tests.unit.engine.driver.machines import dies_at

NAMES = ["a", "b"]
WRITE_TIME_MS = 1 << 62


class Files(Place):
    """A job with a sink for files, and a flow that may reject records."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, kept: int = 2) -> None:
        super().__init__(folder, kept=kept)
        self.sink, self.rejected = FileSink.model_validate(settings or {}), frozenset[str]()

    def begin(self, ends: dict[str, int]) -> RunSettings:
        settings = super().begin(ends)
        flow = TurningAway(self.rejected) if self.rejected else TaskFlow.straight
        return replace(settings, flow=flow(settings.flow.source, self.sink))

    def compact(self, min_files: int = 2, target_file_bytes: int = 1 << 27) -> RunResult:
        policy = CompactionPolicy(target_file_bytes, min_files, WRITE_TIME_MS)
        settings = compacting(self.begin({}), policy)
        result = run(self.launch, settings)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result

    def find(self, datasets: list[str] | None = None) -> CompactResult:
        return find_compactable(self.store(), self.begin({}).flow, SMALL_FILES, datasets or (), dry_run=True)

    def audit(self) -> AuditResult:
        return audit_store(self.store(), self.begin({}).flow.source.provenance, deep=True)

    def files(self, urn: str = "a") -> list[Path]:
        return [path for path in sorted(Path(self.roots.output, urn).rglob("*")) if path.is_file()]

    def footer(self, path: Path) -> Footer:
        footer = read_footer(self.fs, str(path))
        assert footer is not None
        return footer


@pytest.fixture
def place(tmp_path: Path) -> Files:
    return grown(Files(tmp_path))


def grown(place: Files) -> Files:
    for end in (3, 5, 9):
        place.run(end, NAMES)
    return place


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "parquet"},
        {"format": "avro"},
        {"format": "orc"},
        {"format": "jsonl"},
        {"format": "csv", "compression": "gzip"},
    ],
    ids=lambda settings: settings["format"],
)
def test_merged_file_has_the_same_records_in_source_order(tmp_path: Path, settings: dict[str, str]) -> None:
    place = grown(Files(tmp_path, settings))
    before = place.read("a").to_arrow()
    assert place.compact().succeeded
    after = place.read("a")
    assert len(after.files()) == 1
    assert after.to_arrow()["offset"].to_pylist() == [*range(9)]
    assert after.to_arrow().equals(before)
    assert place.audit().exact
    assert not place.compact().totals.files_published, "there is nothing left to merge"


def test_merged_file_is_sorted_as_the_sink_requires(tmp_path: Path) -> None:
    place = grown(Files(tmp_path, {"sort_by": [{"column": "offset", "order": "descending"}]}))
    assert place.compact().succeeded
    assert place.read("a").to_arrow()["offset"].to_pylist() == [*reversed(range(9))]


def test_footer_of_a_merged_file_has_the_offsets_sums_and_epochs_of_its_inputs(place: Files) -> None:
    inputs = [place.footer(path) for path in place.files()]
    assert place.compact().succeeded
    footer = place.footer(place.files()[-1])
    assert (footer.records, footer.publish) == (9, "compact")
    assert footer.replaces == tuple(before.epoch for before in inputs)
    assert int(footer.content_sum, 16) == sum(int(before.content_sum, 16) for before in inputs) % (1 << 64)


def test_old_files_are_deleted_once_no_kept_snapshot_shows_them(place: Files) -> None:
    older = place.read("a")
    assert place.compact().succeeded
    assert older.to_arrow().num_rows == 9
    assert (len(place.files()), place.audit().superseded_files) == (4, 8)
    for _ in range(2):
        place.run(9, NAMES)
    assert (len(place.files()), place.audit().superseded_files, place.audit().exact) == (1, 0, True)
    with pytest.raises(SnapshotExpiredError):
        older.files()


def test_duckdb_and_pyarrow_read_every_record_once_at_a_snapshot(place: Files) -> None:
    assert place.compact().succeeded
    snapshot = place.read()
    assert snapshot.to_pyarrow_dataset().count_rows() == 18
    relation = snapshot.to_duckdb("a", duckdb.connect())
    assert relation.aggregate('count(*), count(distinct "offset")').fetchall() == [(9, 9)]


def test_file_that_disappears_fails_the_compaction_of_its_dataset_alone(
    place: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete_before(fs: Any, path: str) -> Footer | None:
        if "/a/" in path:
            Path(path).unlink(missing_ok=True)
        return read_published_footer(fs, path)

    monkeypatch.setattr(compaction_source, "read_published_footer", delete_before)
    result = place.compact()
    assert not result.succeeded
    ((subject, text),) = [(reason.subject, reason.text) for reason in result.reasons.entries]
    assert (subject, "COMPACTED_FILE_MISSING" in text) == ("a", True), text
    assert len(place.read("b").files()) == 1
    place.run(11, NAMES)
    assert place.counts(place.read("b")) == {"b": 11}


def alter(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with another value in the last column of the first row."""
    index = rows.num_columns - 1
    column = rows.column(index).to_pylist()
    column[0] = "another"
    return rows.set_column(index, rows.schema.field(index), pa.array(column, rows.column(index).type))


ALTERATIONS: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "record altered": alter,
    "record dropped": lambda rows: rows.slice(1),
    "record doubled": lambda rows: pa.Table.from_batches([rows, rows.slice(0, 1)]).combine_chunks().to_batches()[0],
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_merged_file_with_other_records_is_never_published(
    place: Files, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    add = OpenFile.add

    def altered(file: OpenFile, rows: pa.RecordBatch, plain_bytes: int) -> int:
        return add(file, ALTERATIONS[name](rows) if rows.num_rows else rows, plain_bytes)

    before = place.files()
    monkeypatch.setattr(OpenFile, "add", altered)
    result = place.compact()
    assert not result.succeeded
    assert all("COMPACTION_NOT_CONSERVED" in reason.text for reason in result.reasons.entries), result.reasons
    assert place.files() == before
    assert place.audit().exact


def test_merged_file_with_other_columns_is_never_published(place: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_file, "look_into", lambda fs, path: (pa.schema([("offset", pa.int64())]), True))
    result = place.compact()
    assert not result.succeeded
    assert "expected columns" in result.reasons.entries[0].text


def test_staged_file_with_other_bytes_than_were_written_is_never_published(
    place: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksum = LocalFileSystem.checksum

    def of_damaged(fs: LocalFileSystem, path: str) -> int:
        if path.startswith(place.roots.staging) and "/merged/" in path:
            Path(path).write_bytes(b"damaged")
        return checksum(fs, path)

    before = place.files()
    monkeypatch.setattr(LocalFileSystem, "checksum", of_damaged)
    result = place.compact()
    assert not result.succeeded
    assert all("COMPACTION_NOT_CONSERVED" in reason.text for reason in result.reasons.entries), result.reasons
    assert place.files() == before


def test_damaged_file_is_not_merged(place: Files) -> None:
    path = place.files()[1]
    table, metadata = pq.read_table(path), pq.read_schema(path).metadata
    values = [*table["value"].to_pylist()[:-1], "another"]
    altered = table.set_column(table.schema.get_field_index("value"), "value", pa.array(values))
    pq.write_table(altered.replace_schema_metadata(metadata), path, store_schema=False)
    result = place.compact()
    assert not result.succeeded
    assert "PUBLISHED_FILE_CORRUPT" in result.reasons.entries[0].text
    assert len(place.read("b").files()) == 1


def test_files_with_other_metadata_of_a_column_are_not_merged(place: Files) -> None:
    for number, path in enumerate(place.files()):
        table, metadata = pq.read_table(path), pq.read_metadata(path).metadata
        unit = {"unit": "cents" if number < 2 else "euros"}
        fields = [field.with_metadata(unit if field.name == "offset" else None) for field in table.schema]
        with pq.ParquetWriter(path, pa.schema(fields)) as writer:
            writer.write_table(pa.table(table.columns, pa.schema(fields)))
            writer.add_key_value_metadata({key: metadata[key] for key in metadata if key != b"ARROW:schema"})
    result = place.compact()
    assert result.succeeded, result.reasons
    units = [pq.read_schema(path).field("offset").metadata for path in map(Path, sorted(place.read("a").files()))]
    assert units == [{b"unit": b"euros"}, {b"unit": b"cents"}]
    newest = published_type_check._newest_file(place.fs, f"{place.roots.output}/a")
    assert pq.read_schema(newest).field("offset").metadata == {b"unit": b"euros"}, "merged files are as old as theirs"
    assert place.audit().exact


def test_incarnation_of_a_merged_file_is_as_old_as_the_merged_files() -> None:
    def file(epoch: int, incarnation: str, replaces: tuple[int, ...] = ()) -> PublishedFile:
        footer = Footer(
            dataset_urn="a",
            run_id="r",
            work_unit_id="0",
            attempt="0",
            records=1,
            epoch=epoch,
            incarnation=incarnation,
            replaces=replaces,
        )
        return PublishedFile(f"/a/{epoch}", footer, OffsetSets(), OffsetSets())

    branches = Branches([file(9, "old", (1, 2)), file(5, "new")], [])
    assert branches.incarnations() == ["old", "new"]


@pytest.mark.parametrize(
    ("settings", "is_bounded"),
    [
        ({}, False),
        *(({"format": name}, True) for name in ("avro", "orc", "jsonl")),
        ({"sort_by": [{"column": "offset", "order": "descending"}]}, True),
    ],
)
def test_merged_files_that_are_in_memory_as_a_whole_are_smaller(
    tmp_path: Path, settings: dict[str, Any], is_bounded: bool
) -> None:
    place = Files(tmp_path, settings)
    source = CompactionSource(place.fs, place.roots.output, place.begin({}).flow, SMALL_FILES)
    assert (source._target_file_bytes("main") <= 16 << 20) is is_bounded


def test_dictionaries_whose_indices_may_overflow_are_recognized() -> None:
    narrow, wide = (pa.dictionary(index, pa.string()) for index in (pa.int8(), pa.int32()))
    for column in (narrow, pa.list_(narrow), pa.struct([("x", narrow)])):
        assert compaction_source._may_overflow(pa.schema([("c", column)]))
    for column in (wide, pa.list_(wide), pa.string()):
        assert not compaction_source._may_overflow(pa.schema([("n", pa.int64()), ("c", column)]))


def test_foreign_files_in_the_folder_stay_untouched(place: Files) -> None:
    folder = Path(place.roots.output, "a")
    foreign = {"mine.parquet": b"encrypted", "notes.txt": b"text"}
    for name, data in foreign.items():
        (folder / name).write_bytes(data)
    assert place.compact().succeeded
    for _ in range(2):
        place.run(9, NAMES)
    assert {name: (folder / name).read_bytes() for name in foreign} == foreign
    assert len(place.files()) == 3


def test_files_of_another_format_stay(tmp_path: Path) -> None:
    place = grown(Files(tmp_path))
    place.sink = FileSink(format="avro")
    for end in (10, 11):
        place.run(end, NAMES)
    assert place.compact().succeeded
    endings = sorted(path.rpartition(".")[2] for path in place.read("a").files())
    assert endings == ["avro", "parquet", "parquet", "parquet"]
    assert place.audit().exact


def test_files_of_runs_that_delivered_at_least_once_stay(tmp_path: Path) -> None:
    place = Files(tmp_path)
    for end in (3, 5):
        settings = place.begin(dict.fromkeys(NAMES, end))
        epoch = begin_run(settings.store, f"again-{end}", unsealed=True)
        settings = replace(settings, run_id=f"again-{end}", epoch=epoch, at_least_once=True)
        end_run(settings.store, epoch, clean=run(place.launch, settings).succeeded)
    for end in (7, 9):
        place.run(end, NAMES)
    assert place.compact().succeeded
    assert place.counts(place.read("a")) == {"a": 9}
    assert len(place.read("a").files()) == 3


def test_dry_run_lists_files_and_bytes_of_each_dataset_and_changes_nothing(place: Files) -> None:
    result = place.find(["a"])
    (row,) = result.rows
    assert (row.dataset, row.files_before, row.files_after, row.merged_files) == ("a", 3, 1, 3)
    assert row.bytes_before == row.merged_bytes == sum(path.stat().st_size for path in place.files())
    assert (result.datasets, result.bytes_after, len(place.files())) == (1, 0, 3)
    with pytest.raises(ConfigurationError, match="the store does not know this dataset"):
        place.find(["a", "none"])


def test_sizes_after_a_compaction_include_datasets_that_are_not_listed(place: Files) -> None:
    result = place.find()
    (listed, unlisted) = result.rows
    del result.rows[1]
    assert place.compact().succeeded
    add_sizes_after(result, place.store(), place.begin({}).flow, SMALL_FILES)
    (row,) = result.rows
    assert (row.dataset, row.files_after) == (listed.dataset, 1)
    assert row.bytes_after == Path(place.read(listed.dataset).files()[0]).stat().st_size
    assert (result.files_after, result.bytes_after) == (2, row.bytes_after + unlisted.bytes_before)


def test_view_shows_the_files_before_and_after_and_the_datasets_left_out(place: Files) -> None:
    found = place.find()
    assert "6 files of 2 datasets would become 2" in rendered(compaction_view(found))
    failed = CompactResult(dry_run=False, succeeded=False, skipped=["a: damaged"], skipped_count=1)
    text = rendered(compaction_view(failed))
    assert "incomplete" in text
    assert "a: damaged" in text
    assert "nothing to compact" in rendered(compaction_view(CompactResult(dry_run=False)))


def test_missing_merged_file_is_reported_by_the_audit(place: Files) -> None:
    assert place.compact().succeeded
    for _ in range(2):
        place.run(9, NAMES)
    place.files()[0].unlink()
    result = place.audit()
    assert not result.exact
    assert result.gaps == 9


def test_expired_merged_files_are_neither_gaps_nor_missing(place: Files) -> None:
    assert place.compact().succeeded
    for _ in range(2):
        place.run(9, NAMES)
    for kept in (None, 2):
        settings = expiring(place.begin({}), WRITE_TIME_MS, kept)
        result = run(place.launch, settings)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
    audited = place.audit()
    assert (audited.exact, audited.expired, audited.records) == (True, 18, 0), audited
    place.run(11, NAMES)
    assert place.audit().exact


def test_reprocessed_records_can_be_compacted_and_the_store_rebuilt(tmp_path: Path) -> None:
    place = Files(tmp_path)
    place.rejected = frozenset({"a/0/1"})
    grown(place)
    place.rejected = frozenset()
    settings = place.begin({})
    errors = ReprocessSource(place.fs, place.roots.output, settings.flow, "a")
    assert run(place.launch, replace(settings, flow=settings.flow.with_source(errors))).succeeded
    end_run(settings.store, settings.epoch, clean=True)
    assert place.compact().succeeded
    place.run(9, NAMES)
    place.run(9, NAMES)
    audited = place.audit()
    assert (audited.exact, audited.records) == (True, 18)
    states = stored_states(place.store())
    shutil.rmtree(place.roots.store)
    rebuild(place)
    assert {urn: state.watermark for urn, state in stored_states(place.store()).items()} == {
        urn: state.watermark for urn, state in states.items()
    }
    place.run(11, NAMES)
    assert place.audit().records == 22


def test_compacted_output_has_the_same_positions_as_another_job(tmp_path: Path) -> None:
    place, other = grown(Files(tmp_path / "here")), grown(Files(tmp_path / "there"))
    assert place.compact().succeeded
    flow = place.begin({}).flow
    result = compare_outputs(place.store(), flow, other.store(), flow)
    assert (result.is_equal, [row.positions_in_both for row in result.rows]) == (True, [9, 9]), result


def test_half_published_compaction_without_its_tombstone_is_set_aside_by_a_rebuild(tmp_path: Path) -> None:
    """A power loss may lose the tombstone's rename and keep that of the merged file."""
    place = grown(Files(tmp_path))
    before = place.files()
    settings = compacting(place.begin({}), SMALL_FILES)
    assert run(place.launch, settings).succeeded  # without the mark of its end
    for stone in Path(place.roots.output).glob("_rejected/*/*.tombstone"):
        stone.unlink()
    shutil.rmtree(place.roots.store)
    rebuild(place)
    assert place.files() == before
    place.run(11, NAMES)
    audited = place.audit()
    assert (audited.exact, audited.records) == (True, 22), audited


def test_job_whose_merged_file_is_missing_can_be_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = grown(Files(tmp_path))
    before = place.files()
    assert place.compact().succeeded
    paths = {name: getattr(place.roots, name) for name in ("store", "staging", "output")}
    job = Job.from_file(write(tmp_path, "job", paths=paths, commit={"buckets": 2}))
    monkeypatch.setattr(rebuild_job, "record_settings", lambda *_: None)  # its source is another one
    with pytest.raises(ConflictError, match="nothing to rebuild"):
        job.rebuild()
    (merged,) = set(place.files()).difference(before)
    merged.unlink()
    assert job.rebuild().written
    for _ in range(2):
        place.run(9, NAMES)
    audited = place.audit()
    assert (audited.exact, audited.records, place.files()) == (True, 18, before), audited
    with pytest.raises(ConflictError, match="nothing to rebuild"):
        job.rebuild()


def rebuild(place: Files) -> None:
    owner = read_owner(place.fs, place.roots.output)
    assert owner is not None
    store = open_store(place.fs, place.roots, "job", 2, create=True, lost_store_id=owner.store_id)
    done = rebuild_store(
        store, plan_rebuild(store, stored_states(store), accept_gaps=False), "rebuild", "person", accept_gaps=False
    )
    assert done.written, done


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_compaction_killed_at_any_operation_is_finished_or_dropped_by_the_next_run() -> None:
    """The crash explorer also crashes the recovery, and loses power."""
    program = next(program for program in COMPACT if program.name == "compact-then-run")
    for number in count():
        machine = program.find()
        machine.gate = dies_at(number)
        try:
            program.act(machine)
        except Crashed:
            machine.gate = None
            assert not program.recover(machine), f"killed at operation {number}"
        else:
            break
    assert number > 50, "the whole command was covered"
