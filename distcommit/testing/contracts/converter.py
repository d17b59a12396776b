"""Contract of converters, as a pytest class to subclass; see `testing.contracts`."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converter
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit

_BYTES = [
    b"",
    b"\xff\xfe",
    b"\0",
    b"{",
    b"null",
    b"{}{}",
    b'{"a": NaN}',
    b'{"a": 1, "a": "x"}',
    b"[" * 5000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b'{"a": "' + b"x" * 1_000_000 + b'"}',
]
_HOSTILE: dict[pa.DataType, list[Any]] = {
    pa.binary(): _BYTES,
    pa.string(): [value.decode("utf-8", "ignore") for value in _BYTES] + ["\U0001f600", "\u202e", "'; --", "NaN"],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.float64(): [float("nan"), float("inf"), float("-inf"), -0.0, 1e308, 5e-324],
    pa.bool_(): [True, False],
    pa.date32(): [date.min, date.max],
    pa.timestamp("us", "UTC"): [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)],
}


class ConverterContract(ABC):
    """Contract of converters: a converter keeps its announced schema, converts each record independently, and rejects
    bad records without raising.

    class TestMyConverter(ConverterContract):
        def make_converter(self):
            return MyConverter()

        def make_batch(self):                       # 3 or more convertible records of several kinds
            return pa.record_batch({"value": [b"1", None, b"3"]})
    """

    varying: Sequence[str] = ()
    """Output columns whose values differ on each call, such as a time."""
    unit: WorkUnit = WorkUnit("unit", "dataset", Watermark({"": 0}), Watermark({"": 100}), 100)
    """The work unit that the converter receives."""

    @abstractmethod
    def make_converter(self) -> Converter:
        """Return the converter."""

    @abstractmethod
    def make_batch(self) -> pa.RecordBatch:
        """Return three or more convertible records, including nulls and records that become none or several."""

    # -- helpers

    def converter(self) -> Converter:
        """Return the converter as an executor receives it, after pickling."""
        sent: Converter = pickle.loads(pickle.dumps(self.make_converter()))
        return sent

    def converted(self, converter: Converter, batch: pa.RecordBatch) -> tuple[list[tuple[int, Any]], dict[int, str]]:
        """Convert a batch and check the results. Return the rows with their records, in order of rows, and the
        rejections."""
        announced = converter.convert_schema(batch.schema, self.unit)
        checked = converter.convert_schema(batch.schema, None)
        assert checked is None or checked.equals(announced), f"{checked} without a work unit, {announced} with it"
        results: list[tuple[int, Any]] = []
        rejected: dict[int, str] = {}
        for chunk in converter.convert(announced, batch, self.unit):
            chunk.records.validate(full=True)
            if announced is not None:
                assert chunk.records.schema.equals(announced), f"announced {announced}, got {chunk.records.schema}"
            rows = list(range(batch.num_rows)) if chunk.rows is None else chunk.rows.to_pylist()
            assert len(rows) == chunk.records.num_rows, "one row for each record"
            assert all(isinstance(row, int) and 0 <= row < batch.num_rows for row in rows)
            assert all(isinstance(row, int) and 0 <= row < batch.num_rows for row in chunk.rejected)
            assert all(isinstance(cause, str) and cause for cause in chunk.rejected.values()), (
                "rejected without a reason"
            )
            rejected.update(chunk.rejected)
            for field in chunk.records.schema:
                assert field.nullable or not chunk.records.column(field.name).null_count, f"null in {field.name}"
            columns = [name for name in chunk.records.schema.names if name not in self.varying]
            results += zip(rows, chunk.records.select(columns).to_pylist(), strict=True)
        if not converter.makes_several:
            assert all(count == 1 for count in Counter(row for row, _ in results).values()), (
                "several records of one row"
            )
        good = [(row, record) for row, record in results if row not in rejected]
        return sorted(good, key=lambda pair: pair[0]), rejected

    def hostile_batch(self) -> pa.RecordBatch:
        """Return records of `make_batch`'s schema with extreme values."""
        schema = self.make_batch().schema
        columns = [_hostile(field, index) for index, field in enumerate(schema)]
        rows = max(len(column) for column in columns)
        filled = [(column * rows)[:rows] for column in columns]
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(filled, schema, strict=True)], schema=schema
        )

    # -- the tests

    def test_convertible_records_are_not_rejected(self) -> None:
        batch = self.make_batch()
        assert batch.num_rows >= 3
        results, rejected = self.converted(self.converter(), batch)
        assert results
        assert not rejected

    def test_empty_batch_gives_no_records(self) -> None:
        batch = self.make_batch()
        assert self.converted(self.converter(), batch.slice(0, 0)) == ([], {})

    def test_record_is_converted_independently_of_its_batch(self) -> None:
        """If the batch is a slice of a larger one, only the slice is converted."""
        for batch in (self.make_batch(), self.hostile_batch()):
            converter = self.converter()
            results, rejected = self.converted(converter, batch)
            alone, rejected_rows = [], []
            for row in range(batch.num_rows):
                records, reasons = self.converted(converter, batch.slice(row, 1))
                alone += [(row, record) for _, record in records]
                rejected_rows += [row] * len(reasons)
            assert repr(alone) == repr(results)  # NaN is not equal to itself
            assert rejected_rows == sorted(rejected)

    def test_hostile_values_are_converted_or_rejected_without_raising(self) -> None:
        batch = self.hostile_batch()
        before = batch.slice(0, batch.num_rows).to_pydict()
        self.converted(self.converter(), batch)
        assert repr(batch.to_pydict()) == repr(before), "the converter changed its input"

    def test_converter_can_be_pickled_after_use_and_used_after_close(self) -> None:
        batch, used = self.make_batch(), self.make_converter()
        first = self.converted(used, batch)
        sent = pickle.loads(pickle.dumps(used))
        for _ in range(2):
            used.close()
        assert repr(self.converted(sent, batch)) == repr(first)
        sent.close()
        assert repr(self.converted(used, batch)) == repr(first)

    def test_schema_without_columns_is_accepted_or_rejected_before_reading(self) -> None:
        try:
            self.converter().convert_schema(pa.schema([]), None)
        except ConfigurationError as error:
            assert error.found or error.expected  # noqa: PT017 - the schema may also be accepted


def _hostile(field: pa.Field, index: int) -> list[Any]:
    """Return allowed but unlikely values of the field's type, in another order for each column."""
    values = _values(field.type)
    turned = values[index % len(values) :] + values[: index % len(values)] if values else []
    return [*turned, None] if field.nullable else turned


def _values(kind: pa.DataType) -> list[Any]:
    if kind in _HOSTILE:
        return _HOSTILE[kind]
    if pa.types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return [most, -most, Decimal(0)]
    if pa.types.is_list(kind):
        return [[], [None], _values(kind.value_type)]
    if pa.types.is_map(kind):
        return [[], [("", None)], [("a", value) for value in _values(kind.item_type)]]
    if pa.types.is_struct(kind):
        longest = max(len(_values(f.type)) for f in kind)
        return [{}, *({f.name: (_values(f.type) * longest)[n] for f in kind} for n in range(longest))]
    return []
