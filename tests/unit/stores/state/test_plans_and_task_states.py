"""Plans and task states as Parquet: round trips, use by other programs, and errors for damaged files."""

from __future__ import annotations

import errno
import io
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from distcommit.core.errors import CorruptError
from distcommit.core.interfaces.file_system import FileSystem, FolderEntry
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import (
    BranchResult,
    CheckOutcome,
    ConstructCounts,
    DatasetPlan,
    SkippedRange,
    StagedFile,
    TaskOutcome,
    TaskState,
    WorkUnit,
)
from distcommit.protocol.paths.shared_names import work_unit_name
from distcommit.stores.state.plan_and_task_state_encoding import (
    decode_plan,
    decode_task_states,
    encode_plan,
    encode_task_states,
    table_name,
)
from distcommit.stores.state.run_plans import (
    MANIFEST_VERSION,
    LentUnits,
    Manifest,
    PlanReader,
    put_manifest,
    read_manifest,
    write_plans,
)
from distcommit.stores.state.table_schemas import PLAN_SCHEMA, TASK_STATE_SCHEMA
from distcommit.stores.state.task_states import (
    PastStates,
    TaskStateReader,
    TaskStateTables,
    TaskStateWriter,
    ingest_ended,
    prepare_run,
    record_ingest_ended,
)
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "\0", "a\nb", '"', "\\", "ünïcode", "\U0001f4a9", "a/b=c", "%2F", "' OR 1=1", "\u202e", " "]
)
int64s = st.integers(-(2**63), 2**63 - 1)
uint64s = st.integers(0, 2**64 - 1)
positions = int64s | texts | st.floats(allow_nan=False, allow_infinity=False)
watermarks = st.builds(Watermark, st.dictionaries(texts, positions, max_size=4), texts)
files = st.builds(StagedFile, texts, texts, int64s, uint64s, uint64s, int64s, int64s)
plain = st.recursive(
    st.none() | st.booleans() | int64s | st.floats(allow_nan=False) | texts | st.binary(max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3),
    max_leaves=5,
)
results = st.builds(
    BranchResult,
    branch=texts,
    sink=texts,
    files=st.lists(files, max_size=3).map(tuple),
    infos=st.lists(plain, max_size=2).map(tuple),
    records_written=int64s,
    records_rejected=int64s,
    holes=st.lists(st.builds(SkippedRange, texts, positions, positions, texts, st.booleans(), texts), max_size=2).map(
        tuple
    ),
    content_sum=texts,
    checks=st.lists(st.builds(CheckOutcome, texts, st.booleans(), st.booleans(), texts), max_size=2).map(tuple),
    error=texts,
    error_construct=texts,
)
task_states = st.builds(
    TaskState,
    run_id=texts,
    epoch=int64s,
    dataset_urn=texts,
    work_unit_id=texts,
    attempt=texts,
    outcome=st.sampled_from(TaskOutcome),
    low=watermarks,
    expected_high=watermarks,
    actual_high=watermarks,
    branches=st.lists(results, max_size=2).map(tuple),
    records_read=int64s,
    bytes_read=int64s,
    error=texts,
    started_ms=int64s,
    finished_ms=int64s,
    constructs=st.lists(
        st.builds(ConstructCounts, texts, texts, int64s, int64s, int64s, int64s, int64s, st.floats(allow_nan=False)),
        max_size=2,
    ).map(tuple),
    schemas=st.dictionaries(texts, st.lists(int64s, max_size=3).map(tuple), max_size=2),
)


@st.composite
def plans(draw: st.DrawFn) -> list[DatasetPlan]:
    urns = draw(st.lists(texts, unique=True, max_size=4))
    skipped = st.lists(st.builds(SkippedRange, texts, positions, positions, texts), max_size=2).map(tuple)
    return [
        DatasetPlan(
            urn,
            draw(st.none() | watermarks),
            draw(watermarks),
            tuple(
                draw(
                    st.lists(
                        st.builds(
                            WorkUnit, texts, st.just(urn), watermarks, watermarks, int64s, st.dictionaries(texts, texts)
                        ),
                        min_size=1,
                        max_size=3,
                    )
                )
            ),
            draw(skipped),
        )
        for urn in urns
    ]


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(task_states, max_size=4))
def test_task_states_survive_a_round_trip(rows: list[TaskState]) -> None:
    assert decode_task_states(encode_task_states(rows), "x") == rows


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(plans())
def test_plans_survive_a_round_trip(dataset_plans: list[DatasetPlan]) -> None:
    assert decode_plan(encode_plan(dataset_plans), "x") == dataset_plans


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(st.lists(task_states, min_size=1, max_size=2), st.data())
def test_damaged_task_states_raise_only_corrupt_error(rows: list[TaskState], data: st.DataObject) -> None:
    whole = encode_task_states(rows)
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.booleans())
    damaged = whole[:place] if cut else whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
    if cut:
        with pytest.raises(CorruptError) as caught:
            decode_task_states(damaged, "the/path")
        assert caught.value.ids == {"path": "the/path"}
    else:
        with suppress(CorruptError):
            assert isinstance(decode_task_states(damaged, "the/path"), list)


