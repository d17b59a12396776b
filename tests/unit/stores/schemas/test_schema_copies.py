"""Stored schemas of a dataset are copied to its new name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import MOST_SCHEMAS, SchemaIds
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.protocol.dataset_renaming import renamed
from distcommit.stores.schemas.schema_copies import plan_copies, put_copies
from distcommit.stores.schemas.schema_store import SchemaStore
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from tests.simulation.programs.rebucket import renames

MOVED_AT = 9


def store_in(folder: Path) -> JobStore:
    roots = Roots(*(str(folder / name) for name in ("store", "staging", "output")))
    return open_store(LocalFileSystem(durable=False), roots, "job", 1, create=True)


def put(store: JobStore, epoch: int, urn: str, schema: Mapping[str, Any], converter: str = "json") -> int:
    return SchemaStore(store.fs, store.roots.store, epoch).of(urn, converter).put_next(epoch * 1000 - 1, schema)[0]


def state(urn: str, partitions: Iterable[str], schemas: SchemaIds) -> DatasetState:
    return DatasetState(urn, watermark=Watermark(dict.fromkeys(partitions, 5)), schemas=schemas)


def moved(store: JobStore, kind: str, *before: DatasetState) -> dict[str, SchemaIds]:
    named_now = renames(kind).current_names
    assert named_now is not None
    return put_copies(store, plan_copies(store, before, renamed(before, named_now), named_now, MOVED_AT))


def stored_schema(store: JobStore, urn: str, number: int) -> Mapping[str, Any]:
    return SchemaStore(store.fs, store.roots.store, 10).of(urn, "json").schema(number)


def test_partitions_get_the_schemas_of_their_topic_and_keep_their_earlier_ones(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, 2, "t@0", {"old": "bool"})
    put(store, 4, "t", {"a": "int64"})
    put(store, 5, "t", {"a": "int64", "b": "bool"})
    copied = moved(store, "partition", state("t", "01", {"json": (4000, 5000)}), state("t@0", "0", {"json": (2000,)}))
    assert copied == {"t@0": {"json": (2000, 9000, 9001)}, "t@1": {"json": (9000, 9001)}}
    assert stored_schema(store, "t@0", 2000) == {"old": "bool"}
    for urn in copied:
        assert [stored_schema(store, urn, number) for number in (9000, 9001)] == [
            {"a": "int64"},
            {"a": "int64", "b": "bool"},
        ]
    assert stored_schema(store, "t", 5000) == {"a": "int64", "b": "bool"}, "the topic must keep its schema"


def test_partitions_that_become_one_topic_keep_each_schema_once_with_the_newest_last(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, 2, "t@0", {"a": "int64"})
    put(store, 2, "t@1", {"b": "int64"})
    put(store, 3, "t@0", {"c": "int64"})
    put(store, 4, "t@1", {"a": "int64"})
    before = [state("t@0", "0", {"json": (2000, 3000)}), state("t@1", "1", {"json": (2000, 4000)})]
    assert moved(store, "topic", *before) == {"t": {"json": (9000, 9001, 9002)}}
    in_order = [{"b": "int64"}, {"c": "int64"}, {"a": "int64"}]
    assert [stored_schema(store, "t", number) for number in (9000, 9001, 9002)] == in_order
    assert moved(store, "topic", *before) == {"t": {"json": (9000, 9001, 9002)}}, (
        "a repeated command must give the same result"
    )


def test_registry_ids_are_not_changed_by_a_copy(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, 2, "t", {"id": 2000}, "avro")
    put(store, 2, "t", {"id": "int64"})
    before = state("t", "0", {"avro": (7, 2000), "json": (2000,)})
    assert moved(store, "partition", before) == {"t@0": {"avro": (7, 2000), "json": (9000,)}}
    assert stored_schema(store, "t@0", 9000) == {"id": "int64"}


def test_only_the_newest_hundred_schemas_are_copied(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    urns = [f"t@{number}" for number in range(MOST_SCHEMAS + 1)]
    for number, urn in enumerate(urns):
        put(store, 2, urn, {f"c{number:03}": "bool"})
    before = [state(urn, [urn[2:]], {"json": (2000,)}) for urn in urns]
    (ids,) = (converters["json"] for converters in moved(store, "topic", *before).values())
    assert ids == tuple(range(9000, 9000 + MOST_SCHEMAS))
    assert stored_schema(store, "t", ids[-1]) == {"c099": "bool"}, "schemas of one run must be ordered by dataset name"


def test_missing_newest_schema_raises_corrupt_error_and_copies_nothing(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, 2, "t", {"a": "int64"})
    with pytest.raises(CorruptError, match=r"are lost.*000000003000\.json.*repeat the command"):
        moved(store, "partition", state("t", "0", {"json": (2000, 3000)}))
    assert not (tmp_path / "store" / "schemas" / "t@0").exists()


def test_different_schema_at_the_target_raises_corrupt_error(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    put(store, 2, "t", {"a": "int64"})
    put(store, MOVED_AT, "t@0", {"z": "int64"})
    with pytest.raises(CorruptError, match=r"cannot be copied.*000000009000\.json"):
        moved(store, "partition", state("t", "0", {"json": (2000,)}))
