"""Each schema policy applied to a changed schema, one dataset after the other; the registry is a few dicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from distcommit.app.job_file.built_in_types import validated
from distcommit.constructs.registry.registry_client import RegisteredSchema, UnknownSchemaError
from distcommit.constructs.registry.registry_converter import SCHEMA_ID, RegistryConverter
from distcommit.core.errors import ConfigurationError, RecordError
from distcommit.schemas.known_columns import Columns
from distcommit.schemas.schema_size_limits import MOST_LEVELS
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of
from tests.unit.avro.test_avro_datums import datum, record
from tests.unit.engine.driver.machines import Machine
from tests.unit.stores.schemas.test_schema_store import schemas

NOTE = {"name": "note", "type": ["null", "string"], "default": None}
SCHEMAS = {
    1: record(("x", "int")),
    2: {**record(("x", "long")), "fields": [{"name": "x", "type": "long"}, NOTE]},
    3: record(("x", "string")),
    4: record(("x", "string"), ("y", "int")),
    5: record(("x", "double")),
    6: record(("lines", {"type": "array", "items": {**record(("sku", "string")), "name": "L"}})),
    7: record(("lines", {"type": "array", "items": {**record(("sku", "string"), ("count", "int")), "name": "L"}})),
}
"""These pairs are compatible: 1 and 2, 3 and 4, 1 and 5, 6 and 7. All other pairs of these ids are not."""
VALUES = {
    1: {"x": 1},
    2: {"x": 2, "note": "n"},
    3: {"x": "3"},
    4: {"x": "4", "y": 4},
    5: {"x": 5.5},
    6: {"lines": [{"sku": "a"}]},
    7: {"lines": [{"sku": "a", "count": 2}]},
}


@dataclass
class Dicts:
    """A schema registry in memory."""

    schemas: dict[int, Any] = field(default_factory=lambda: dict(SCHEMAS))
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[object] = field(default_factory=list)

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise UnknownSchemaError(f"no {schema_id}")
        return RegisteredSchema(schema_id, "AVRO", json.dumps(self.schemas[schema_id]), ())

    def version(self, subject: str, version: int) -> RegisteredSchema:
        self.asked.append((subject, version))
        if subject not in self.subjects:
            raise UnknownSchemaError(f"no {subject}")
        return self.schema(self.subjects[subject][version - 1])

    def latest(self, subject: str) -> RegisteredSchema:
        return self.version(subject, 0)

    def close(self) -> None:
        pass


def converter(registry: Dicts | None = None, **settings: Any) -> RegistryConverter:
    instance = validated("converter", {"type": "avro", "registry": {"url": "http://127.0.0.1:1"}, **settings})
    assert isinstance(instance, RegistryConverter)
    instance._state.registry = registry or Dicts()  # type: ignore[assignment]
    return instance


def message(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + datum(SCHEMAS[schema_id], VALUES[schema_id])


def batch_of(values: Sequence[bytes | None]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary()), "offset": list(range(len(values)))})


def work_unit(
    instance: RegistryConverter, *batches: Sequence[int | None], urn: str = "orders", known: Sequence[int] = ()
) -> tuple[list[int], list[tuple[int, ...]]]:
    """Read records of these schema ids. Return the schema of each record read, and the rejected rows of each batch."""
    instance.begin_work_unit(unit_of(urn))
    instance.load_schema_ids(known)
    came: list[int] = []
    rejected: list[tuple[int, ...]] = []
    for ids in batches:
        batch = batch_of([message(i) if i else None for i in ids])
        pieces = list(convert_batch(instance, batch))
        came += [int((p.records.schema.metadata or {}).get(SCHEMA_ID, b"0")) for p in pieces if p.records.num_rows]
        rejected.append(tuple(sorted(row for piece in pieces for row in piece.rejected)))
    return came, rejected


@pytest.mark.parametrize(
    ("known", "batches", "came", "rejected", "after"),
    [
        ((), [(1, 2), (1,)], [1, 2, 1], [(), ()], (1, 2)),
        ((2,), [(1,)], [1], [()], (2, 1)),
        ((1,), [(1, 3, 2)], [1, 2], [(1,)], (1, 2)),
        ((1,), [(3,), (4,), (1,)], [1], [(0,), (0,), ()], (1,)),
        ((), [(3,), (1,), (4,)], [3, 4], [(), (0,), ()], (3, 4)),
        ((1, 2), [(5,)], [], [(0,)], (1, 2)),
        ((1,), [(5,), (2,)], [5], [(), (0,)], (1, 5)),
        ((1, 3), [(1,), (4,), (2,)], [1, 4], [(), (), (0,)], (1, 3, 4)),
        ((3, 1), [(4,), (2,)], [2], [(0,), ()], (3, 1, 2)),
        ((3, 99), [(4,), (1,)], [4], [(), (0,)], (3, 99, 4)),
        ((99,), [(1,)], [1], [()], (99, 1)),
        ((6,), [(7, 6)], [7, 6], [()], (6, 7)),
        ((7,), [(6,)], [6], [()], (7, 6)),
    ],
    ids=[
        "the first is taken, and what is compatible with it",
        "an older one beside a newer one",
        "an incompatible one among others",
        "and by itself, and what is compatible with that alone",
        "whichever came first",
        "what was widened one way can't be another way",
        "nor the other way round",
        "of two that a person has let in the newer decides, and the older goes on",
        "and that is by which came last",
        "one that the registry has lost is passed over",
        "also if it is the only one",
        "a plain field that is new within others",
        "and one that is not there",
    ],
)
def test_evolve_accepts_schemas_compatible_with_the_published_ones(
    known: Sequence[int],
    batches: Sequence[Sequence[int]],
    came: list[int],
    rejected: list[tuple[int, ...]],
    after: tuple[int, ...],
) -> None:
    instance = converter()
    assert work_unit(instance, *batches, known=known) == (came, rejected)
    assert instance.schema_ids() == after


def test_rejection_reason_names_both_schemas_and_the_columns() -> None:
    instance = converter()
    instance.load_schema_ids([1])
    (piece,) = convert_batch(instance, batch_of([message(4)]))
    assert piece.rejected == {
        0: "schema id 4 is not compatible with earlier records: x is string here, and int32 before"
    }


@pytest.mark.parametrize("policy", [{}, {"on_incompatible": "accept"}])
def test_schema_nested_too_deep_for_files_rejects_its_records(policy: dict[str, Any]) -> None:
    kind: Any = "int"
    for _ in range(MOST_LEVELS // 2 + 1):
        kind = {"type": "array", "items": kind}
    instance = converter(Dicts({**SCHEMAS, 9: record(("deep", kind))}), **policy)
    (piece,) = convert_batch(instance, batch_of([message(1), b"\0" + (9).to_bytes(4, "big") + b"\0"]))
    assert piece.records.num_rows == 1
    assert piece.rejected == {1: "schema id 9: field deep has more than 96 levels, more than files can store"}


def test_known_schema_is_not_requested_again() -> None:
    registry = Dicts()
    instance = converter(registry)
    work_unit(instance, (1, 1), (1,), known=(3, 2, 1))
    assert registry.asked == [1]


def test_on_incompatible_accept_accepts_and_fail_fails() -> None:
    instance = converter(on_incompatible="accept")
    assert work_unit(instance, (1, 3), known=(1,)) == ([1, 3], [()])
    assert instance.schema_ids() == (1, 3)
    with pytest.raises(RecordError, match=r"on_incompatible is fail.*compatible with schema id 1.*id 3: x is string"):
        work_unit(converter(on_incompatible="fail"), (1, 3), known=(1,))


def test_evolution_fail_allows_only_the_pinned_schema_or_the_earlier_ones() -> None:
    instance = converter(evolution="fail")
    assert work_unit(instance, (1,), (1,)) == ([1, 1], [(), ()])
    assert instance.schema_ids() == (1,)
    assert work_unit(instance, (1, 2), known=(1, 2)) == ([1, 2], [()])
    with pytest.raises(RecordError, match=r"evolution is fail.*expected schema id 1; found schema id 2"):
        work_unit(instance, (2,), known=(1,))
    pinned = converter(Dicts(subjects={"s": [2]}), evolution="fail", schema={"subject": "s", "version": 1})
    assert work_unit(pinned, (2,), known=(1,)) == ([2], [()])
    with pytest.raises(RecordError, match="expected schema id 2; found schema id 1"):
        work_unit(pinned, (1,), known=(1, 2))


def test_pin_reads_each_topic_by_its_own_pinned_schema() -> None:
    registry = Dicts(subjects={"orders-value": [2], "clicks-value": [3]})
    instance = converter(registry, evolution="pin", schema={"version": 1})
    assert instance.convert_schema(pa.schema([("value", pa.binary())]), None) is None, "each topic has its own"
    for _ in range(2):
        assert work_unit(instance, (1, 3), urn="orders@0") == ([1], [(1,)])
        assert instance.schema_ids() == (2,)
        assert work_unit(instance, (3, 1, None), urn="clicks") == ([3], [(1,)])
        assert instance.schema_ids() == (3,)
    assert registry.asked.count(("orders-value", 1)) == 1
    with pytest.raises(ConfigurationError, match="version 1 of subject none-value, of type AVRO"):
        work_unit(instance, (1,), urn="none")


@pytest.mark.parametrize(
    ("column", "schema", "asked"),
    [
        ("value", {}, "orders-value"),
        ("key", {}, "orders-key"),
        ("key", {"subject": "{topic}-ids"}, "orders-ids"),
        ("key", {"subject": "ids"}, "ids"),
    ],
)
def test_pinned_subject_belongs_to_the_column_that_is_read(column: str, schema: dict[str, Any], asked: str) -> None:
    registry = Dicts(subjects={asked: [2]})
    instance = converter(registry, evolution="pin", schema={"version": 1, **schema}, column=column)
    instance.begin_work_unit(unit_of("orders"))
    (piece,) = convert_batch(instance, batch_of([message(1)]).rename_columns([column, "offset"]))
    assert (piece.records["x"].to_pylist(), piece.rejected) == ([1], {})
    assert registry.asked[0] == (asked, 1)


def test_first_matching_dataset_rule_sets_the_policy() -> None:
    instance = converter(
        Dicts(subjects={"special": [2]}),
        datasets=[
            {"match": "orders-special", "evolution": "pin", "schema": {"subject": "special", "version": 1}},
            {"match": "orders-*", "evolution": "fail"},
            {"match": "clicks", "on_incompatible": "accept"},
        ],
    )
    assert work_unit(instance, (1,), urn="orders-special@3") == ([1], [()])
    assert instance.schema_ids() == (2,)
    with pytest.raises(RecordError, match="evolution is fail"):
        work_unit(instance, (2,), urn="orders-x", known=(1,))
    assert work_unit(instance, (1, 3), urn="clicks") == ([1, 3], [()])
    assert work_unit(instance, (1, 3), urn="others") == ([1], [(1,)])


def test_known_schemas_of_one_dataset_are_not_used_for_another() -> None:
    instance = converter()
    assert work_unit(instance, (1,), urn="a") == ([1], [()])
    assert work_unit(instance, (3,), urn="b") == ([3], [()])
    assert instance.schema_ids() == (3,)
    instance.begin_work_unit(unit_of("c"))
    assert instance.schema_ids() == ()


def test_leading_nulls_have_the_columns_of_the_published_schemas() -> None:
    registry = Dicts(subjects={"orders-value": [3]})
    instance = converter(registry)
    instance.begin_work_unit(unit_of("orders"))
    instance.load_schema_ids([1, 2])
    (piece,) = convert_batch(instance, batch_of([None]))
    assert piece.records.schema.names == ["offset", "x", "note"]
    assert registry.asked == [2]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"evolution": "pin"}, "schema must be set with evolution: pin"),
        ({"schema": {"version": 1}}, "schema must only be set with evolution: pin or fail"),
        ({"evolution": "fail", "on_incompatible": "accept"}, "on_incompatible must only be set with evolution: evolve"),
        ({"datasets": [{"evolution": "fail"}]}, "match"),
        ({"datasets": [{"match": "a", "evolution": "pin"}]}, "schema must be set with evolution: pin"),
        ({"datasets": [{"match": "", "evolution": "fail"}]}, "at least 1 character"),
    ],
)
def test_contradictory_settings_are_rejected(settings: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        converter(**settings)


def of_run(instance: RegistryConverter, machine: Machine, *ids: int, known: Sequence[int] = (), epoch: int = 7) -> None:
    """Read one batch of records of these schemas as a work unit of a run does."""
    instance.begin_work_unit(unit_of("orders"))
    instance.use_schema_store(schemas(machine, epoch).of("orders", "avro"))
    instance.load_schema_ids(known)
    pieces = list(convert_batch(instance, batch_of([message(i) for i in ids])))
    rejected = {row for piece in pieces for row in piece.rejected}
    assert rejected == {row for row, i in enumerate(ids) if i not in instance.schema_ids()}


def test_work_units_of_one_run_compare_their_schemas_with_each_other() -> None:
    machine = Machine()
    one, two, three = converter(), converter(), converter()
    of_run(one, machine, 1)
    of_run(two, machine, 3, 2)
    of_run(three, machine, 5, 4)
    assert (one.schema_ids(), two.schema_ids(), three.schema_ids()) == ((1,), (2,), ())
    with pytest.raises(RecordError, match=r"compatible with schema id 1; found schema id 3: x is string"):
        of_run(converter(on_incompatible="fail"), machine, 3)
    of_run(converter(on_incompatible="accept"), machine, 3)
    of_run(three, machine, 3, epoch=8)
    assert three.schema_ids() == (3,), "unpublished schemas of another run are ignored"


def test_work_units_of_one_run_compare_schemas_in_any_order_and_with_published_ones() -> None:
    machine = Machine()
    one, two = converter(), converter()
    for instance in (one, two):
        instance.begin_work_unit(unit_of("orders"))
        instance.use_schema_store(schemas(machine, 7).of("orders", "avro"))
        instance.load_schema_ids([1])
    assert not [piece.rejected for piece in convert_batch(two, batch_of([message(2)])) if piece.rejected]
    assert next(iter(convert_batch(one, batch_of([message(5)])))).rejected == {
        0: "schema id 5 is not compatible with earlier records: x is double here, and int64 before"
    }
    assert (one.schema_ids(), two.schema_ids()) == ((1,), (1, 2))


def test_evolution_fail_without_a_pinned_schema_allows_the_first_schema_of_the_run() -> None:
    machine = Machine()
    of_run(converter(evolution="fail"), machine, 1)
    of_run(converter(evolution="fail"), machine, 1)
    with pytest.raises(RecordError, match=r"evolution is fail.*expected schema id 1; found schema id 2"):
        of_run(converter(evolution="fail"), machine, 2)


def test_published_schemas_are_not_stored_again() -> None:
    machine = Machine()
    of_run(converter(), machine, 1, 2, known=(1, 2))
    of_run(converter(on_incompatible="accept"), machine, 1, 3)
    assert not machine.paths("/job/store/schemas")


def test_schema_that_another_work_unit_stored_is_not_stored_again() -> None:
    machine = Machine()
    of_run(converter(), machine, 1, 2)
    stored = machine.paths("/job/store/schemas")
    of_run(converter(), machine, 2, 1)
    assert stored
    assert machine.paths("/job/store/schemas") == stored


EMPTY = b"\0" + (9).to_bytes(4, "big")


@pytest.mark.parametrize(("keep_column", "columns"), [(False, ["offset"]), (True, ["value", "offset"])])
def test_messages_without_fields_are_rows_of_the_other_columns(keep_column: bool, columns: list[str]) -> None:
    instance = converter(Dicts({9: record()}), keep_column=keep_column)
    instance.begin_work_unit(unit_of("orders"))
    (piece,) = convert_batch(instance, batch_of([EMPTY, None, EMPTY]))
    assert (piece.records.schema.names, piece.records.num_rows, piece.rejected) == (columns, 3, {})
    assert piece.records.column("offset").to_pylist() == [0, 1, 2]


def test_messages_without_fields_or_other_columns_are_rejected_with_a_remedy() -> None:
    instance = converter(Dicts({9: record()}))
    instance.begin_work_unit(unit_of("orders"))
    with pytest.raises(ConfigurationError, match=r"no column would be left.*set the converter's keep_column: true"):
        list(convert_batch(instance, batch_of([EMPTY, EMPTY]).select(["value"])))


@pytest.mark.parametrize("pinned", [{}, {"evolution": "pin", "schema": {"version": 1}}])
def test_missing_client_is_found_before_a_run(monkeypatch: pytest.MonkeyPatch, pinned: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    columns = Columns.of(pa.schema([("value", pa.binary())]))
    with pytest.raises(ConfigurationError, match="the schema registry's client is not installed"):
        converter(**pinned).convert_columns(columns)
