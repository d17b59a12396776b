"""The converter `parse`: text columns, such as those of CSV, to typed columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import Field

from distcommit.constructs.bad_record_bisection import ConvertedPart, convert_or_bisect
from distcommit.constructs.calendar_times import display_text
from distcommit.constructs.converters.inferring_converter import InferringConverter
from distcommit.constructs.text_type_inference import TextForms
from distcommit.core.interfaces.constructs import Converted
from distcommit.core.support.settings_model import SettingError, rule
from distcommit.core.work_units import WorkUnit
from distcommit.schemas.column_types import ColumnType, arrow_type, written_name
from distcommit.schemas.known_columns import Columns, find_column, with_column_type
from distcommit.schemas.storable_types import is_text

_FILE, _ROW = "_file", "_row"
"""Columns of the source `files`: the file and the row number of each record."""


class Parse(InferringConverter):
    """Converter of text columns, such as those of CSV, to numbers, dates, times and booleans.

    Without `columns`, types are inferred from the first batch of a dataset: `bool`, `int64`, `decimal(38, 0)`,
    `float64`, `date`, `timestamp` or `string`. They are stored, and never change: all tasks of the run and later runs
    use them. Whole numbers with leading zeros or `+` are `string`. A column without values has no type yet, and is left
    out. A column that a file lacks is null. Columns whose names begin with `_` stay as they are.

    A record is rejected if a value does not fit its column's type. Empty text is null, except in columns of text.
    Dates are `YYYY-MM-DD` and timestamps ISO 8601, in UTC if they name no zone, unless formats are set.

    Attributes:
        columns: `{NAME: TYPE}` of the columns to parse; others stay text. Left out: all types are inferred.
        decimal: decimal point of numbers.
        thousands: separator of thousands in numbers; empty for none.
        dates: formats of dates, such as `%d.%m.%Y`, as for Python's `strptime`. The first that fits applies.
        timestamps: formats of timestamps, such as `%d.%m.%Y %H:%M`, by the same rules.
        evolution: the policy for a column that was not inferred before: it gets a type (`evolve`), is left out (`pin`),
            or fails the work unit (`fail`).
        datasets: the evolution of some datasets. It takes precedence over `evolution`.
    """

    type: Literal["parse"]
    columns: dict[str, ColumnType] | None = Field(default=None, min_length=1)
    decimal: str = Field(default=".", min_length=1, max_length=1)
    thousands: str = Field(default="", max_length=1)
    dates: tuple[str, ...] = ()
    timestamps: tuple[str, ...] = ()

    @rule
    def _has_consistent_forms(self) -> Iterator[SettingError]:
        if self.thousands == self.decimal:
            yield SettingError("must differ from decimal", "thousands")
        for name in sorted(self.model_fields_set & {"evolution", "datasets"}) if self.columns is not None else ():
            yield SettingError("must not be set with columns: it applies to inferred columns only", name)
        for name, written in (self.columns or {}).items():
            if pa.types.is_nested(arrow_type(written)):
                yield SettingError("must not be a list, a struct or a map", "columns", name)

    @property
    def _declared(self) -> Mapping[str, str] | None:
        return self.columns

    def convert_columns(self, columns: Columns) -> Columns:
        if self.columns is None:
            return Columns().with_fields(field for field in columns.fields if not _is_parsed(field))
        for name, written in self.columns.items():
            find_column(columns, name, "parse", is_text, "binary or string")
            columns = with_column_type(columns, name, arrow_type(written))
        return columns

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        schema = self._inferred_schema(batch) if output_schema is None else output_schema
        forms, names = TextForms(self.decimal, self.thousands, self.dates, self.timestamps), set(batch.schema.names)

        def parse(part: pa.RecordBatch) -> ConvertedPart:
            columns = [
                _parsed(forms, part.column(field.name), field)
                if field.name in names
                else pa.nulls(len(part), field.type)
                for field in schema
            ]
            return pa.RecordBatch.from_arrays(columns, schema=schema), None

        def describe(error: Exception, row: int) -> str:
            assert isinstance(error, _ParseError)
            return f"{error}: {display_text(batch.column(error.column), row)[:100]}"

        yield convert_or_bisect(batch, parse, schema, _ParseError, describe)

    def _inferred_schema(self, batch: pa.RecordBatch) -> pa.Schema:
        forms = TextForms(self.decimal, self.thousands, self.dates, self.timestamps)
        texts = {written_name(field.name): field.name for field in batch.schema if _is_parsed(field)}

        def infer(known: Mapping[str, object]) -> dict[str, str]:
            kinds = {
                written: forms.infer(batch.column(name)) for written, name in texts.items() if written not in known
            }
            return {written: kind for written, kind in kinds.items() if kind is not None}

        others = [field for field in batch.schema if not _is_parsed(field)]
        known = self._inferred.history.read_newest() or {}
        columns = self._inferred.columns_with(infer)
        new = [name for written, name in texts.items() if written not in known and name in columns.names]
        self._inferred.notes += _notes(batch, [name for name in new if is_text(columns.field(name).type)], forms)
        return pa.schema([*columns, *others])


def _notes(batch: pa.RecordBatch, texts: Sequence[str], forms: TextForms) -> Iterator[str]:
    for name in texts:
        row = forms.first_word(batch.column(name))
        if row is None:
            continue
        is_located = {_FILE, _ROW} <= {*batch.schema.names}
        where = f", record {batch[_ROW][row].as_py() + 1} of {batch[_FILE][row]}," if is_located else ""
        value = display_text(batch.column(name), row)[:60]
        yield (
            f"column {name} is text, because {value}{where} is not a number, although most values are. To read numbers,"
            " set `columns` of the converter parse, and list texts for missing values in source.nulls. If records were"
            " published as text, `distcommit check` then prints the command that publishes all of them again"
        )


def _is_parsed(field: pa.Field) -> bool:
    return is_text(field.type) and not field.name.startswith("_")


class _ParseError(Exception):
    """Error of a value that does not fit its column's type. `column` is the column's name."""

    def __init__(self, field: pa.Field, reason: object) -> None:
        super().__init__(f"column {field.name!r} as {field.type}: {reason}")
        self.column = field.name


def _parsed(forms: TextForms, column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return forms.parse(column, field.type)
    except pa.ArrowException as error:
        raise _ParseError(field, error) from None
