"""Restoring of the source order after grouping by schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from distcommit.pipeline.branches.traced_batch import TracedBatch


def ascending(traced: TracedBatch) -> TracedBatch:
    if traced.rows is None or (traced.rows[1:] >= traced.rows[:-1]).all():
        return traced
    order = np.argsort(traced.rows, kind="stable")
    return TracedBatch(traced.records.take(pa.array(order)), traced.rows[order])


def by_first_row(batches: Iterable[TracedBatch]) -> list[TracedBatch]:
    return sorted((traced for traced in batches if traced.records.num_rows), key=_first)


def merged_by_schema(batches: Sequence[TracedBatch], *, with_metadata: bool = True) -> list[TracedBatch]:
    """Return one piece for each schema, in the order of first occurrence, with ascending rows.

    Args:
        with_metadata: whether schema metadata separates pieces; field metadata always does.
    """
    groups: list[tuple[pa.Schema, list[TracedBatch]]] = []
    for traced in batches:
        schema = traced.records.schema if with_metadata else traced.records.schema.remove_metadata()
        group = next((same for other, same in groups if other.equals(schema, check_metadata=True)), None)
        if group is None:
            groups.append((schema, [traced]))
        else:
            group.append(traced)
    return [_merged(group) for _, group in groups] if len(groups) < len(batches) else list(batches)


def in_source_order(batches: Sequence[TracedBatch]) -> list[TracedBatch]:
    """Split pieces into runs in source order. Records of one row keep the order of their pieces."""
    return [batches[number].slice(begin, length) for number, begin, length in runs_of(batches)]


def runs_of(batches: Sequence[TracedBatch]) -> list[tuple[int, int, int]]:
    """Return runs in source order: number of the piece, first record, and length."""
    if len(batches) < 2:
        return [(number, 0, traced.records.num_rows) for number, traced in enumerate(batches)]
    rows = np.concatenate([traced.origin_rows() for traced in batches])
    lengths = [traced.records.num_rows for traced in batches]
    of = np.repeat(np.arange(len(batches)), lengths)[np.argsort(rows, kind="stable")]
    if not len(of):
        return []
    ends = np.append(np.flatnonzero(of[1:] != of[:-1]) + 1, len(of))
    selected = [0] * len(batches)
    runs = []
    for number, length in zip(of[ends - 1].tolist(), np.diff(ends, prepend=0).tolist(), strict=True):
        runs.append((number, selected[number], length))
        selected[number] += length
    return runs


def _first(traced: TracedBatch) -> int:
    return 0 if traced.rows is None else int(traced.rows[0])


def _merged(group: Sequence[TracedBatch]) -> TracedBatch:
    if len(group) == 1:
        return group[0]
    schema = group[0].records.schema
    records = [traced.records.replace_schema_metadata(schema.metadata) for traced in group]
    rows = np.concatenate([traced.origin_rows() for traced in group])
    return ascending(TracedBatch(pa.concat_batches(records), rows))
