"""Converters that take records one at a time, as dicts: for who prefers that to Arrow, at its price."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from distcommit.core.errors import DistcommitError, RecordError, error_text
from distcommit.core.foreign_errors import foreign_errors
from distcommit.core.interfaces.constructs import Converted, Converter

Record = dict[str, Any]


class RecordConverter(Converter):
    """A converter that is given one record at a time."""

    makes_several: ClassVar[bool] = True

    @abstractmethod
    def schema_of(self, schema: pa.Schema) -> pa.Schema:
        """The schema of what `convert_record` returns for records of that schema. Raises as `convert_schema`."""

    @abstractmethod
    def convert_record(self, record: Record) -> Record | Iterable[Record] | None:
        """What comes of a record: one, several, or None for nothing. A field that one does not have is null. A field
        that the schema does not have, or a null where it has none, turns the record away.

        Raises:
            RecordError, ValueError: with the reason for which it can't be converted. Any other error turns the record
                away as well, with its kind in front of its text.
        """

    def convert_schema(self, schema: pa.Schema) -> pa.Schema:
        return self.schema_of(schema)

    def convert(self, batch: pa.RecordBatch) -> Iterator[Converted]:
        schema, records = self.schema_of(batch.schema), _records(batch)
        made: list[Record] = []
        rows: list[int] = []
        rejected: dict[int, str] = {}
        for row in range(batch.num_rows):
            try:
                (record,) = batch.slice(row, 1).to_pylist() if records is None else (records[row],)
                with foreign_errors():
                    new = self._converted(record, schema)
            except (RecordError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                rejected[row] = str(error)
                continue
            except DistcommitError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the record
                rejected[row] = error_text(error)
                continue
            made += new
            rows += [row] * len(new)
        yield Converted(pa.RecordBatch.from_pylist(made, schema=schema), pa.array(rows, pa.int64()), rejected)

    def _converted(self, record: Record, schema: pa.Schema) -> list[Record]:
        found = self.convert_record(record)
        new = [] if found is None else [found] if isinstance(found, dict) else list(found)
        pa.RecordBatch.from_pylist(new, schema=schema)
        if why := "; ".join(each for one in new for each in _misfits(one, schema, "")):
            raise ValueError(why)
        return new


def _records(batch: pa.RecordBatch) -> list[Record] | None:
    """All records; None if Python does not hold a time of one of them."""
    try:
        return list(batch.to_pylist())
    except (OverflowError, ValueError):
        return None


def _misfits(record: Mapping[str, Any], fields: Iterable[pa.Field], path: str) -> Iterator[str]:
    """What of a record Arrow would leave out, or take though the schema does not allow it, at any depth."""
    of_name = {field.name: field for field in fields}
    yield from (f"{path}{name} is not in the schema of what is made" for name in record if name not in of_name)
    for name, field in of_name.items():
        yield from _misfit(record.get(name), field, f"{path}{name}")


def _misfit(value: Any, field: pa.Field, path: str) -> Iterator[str]:
    kind, of = field.type, pa.types
    if value is None:
        if not field.nullable:
            yield f"{path} is null or missing, and can't be"
    elif of.is_struct(kind) and isinstance(value, Mapping):
        yield from _misfits(value, kind, f"{path}.")
    elif of.is_map(kind):
        for key, item in value.items() if isinstance(value, Mapping) else value:
            yield from _misfit(item, kind.item_field, f"{path}.{key}")
    elif of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        for item in value:
            yield from _misfit(item, kind.value_field, f"{path}[]")
