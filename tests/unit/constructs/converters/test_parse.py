"""The converter `parse`: text of other programs becomes typed values, or the record is rejected with its column."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from distcommit.constructs.converters.parse import Parse
from distcommit.constructs.text_type_inference import TextForms
from distcommit.core.errors import ConfigurationError, RecordError
from distcommit.core.interfaces.constructs import Converted
from distcommit.schemas.column_types import arrow_type
from distcommit.testing.fakes.convert_batch import convert_batch, unit_of

REJECTED = "rejected"
GERMAN = TextForms(",", ".", ("%d.%m.%Y", "%d.%m.%y"), ("%d.%m.%Y %H:%M",))


class Store:
    """A schema store of one dataset in memory."""

    def __init__(self) -> None:
        self.schemas: dict[int, Mapping[str, Any]] = {}

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return self.schemas[schema_id]

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, self.schemas.setdefault(after + 1, schema)


def converter(store: Store, ids: tuple[int, ...] = (), **settings: Any) -> Parse:
    parse = Parse.model_validate({"type": "parse", **settings})
    parse.begin_work_unit(unit_of("orders"))
    parse.use_schema_store(store)
    parse.load_schema_ids(ids)
    return parse


def converted(parse: Parse, **columns: list[str | None]) -> Converted:
    batch = pa.record_batch({name: pa.array(texts, pa.string()) for name, texts in columns.items()})
    (result,) = convert_batch(parse, batch)
    return result


@pytest.mark.parametrize(
    ("forms", "kind", "text", "value"),
    [
        (TextForms(), "int64", " 12 ", 12),
        (TextForms(), "int64", "", None),
        (TextForms(), "int64", "1.5", REJECTED),
        (TextForms(), "bool", "TRUE", True),
        (TextForms(), "bool", "yes", REJECTED),
        (TextForms(), "string", "", ""),
        (TextForms(), "string", " x ", " x "),
        (GERMAN, "float64", "1.234,5", 1234.5),
        (GERMAN, "float64", "1.23", REJECTED),
        (GERMAN, "decimal(8, 2)", "-1.234,50", Decimal("-1234.50")),
        (GERMAN, "int64", "1.234.567", 1234567),
        (GERMAN, "int64", "1.23.456", REJECTED),
        (TextForms(","), "float64", "1.5", REJECTED),
        (TextForms(","), "float64", "1,5", 1.5),
        (TextForms(), "float64", "1,5", REJECTED),
        (TextForms(".", ","), "float64", "1,234.5", 1234.5),
        (TextForms(), "date", "2024-02-29", date(2024, 2, 29)),
        (TextForms(), "date", "2023-02-29", REJECTED),
        (TextForms(), "date", "29.02.2024", REJECTED),
        (GERMAN, "date", "29.02.2024", date(2024, 2, 29)),
        (GERMAN, "date", "1.2.24", date(2024, 2, 1)),
        (GERMAN, "date", "31.02.2024", REJECTED),
        (GERMAN, "date", "2024-02-29", date(2024, 2, 29)),
        (GERMAN, "date", "", None),
        (TextForms(), "timestamp", "2024-02-29T12:00:00+01:00", datetime(2024, 2, 29, 11, tzinfo=UTC)),
        (TextForms(), "timestamp", "2024-02-29 12:00:00.5", datetime(2024, 2, 29, 12, 0, 0, 500_000, UTC)),
        (TextForms(), "timestamp", "2024-02-29", REJECTED),
        (GERMAN, "timestamp", "29.02.2024 23:59", datetime(2024, 2, 29, 23, 59, tzinfo=UTC)),
    ],
)
def test_text_is_parsed_by_its_form_or_rejected(forms: TextForms, kind: str, text: str, value: Any) -> None:
    column = pa.array([text, None])
    if value == REJECTED:
        with pytest.raises(pa.ArrowInvalid):
            forms.parse(column, arrow_type(kind))
    else:
        assert forms.parse(column, arrow_type(kind)).to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("forms", "texts", "kind"),
    [
        (TextForms(), ["1", "-20", "", None], "int64"),
        (TextForms(), ["1", "2.5"], "float64"),
        (TextForms(), ["9223372036854775808"], "decimal(38, 0)"),
        (TextForms(), ["0.1", "12345678901234567890"], "string"),
        (TextForms(), ["01234", "5"], "string"),
        (TextForms(), ["+4930123"], "string"),
        (TextForms(), ["true", "False"], "bool"),
        (TextForms(), ["2024-01-31"], "date"),
        (TextForms(), ["2024-01-31", "2024-01-31 10:00"], "string"),
        (TextForms(), ["2024-01-31T10:00:00Z", "2024-01-31 10:00"], "timestamp"),
        (TextForms(), ["1,5"], "string"),
        (TextForms(), ["", None], None),
        (TextForms(), ["a", "1"], "string"),
        (GERMAN, ["1.234,5", "3"], "float64"),
        (GERMAN, ["1.234"], "int64"),
        (GERMAN, ["31.01.2024"], "date"),
        (GERMAN, ["31.01.2024 10:00"], "timestamp"),
    ],
)
def test_type_is_inferred_from_all_values(forms: TextForms, texts: list[str | None], kind: str | None) -> None:
    assert forms.infer(pa.array(texts, pa.string())) == kind


def test_inferred_types_are_stored_and_later_values_that_do_not_fit_are_rejected() -> None:
    store = Store()
    first = converter(store)
    result = converted(first, n=["1", "2"], at=["2024-01-31", ""], empty=["", ""], _file=["1", "2"])
    assert result.records.to_pylist() == [
        {"n": 1, "at": date(2024, 1, 31), "_file": "1"},
        {"n": 2, "at": None, "_file": "2"},
    ]
    assert first.schema_ids() == (1,)
    later = converter(store, (1,))
    result = converted(later, at=["x", "2024-02-01"], n=["3", "4.5"], empty=["a", "b"])
    assert result.rejected.keys() == {0, 1}
    assert result.rejected[1].startswith("column 'n' as int64: ")
    assert store.schemas[2] == {"n": "int64", "at": "date", "empty": "string"}
    result = converted(later, n=["5"])
    assert result.records.to_pylist() == [{"n": 5, "at": None, "empty": None}]


def test_new_column_is_left_out_or_fails_as_configured() -> None:
    store = Store()
    converted(converter(store), n=["1"])
    assert converted(converter(store, (1,), evolution="pin"), n=["1"], m=["2"]).records.to_pylist() == [{"n": 1}]
    policy = {"evolution": "fail", "datasets": [{"match": "ord*", "evolution": "pin"}]}
    assert converted(converter(store, (1,), **policy), m=["2"]).records.to_pylist() == [{"n": None}]
    with pytest.raises(RecordError, match="'m'"):
        converted(converter(store, (1,), evolution="fail"), n=["1"], m=["2"])


def test_declared_columns_are_parsed_in_place_and_others_stay_text() -> None:
    result = converted(converter(Store(), columns={"n": "int64"}), t=["1", "2"], n=["3", "x"])
    assert result.records.to_pylist() == [{"t": "1", "n": 3}]
    assert "column 'n' as int64" in result.rejected[1]
    with pytest.raises(ConfigurationError, match="'n'"):
        converted(converter(Store(), columns={"n": "int64"}), t=["1"])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"thousands": "."}, "must differ from decimal"),
        ({"columns": {"a": "int64"}, "evolution": "pin"}, "inferred columns only"),
        ({"columns": {"a": ["int64"]}}, "must not be a list"),
        ({"decimal": ""}, "decimal"),
    ],
)
def test_inconsistent_parse_settings_are_rejected(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Parse.model_validate({"type": "parse", **settings})


@pytest.mark.parametrize(
    ("texts", "index"),
    [
        (["1", "2,5", "n/a"], 2),
        (["1", "n/a", "", None, "1.000,5"], 1),
        (["1", "2", "007", "+49"], None),
        (["1", "a"], None),
        (["1", "2"], None),
        (["", None], None),
    ],
)
def test_word_among_numbers_is_found_unless_most_values_are_words_or_codes(
    texts: list[str | None], index: int | None
) -> None:
    assert GERMAN.first_word(pa.array(texts, pa.string())) == index


def test_column_that_is_text_because_of_a_word_is_noted_once() -> None:
    store = Store()
    parse = converter(store)
    converted(parse, price=["1", "2", "n/a"], name=["a", "1", "b"])
    converted(parse, price=["3", "4", "none"])
    (note,) = parse.column_notes()
    assert note.startswith("column price is text, because 'n/a' is not a number, although most values are. ")
    again = converter(store, (1,))
    converted(again, price=["5", "6", "x"])
    assert not again.column_notes()
