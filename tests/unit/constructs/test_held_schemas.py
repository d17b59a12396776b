"""The converter `schema`: which columns it takes beside those before under each policy, and what two go by who read at
once."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from distcommit.app.job_file.built_in import validated
from distcommit.constructs.converters.schema import SchemaConverter
from distcommit.constructs.schemas.columns import Columns
from distcommit.core.errors import CorruptError, RecordError
from tests.unit.constructs.json.test_inferred_json import Kept

FIRST = {"id": pa.int32(), "name": pa.string()}
WIDER = {"id": pa.int64(), "name": pa.string(), "new": pa.bool_()}
FEWER = {"id": pa.int32()}
OTHER = {"id": pa.string(), "name": pa.string()}
Written = Mapping[str, pa.DataType]


def converter(kept: Kept | None = None, known: Sequence[int] = (), urn: str = "a", **settings: Any) -> SchemaConverter:
    made = validated("converter", {"type": "schema", **settings})
    assert isinstance(made, SchemaConverter)
    made = SchemaConverter.model_validate(pickle.loads(pickle.dumps(made)))
    made.begin_work_unit(urn)
    if kept is not None:
        made.use_schema_store(kept)
    made.load_schema_ids(known)
    return made


def batch(of: Written) -> pa.RecordBatch:
    values = {pa.int32(): 1, pa.int64(): 2**40, pa.string(): "x", pa.bool_(): True}
    return pa.record_batch({name: pa.array([values[kind], None], kind) for name, kind in of.items()})


def convert(made: SchemaConverter, of: Written) -> pa.RecordBatch | str:
    """What comes of two records, or why both are turned away."""
    (found,) = made.convert(batch(of))
    if found.rejected:
        assert (set(found.rejected), found.records.num_rows) == ({0, 1}, 0)
        return found.rejected[0]
    return found.records


@pytest.mark.parametrize(
    ("columns", "taken", "told"),
    [
        ([FIRST, FIRST], [True, True], ""),
        ([FIRST, dict(reversed(FIRST.items()))], [True, True], ""),
        ([FIRST, WIDER, FIRST, FEWER], [True, True, True, True], ""),
        ([FIRST, OTHER, WIDER], [True, False, True], "id is string here, and int32 before"),
        ([WIDER, {"id": pa.int64(), "new": pa.string()}], [True, False], "new is string here, and bool before"),
        ([FEWER, WIDER, {"new": pa.string()}], [True, True, False], "new is string here, and bool before"),
    ],
    ids=["the same", "in another order", "compatible ones", "another one", "another one of few", "of any before"],
)
def test_evolve_takes_what_is_compatible_as_it_comes(
    columns: Sequence[Written], taken: Sequence[bool], told: str
) -> None:
    made = converter(Kept())
    for written, goes in zip(columns, taken, strict=True):
        found = convert(made, written)
        assert found == batch(written) if goes else found == f"not compatible with earlier records: {told}"


def test_what_one_work_unit_has_met_others_of_the_run_and_later_runs_go_by() -> None:
    kept = Kept()
    one, two = converter(kept), converter(kept)
    assert convert(one, FIRST) == batch(FIRST)
    assert "id is string here, and int32 before" in convert(two, OTHER)
    assert convert(two, WIDER) == batch(WIDER)
    assert convert(one, FIRST) == batch(FIRST)
    assert (one.known_schema_ids(), two.known_schema_ids()) == ((1,), (1, 2))
    later = converter(kept, known=(1, 2))
    assert "id is string here, and int64 before" in convert(later, OTHER)
    assert convert(later, FEWER) == batch(FEWER)
    assert later.known_schema_ids() == (1, 2)
    assert len(kept.put) == 2
    assert kept.put[2]["columns"] == {"id": "int64", "name": "string", "new": "bool"}


def test_pin_makes_the_columns_of_those_before() -> None:
    kept = Kept()
    convert(converter(kept), FIRST)
    pinned = converter(kept, known=(1,), evolution="pin")
    found = convert(pinned, FEWER)
    assert isinstance(found, pa.RecordBatch)
    assert found.to_pydict() == {"id": [1, None], "name": [None, None]}
    assert found.schema == batch(FIRST).schema
    found = convert(pinned, {"more": pa.bool_(), "name": pa.string(), "id": pa.int32()})
    assert found == batch(FIRST)
    assert convert(pinned, WIDER) == "can't be read with the pinned columns: id is int64 here, and int32 before"
    assert pinned.known_schema_ids() == (1,)
    wide = converter(Kept(), evolution="pin")
    convert(wide, WIDER)
    found = convert(wide, FIRST)
    assert isinstance(found, pa.RecordBatch)
    assert found["id"].to_pylist() == [1, None]
    assert found.schema == batch(WIDER).schema
    strict = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    made = converter(Kept(), evolution="pin")
    list(made.convert(pa.record_batch([pa.array([1], pa.int32())], schema=strict)))
    assert "id is missing, and is not nullable" in convert(made, {"name": pa.string()})


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (WIDER, "found new is new; id is int64 here, and int32 before"),
        (FEWER, "found name is missing"),
        (OTHER, "found id is string here, and int32 before"),
    ],
)
def test_fail_fails_the_work_unit_at_any_other(written: Written, told: str) -> None:
    kept = Kept()
    convert(converter(kept, evolution="fail"), FIRST)
    with pytest.raises(RecordError, match=f"evolution is fail.*expected columns id, name; {told}"):
        convert(converter(kept, evolution="fail"), written)
    assert convert(converter(kept, known=(1,), evolution="fail"), FIRST) == batch(FIRST)
    assert len(kept.put) == 1


def test_what_is_not_compatible_fails_the_work_unit_or_is_let_in() -> None:
    kept = Kept()
    convert(converter(kept), FIRST)
    with pytest.raises(RecordError, match=r"on_incompatible is fail.*id is string here, and int32 before"):
        convert(converter(kept, known=(1,), on_incompatible="fail"), OTHER)
    letting = converter(kept, known=(1,), on_incompatible="accept")
    assert convert(letting, OTHER) == batch(OTHER)
    assert letting.known_schema_ids() == (1, 2)
    assert "id is int32 here, and string before" in convert(converter(kept, known=(1, 2)), FIRST)


def test_datasets_have_policies_of_their_own() -> None:
    own = [{"match": "b*", "evolution": "fail"}, {"match": "c", "on_incompatible": "accept"}]
    for urn, fails in {"a": False, "b1": True, "c": False}.items():
        made = converter(Kept(), urn=urn, datasets=own)
        convert(made, FIRST)
        if fails:
            with pytest.raises(RecordError):
                convert(made, WIDER)
        else:
            assert convert(made, WIDER) == batch(WIDER)
    with pytest.raises(ValidationError, match="on_incompatible must not be set with evolution"):
        SchemaConverter.model_validate({"type": "schema", "evolution": "pin", "on_incompatible": "accept"})


def test_columns_are_known_before_records_come_but_for_those_that_are_pinned() -> None:
    columns = Columns.of(batch(FIRST).schema)
    assert converter().convert_columns(columns) == columns
    assert converter(evolution="fail").convert_columns(Columns()) == Columns()
    assert converter(evolution="pin").convert_columns(columns) == Columns()
    assert converter(datasets=[{"match": "x", "evolution": "pin"}]).convert_columns(columns) == Columns()


@pytest.mark.parametrize("damaged", [{}, {"arrow": "%"}, {"arrow": "AAAA"}, {"arrow": 7}])
def test_what_is_kept_and_damaged_is_told(damaged: Mapping[str, Any]) -> None:
    with pytest.raises(CorruptError, match="can't be read"):
        convert(converter(Kept({1: damaged}), known=(1,)), FIRST)
