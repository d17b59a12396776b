"""A work unit for tests of converters, and the calls that convert a batch of it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from distcommit.core.interfaces.constructs import Converted, Converter
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import WorkUnit


def unit_of(dataset_urn: str) -> WorkUnit:
    """Return a work unit of a dataset with one partition, from position 0 to position 100."""
    return WorkUnit("unit", dataset_urn, Watermark({"": 0}), Watermark({"": 100}), 100)


def convert_batch(converter: Converter, batch: pa.RecordBatch, unit: WorkUnit | None = None) -> Iterator[Converted]:
    """Convert a batch as a task does: with the schema that the converter declares for it, and a work unit.

    Args:
        unit: the work unit; None for one of the dataset `dataset`.
    """
    unit = unit or unit_of("dataset")
    return converter.convert(converter.convert_schema(batch.schema, unit), batch, unit)