def state(*branches: BranchResult, **changes: Any) -> TaskState:
    mark = Watermark({"0": 5}, "topic-id")
    result = TaskState("run", 7, "urn", "00000_000001", "ab", TaskOutcome.SUCCEEDED, mark, mark, mark, branches)
    return msgspec.structs.replace(result, **changes)


def prepared(*files: StagedFile) -> BranchResult:
    return BranchResult("main", "files", files)


def plan(urn: str = "urn") -> DatasetPlan:
    unit = WorkUnit("00000_000001", urn, Watermark({"0": 5}), Watermark({"0": 9}), 4, {"max_bytes": "10"})
    return DatasetPlan(urn, Watermark({"0": 5}), Watermark({}), (unit,), (SkippedRange("1", 2, 5, "expired"),))


@pytest.mark.thorough
def test_flipped_bit_never_changes_a_row_unnoticed() -> None:
    file = StagedFile("0000000002/bucket=00000/00000_000000.ab/0001.parquet", "a/x.parquet", 1954, 2**63, 7, 8, 5)
    rows = [state(prepared(file)), state(prepared(file))]
    whole = encode_task_states(rows)
    unnoticed = []
    for place in range(0, len(whole), 3):
        damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        with suppress(CorruptError):
            if decode_task_states(damaged, "x") != rows:
                unnoticed.append(place)
    assert unnoticed == []


def other_columns(data: bytes) -> bytes:
    return rewritten(pq.read_table(io.BytesIO(data)).drop_columns(["low"]))


def another_version(data: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    return rewritten(table.rename_columns([name.upper() for name in table.schema.names]))


def no_watermark(data: bytes) -> bytes:
    return replaced(data, "low", "{}")


def null_watermark(data: bytes) -> bytes:
    return replaced(data, "low", None)


def replaced(data: bytes, column: str, value: str | None) -> bytes:
    table = pq.read_table(io.BytesIO(data))
    place = table.schema.get_field_index(column)
    values = pa.array([value] * table.num_rows, table.schema.field(column).type)
    return rewritten(table.set_column(place, table.schema.field(column).with_nullable(value is None), values))


def rewritten(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


DAMAGES: list[Callable[[bytes], bytes]] = [
    lambda data: b"",
    lambda data: b"garbage",
    lambda data: b"PAR1PAR1",
    lambda data: b"PAR1" + b"\xff" * 100 + b"PAR1",
    lambda data: data[:-1],
    lambda data: data[: len(data) // 2],
    other_columns,
    another_version,
    no_watermark,
    null_watermark,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_table_is_named_and_never_partly_read(damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptError) as caught:
        decode_task_states(damage(encode_task_states([state(), state()])), "the/path")
    assert caught.value.ids == {"path": "the/path"}
    with pytest.raises(CorruptError) as caught:
        decode_plan(damage(encode_plan([plan()])), "the/path")
    assert caught.value.ids == {"path": "the/path"}


def test_unknown_task_outcome_raises_corrupt_error() -> None:
    with pytest.raises(CorruptError, match="perhaps"):
        decode_task_states(replaced(encode_task_states([state()]), "outcome", "perhaps"), "x")


def test_other_programs_read_task_states_as_a_plain_table() -> None:
    file = StagedFile("s", "f", 2**63 - 1, 2**64 - 1, 2**64 - 1, 3, 4)
    rows = [state(prepared(file), error="no\nluck"), state(), state(prepared(file, file), prepared())]
    table = pq.read_table(io.BytesIO(encode_task_states(rows)))
    assert table.schema.equals(TASK_STATE_SCHEMA)
    assert table.schema.metadata == {b"distcommit-table-version": b"1"}
    first = table.to_pylist()[0]
    assert (first["run_id"], first["epoch"], first["outcome"], first["error"]) == ("run", 7, "succeeded", "no\nluck")
    assert msgspec.json.decode(first["low"]) == [{"0": 5}, "topic-id"]
    assert first["branches"][0]["files"][0]["checksum"] == 2**64 - 1
    file_counts = [[len(result["files"]) for result in row["branches"]] for row in table.to_pylist()]
    assert file_counts == [[1], [], [2, 0]]


def test_other_programs_read_commit_infos_as_a_list_of_messagepack() -> None:
    result = BranchResult("main", "rows", infos=({"rows": 3}, None))
    (row,) = pq.read_table(io.BytesIO(encode_task_states([state(result)]))).to_pylist()
    assert [*map(msgspec.msgpack.decode, row["branches"][0]["infos"])] == [{"rows": 3}, None]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01\x02", msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x"))])
