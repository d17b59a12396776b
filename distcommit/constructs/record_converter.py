"""Base class of custom converters of single records. They are slower than converters of Arrow batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from distcommit.core.error_handling.foreign_errors import foreign_errors
from distcommit.core.errors import ConfigurationError, DistcommitError, RecordError, error_text
from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.work_units import WorkUnit

Record = dict[str, Any]


class RecordConverter(Converter):
    """A converter of single records as dicts."""

    makes_several: ClassVar[bool] = True

    @abstractmethod
    def convert_schema(self, schema: pa.Schema, unit: WorkUnit | None) -> pa.Schema | None:
        """Return the result's schema; None only if `unit` is None."""

    @abstractmethod
    def convert_record(
        self, output_schema: pa.Schema, record: Record, unit: WorkUnit
    ) -> Record | Iterable[Record] | None:
        """Convert a record to one record, to several, or to None, which filters it.

        A missing field is null. A field that is not in the schema, or a null in a field that is not nullable, rejects
        the record.

        Args:
            output_schema: the result of `convert_schema`.

        Raises:
            RecordError, ValueError: with the rejection reason. Any other error that is not a DistcommitError also
                rejects the record; its type precedes its text in the reason.
        """

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        if output_schema is None:
            raise ConfigurationError(
                "a construct breaks its contract",
                id="CONSTRUCT_CONTRACT_BROKEN",
                construct=type(self).__name__,
                expected="convert_schema returns a schema for a work unit",
                found="None",
                todo="return a schema, or derive from Converter",
            )
        records, converted = _records(batch), list[Record]()
        rows: list[int] = []
        rejected: dict[int, str] = {}
        for row in range(batch.num_rows):
            try:
                (record,) = batch.slice(row, 1).to_pylist() if records is None else (records[row],)
                with foreign_errors():
                    new = self._converted(output_schema, record, unit)
            except (RecordError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                rejected[row] = str(error)
                continue
            except DistcommitError:
                raise
            except Exception as error:  # noqa: BLE001 - a custom class may raise anything; it belongs to the record
                rejected[row] = error_text(error)
                continue
            converted += new
            rows += [row] * len(new)
        yield Converted(pa.RecordBatch.from_pylist(converted, output_schema), pa.array(rows, pa.int64()), rejected)

    def _converted(self, schema: pa.Schema, record: Record, unit: WorkUnit) -> list[Record]:
        result = self.convert_record(schema, record, unit)
        new = [] if result is None else [result] if isinstance(result, dict) else list(result)
        pa.RecordBatch.from_pylist(new, schema=schema)
        if reasons := "; ".join(misfit for converted in new for misfit in _misfits(converted, schema, "")):
            raise ValueError(reasons)
        return new


def _records(batch: pa.RecordBatch) -> list[Record] | None:
    try:
        return list(batch.to_pylist())
    except (OverflowError, ValueError):
        return None


def _misfits(record: Mapping[str, Any], fields: Iterable[pa.Field], path: str) -> Iterator[str]:
    """Yield a reason for each value that Arrow would silently drop, or accept although the schema forbids it."""
    of_name = {field.name: field for field in fields}
    yield from (f"{path}{name} is not in the converter's schema" for name in record if name not in of_name)
    for name, field in of_name.items():
        yield from _misfit(record.get(name), field, f"{path}{name}")


def _misfit(value: Any, field: pa.Field, path: str) -> Iterator[str]:
    kind, of = field.type, pa.types
    if value is None:
        if not field.nullable:
            yield f"{path} must not be null or missing"
    elif of.is_struct(kind) and isinstance(value, Mapping):
        yield from _misfits(value, kind, f"{path}.")
    elif of.is_map(kind):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            yield from _misfit(item, kind.item_field, f"{path}.{key}")
    elif of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        for item in value:
            yield from _misfit(item, kind.value_field, f"{path}[]")
