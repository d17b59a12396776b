"""Restore the source order of records that a construct has grouped by schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from distcommit.pipeline.branches.piece import Piece


def ascending(piece: Piece) -> Piece:
    """Return the piece sorted by row. The sort is stable."""
    if piece.rows is None or (piece.rows[1:] >= piece.rows[:-1]).all():
        return piece
    order = np.argsort(piece.rows, kind="stable")
    return Piece(piece.records.take(pa.array(order)), piece.rows[order])


def by_first_row(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the non-empty pieces, sorted by their first row."""
    return sorted((piece for piece in pieces if piece.records.num_rows), key=_first)


def merged_by_schema(pieces: Sequence[Piece], *, with_metadata: bool = True) -> list[Piece]:
    """Return one piece with ascending rows for each schema, in the order of their first pieces.

    Args:
        pieces: with ascending rows.
        with_metadata: whether schemas that differ only in schema metadata are kept apart. Field metadata always counts.
    """
    groups: list[tuple[pa.Schema, list[Piece]]] = []
    for piece in pieces:
        schema = piece.records.schema if with_metadata else piece.records.schema.remove_metadata()
        group = next((same for other, same in groups if other.equals(schema, check_metadata=True)), None)
        if group is None:
            groups.append((schema, [piece]))
        else:
            group.append(piece)
    return [_merged(group) for _, group in groups] if len(groups) < len(pieces) else list(pieces)


def in_source_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Split pieces with ascending rows into runs, so that all records are in source order.

    Records of one row keep the order of their pieces.
    """
    return [pieces[number].slice(begin, length) for number, begin, length in runs_of(pieces)]


def runs_of(pieces: Sequence[Piece]) -> list[tuple[int, int, int]]:
    """Return the runs of `in_source_order`: index of the piece, first record, and length."""
    if len(pieces) < 2:
        return [(number, 0, piece.records.num_rows) for number, piece in enumerate(pieces)]
    rows = np.concatenate([piece.origin_rows() for piece in pieces])
    lengths = [piece.records.num_rows for piece in pieces]
    of = np.repeat(np.arange(len(pieces)), lengths)[np.argsort(rows, kind="stable")]
    if not len(of):
        return []
    ends = np.append(np.flatnonzero(of[1:] != of[:-1]) + 1, len(of))
    taken = [0] * len(pieces)
    runs = []
    for number, length in zip(of[ends - 1].tolist(), np.diff(ends, prepend=0).tolist(), strict=True):
        runs.append((number, taken[number], length))
        taken[number] += length
    return runs


def _first(piece: Piece) -> int:
    return 0 if piece.rows is None else int(piece.rows[0])


def _merged(group: Sequence[Piece]) -> Piece:
    if len(group) == 1:
        return group[0]
    schema = group[0].records.schema
    records = [piece.records.replace_schema_metadata(schema.metadata) for piece in group]
    rows = np.concatenate([piece.origin_rows() for piece in group])
    return ascending(Piece(pa.concat_batches(records), rows))