def test_commit_info_that_is_not_a_plain_value_raises_corrupt_error(data: bytes) -> None:
    table = pq.read_table(io.BytesIO(encode_task_states([state(BranchResult("main", "rows", infos=(1,)))])))
    place = table.schema.get_field_index("branches")
    field = table.schema.field(place)
    [[result]] = table["branches"].to_pylist()
    changed = pa.array([[{**result, "infos": [data]}]], field.type)
    with pytest.raises(CorruptError):
        decode_task_states(rewritten(table.set_column(place, field, changed)), "x")


def test_other_programs_read_plans_as_a_plain_table() -> None:
    table = pq.read_table(io.BytesIO(encode_plan([plan("a"), plan("b")])))
    assert table.schema.equals(PLAN_SCHEMA)
    assert table["dataset_urn"].to_pylist() == ["a", "b"]
    assert msgspec.json.decode(table["expected_high"].to_pylist()[0]) == [{"0": 9}, ""]
    assert msgspec.json.decode(table["skipped"].to_pylist()[0]) == [["1", 2, 5, "expired", False, ""]]
    assert table["size"].to_pylist() == [4, 4]


def make_fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(SimulatedPosix())
    prepare_run(fs, "/store", "run", 1, 2)
    return fs


def tables_in(fs: FileSystem) -> TaskStateTables:
    return TaskStateTables(fs, "/store", "run", 2, {1, 3})


def of_bucket(bucket: int, attempt: str) -> TaskState:
    return structs.replace(state(attempt=attempt), work_unit_id=work_unit_name(bucket, 0))


def attempts(rows: Iterable[TaskState]) -> list[str]:
    return sorted(row.attempt for row in rows)


def test_reader_returns_each_row_once_in_whatever_order_files_appear() -> None:
    fs = make_fs()
    reader = TaskStateReader(tables_in(fs), 3)
    assert reader.poll() == []
    one, two = TaskStateWriter(fs, "/store", "run", 2), TaskStateWriter(fs, "/store", "run", 2)
    two.append({3: [of_bucket(3, "1"), of_bucket(3, "2")]})
    one.append({3: [of_bucket(3, "3")]})
    assert attempts(reader.poll()) == ["1", "2", "3"]
    one.append({3: [of_bucket(3, "4")]})
    assert attempts(reader.poll()) == ["4"]
    assert reader.poll() == []


def test_task_states_of_all_buckets_of_a_partition_are_one_file_that_is_read_once() -> None:
    fs = make_fs()
    prepare_run(fs, "/store", "run", 0, 2)
    put = {bucket: [of_bucket(bucket, str(bucket))] for bucket in (0, 1, 3)}
    names = TaskStateWriter(fs, "/store", "run", 2).append(put)
    assert names[1] == names[3] != names[0]
    tables = tables_in(fs)
    assert attempts(TaskStateReader(tables, 3).poll()) == ["3"]
    fs.delete(f"/store/task_states/run=run/partition=00001-of-00002/{names[3]}")
    assert attempts(TaskStateReader(tables, 1).poll()) == ["1"]


