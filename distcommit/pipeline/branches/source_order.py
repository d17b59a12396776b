"""The order of a batch's records, restored where a construct has grouped them by schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from distcommit.pipeline.branches.piece import Piece


def ascending(piece: Piece) -> Piece:
    """Return the piece with its records in the order of their rows; records of one row keep theirs."""
    if piece.rows is None or (piece.rows[1:] >= piece.rows[:-1]).all():
        return piece
    order = np.argsort(piece.rows, kind="stable")
    return Piece(piece.records.take(pa.array(order)), piece.rows[order])


def by_first_row(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces that have records, sorted by the row of their first one."""
    return sorted((piece for piece in pieces if piece.records.num_rows), key=_first)


def merged_by_schema(pieces: Sequence[Piece], *, with_metadata: bool = True) -> list[Piece]:
    """Return one piece with ascending rows for each schema, in the order of their first pieces.

    Args:
        pieces: with ascending rows.
        with_metadata: whether schemas whose metadata differ are different ones. Metadata of columns always count.
    """
    groups: list[tuple[pa.Schema, list[Piece]]] = []
    for piece in pieces:
        schema = piece.records.schema if with_metadata else piece.records.schema.remove_metadata()
        group = next((found for known, found in groups if known.equals(schema, check_metadata=True)), None)
        if group is None:
            groups.append((schema, [piece]))
        else:
            group.append(piece)
    return [_merged(group) for _, group in groups] if len(groups) < len(pieces) else list(pieces)


def in_source_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Cut pieces with ascending rows into runs, so that all records come in the order of their rows.

    Records of one row keep the order of their pieces.
    """
    return [pieces[number].slice(begin, length) for number, begin, length in runs_of(pieces)]


def runs_of(pieces: Sequence[Piece]) -> list[tuple[int, int, int]]:
    """Return the runs of `in_source_order`: the number of the piece, the first record of the run, and its length."""
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