def test_new_reader_of_a_bucket_returns_all_of_its_rows() -> None:
    """Rows put by the same process are included, because a failed committer is followed by another one."""
    fs = make_fs()
    tables, writer = tables_in(fs), TaskStateWriter(fs, "/store", "run", 2)
    first = TaskStateReader(tables, 3)
    writer.append({1: [of_bucket(1, "0")], 3: [of_bucket(3, "1")]})
    assert attempts(first.poll()) == ["1"]
    own_rows = [of_bucket(3, "2")]
    first.add_states(str(writer.append({3: own_rows})[3]), own_rows)
    assert attempts(first.poll()) == ["2"]
    second = TaskStateReader(tables, 3)
    assert attempts(second.poll()) == ["1", "2"]
    assert attempts(TaskStateReader(tables, 1).poll()) == ["0"]
    writer.append({3: [of_bucket(3, "3")]})
    assert attempts(second.poll()) == ["3"]


def test_rows_of_buckets_without_a_reader_are_skipped() -> None:
    fs = make_fs()
    TaskStateWriter(fs, "/store", "run", 2).append({5: [of_bucket(5, "1")], 3: [of_bucket(3, "2")]})
    tables = tables_in(fs)
    assert attempts(TaskStateReader(tables, 5).poll()) == []
    assert attempts(TaskStateReader(tables, 3).poll()) == ["2"]


def test_concurrent_readers_share_a_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader misses a file that was put before its poll."""
    fs = make_fs()
    tables, writer = tables_in(fs), TaskStateWriter(fs, "/store", "run", 2)
    readers = [TaskStateReader(tables, bucket) for bucket in (1, 3)]
    listings, list_folder = [], fs.list_folder

    def slowly(path: str) -> list[FolderEntry]:
        listings.append(path)
        if len(listings) == 1:
            writer.append({1: [of_bucket(1, "1")], 3: [of_bucket(3, "3")]})
            polls.extend(pool.submit(reader.poll) for reader in readers)
            until_s = time.monotonic() + 10
            while not all(future.running() for future in polls) and time.monotonic() < until_s:
                time.sleep(0.001)
            return []  # the listing from before the concurrent polls
        return list_folder(path)

    polls: list[Future[list[TaskState]]] = []
    monkeypatch.setattr(fs, "list_folder", slowly)
    with ThreadPoolExecutor(2) as pool:
        assert TaskStateReader(tables, 3).poll() == []
        assert [attempts(future.result(10)) for future in polls] == [["1"], ["3"]]
    assert 2 <= len(listings) <= 3


def test_failed_poll_is_repeated_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = make_fs()
    TaskStateWriter(fs, "/store", "run", 2).append({1: [of_bucket(1, "1")], 3: [of_bucket(3, "3")]})
    tables = tables_in(fs)
    one, three = TaskStateReader(tables, 1), TaskStateReader(tables, 3)
    with monkeypatch.context() as patched:
        patched.setattr(fs, "read", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "no")))
        for reader in (one, three):
            with pytest.raises(OSError, match="no"):
                reader.poll()
    assert (attempts(one.poll()), attempts(three.poll())) == (["1"], ["3"])


def test_reader_returns_the_other_files_after_a_corrupt_file() -> None:
    """Each reader raises once, because the file may have contained rows of any bucket."""
    fs = make_fs()
    writer = TaskStateWriter(fs, "/store", "run", 2)
    writer.append({3: [of_bucket(3, "1")]})
    folder = "/store/task_states/run=run/partition=00001-of-00002"
    fs.put_if_absent(f"{folder}/bad.parquet", b"garbage")
    fs.put_if_absent(f"{folder}/.tmp-half.parquet", b"garbage")
    writer.append({3: [of_bucket(3, "2")]})
    tables = tables_in(fs)
    reader, other = TaskStateReader(tables, 3), TaskStateReader(tables, 1)
    for current in (reader, other):
        with pytest.raises(CorruptError, match=r"bad\.parquet"):
            current.poll()
    assert attempts(reader.poll()) == ["1", "2"]
    assert other.poll() == []


def recorded_reads(fs: FileSystem, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the paths of all files read from now on."""
    reads, read = list[str](), fs.read

    def noted(path: str) -> bytes:
        reads.append(path)
        return read(path)

    monkeypatch.setattr(fs, "read", noted)
    return reads


def test_readers_restarted_after_an_outage_share_one_read_of_each_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = make_fs()
    writer = TaskStateWriter(fs, "/store", "run", 2)
    writer.append({1: [of_bucket(1, "1")], 3: [of_bucket(3, "3")]})
    tables, reads = tables_in(fs), recorded_reads(fs, monkeypatch)

    def begun() -> list[list[str]]:
        return [attempts(TaskStateReader(tables, bucket).poll()) for bucket in (1, 3)]

    for number in range(1, 4):
        assert (begun(), len(reads)) == ([["1"], ["3"]], number)
    writer.append({3: [of_bucket(3, "4")]})
    assert (begun(), len(reads)) == ([["1"], ["3", "4"]], 6), "the new file must be read first, and then all files"


def test_states_of_an_epoch_are_found_with_one_read_for_each_newer_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = make_fs()
    for epoch in (1, 2, 3):
        prepare_run(fs, "/store", f"run{epoch}", 0, 1)
        writer = TaskStateWriter(fs, "/store", f"run{epoch}", 1)
        for bucket in range(4):
            writer.append({bucket: [structs.replace(of_bucket(bucket, f"{epoch}/{bucket}"), epoch=epoch)]})
    reads = recorded_reads(fs, monkeypatch)
    past = PastStates(fs, "/store")
    assert [attempts(past.of_epoch(2, bucket)) for bucket in range(4)] == [[f"2/{bucket}"] for bucket in range(4)]
    assert len(reads) == 1 + 1 + 4
    assert past.of_epoch(7, 0) == []


def test_states_of_past_runs_are_found_by_partition_and_corrupt_files_are_skipped() -> None:
    fs = make_fs()
    prepare_run(fs, "/store", "run", 0, 2)
    TaskStateWriter(fs, "/store", "run", 2).append({bucket: [of_bucket(bucket, str(bucket))] for bucket in range(4)})
    folder = "/store/task_states/run=run/partition=00001-of-00002"
    data = encode_task_states([of_bucket(3, "late")])
    fs.put_if_absent(f"{folder}/{table_name('x', data)}", data)
    fs.put_if_absent(f"{folder}/bad.parquet", b"garbage")
    past = PastStates(fs, "/store")
    assert attempts(past.of("run", 3)) == ["3", "late"]
    assert attempts(past.of("run", 2)) == ["2"]
    assert past.of("another", 3) == []
    for entry in fs.list_folder(folder):
        fs.delete(f"{folder}/{entry.name}")
    assert attempts(past.of("run", 1)) == ["1"], "each file must be read once"


def test_ingest_has_ended_once_that_is_recorded() -> None:
    fs = make_fs()
    assert not ingest_ended(fs, "/store", "run")
    record_ingest_ended(fs, "/store", "run")
    record_ingest_ended(fs, "/store", "run")
    assert ingest_ended(fs, "/store", "run")


def test_plan_counts_only_if_a_manifest_names_it() -> None:
    fs = make_fs()
    abandoned = write_plans(fs, "/store", "run", {3: [plan("abandoned")]})
    dataset_plans = {3: [plan_of(3, "a"), plan_of(3, "b")], 5: [plan_of(5, "c")]}
    names = write_plans(fs, "/store", "run", dataset_plans)
    assert names[3] == names[5] != abandoned[3]
    with pytest.raises(FileNotFoundError):
        read_manifest(fs, "/store", "run")
    manifest = Manifest(MANIFEST_VERSION, "run", 7, names, (((3, "00000_000001"),),), (LentUnits(1, 3, 0, 5),))
    put_manifest(fs, "/store", manifest)
    put_manifest(fs, "/store", Manifest(MANIFEST_VERSION, "run", 8, abandoned))  # a late duplicate of the run
    assert read_manifest(fs, "/store", "run") == manifest
    reader = PlanReader(fs, "/store", manifest)
    assert reader.of(3) == dataset_plans[3]
    fs.delete(f"/store/plans/run=run/{names[5]}")
    assert reader.of(5) == dataset_plans[5], "the plan file must be read once"
    assert reader.of(4) == []


def plan_of(bucket: int, urn: str) -> DatasetPlan:
    bucket_plan = plan(urn)
    ids = (work_unit_name(bucket, number) for number in range(len(bucket_plan.work_units)))
    units = [
        structs.replace(unit, work_unit_id=unit_id) for unit, unit_id in zip(bucket_plan.work_units, ids, strict=True)
    ]
    return structs.replace(bucket_plan, work_units=tuple(units))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"version": "x"}'])
def test_corrupt_manifest_is_named(data: bytes) -> None:
    fs = make_fs()
    fs.make_folders("/store/plans/run=run")
    fs.put_if_absent("/store/plans/run=run/_manifest.json", data)
    with pytest.raises(CorruptError, match=r"manifest\.json"):
        read_manifest(fs, "/store", "run")
