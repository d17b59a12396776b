"""Checks of the positions that operators set. Must not import SQLAlchemy."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from distcommit.core.watermark import Position
from distcommit.sources.watermark_column import PARTITION, Kind, is_position

OF_QUERY = " of query "
"""Separates column and query id in the incarnation of a query's positions."""


def counts_in(incarnation: str, column: str, query_id: str) -> bool:
    """Return whether an incarnation is of a column of a table (without an id), or of a query."""
    counted, _, of = incarnation.partition(OF_QUERY)
    return counted.rpartition(":")[0] == column and of == query_id


def position_problems(datasets: Mapping[str, Mapping[str, Position]], tables: Container[str]) -> Iterator[str]:
    """Yield the problems of positions that are not valid for any kind of column.

    Args:
        datasets: the positions by partition, by dataset.
        tables: tables of the job.
    """
    for urn, positions in datasets.items():
        if urn not in tables:
            yield f"{urn!r} is no table or query of this job (see source.tables, table_patterns, exclude and queries)"
            continue
        for partition, position in positions.items():
            if partition != PARTITION:
                yield f"{urn!r}: {partition!r} is not a partition of a table, which has only {PARTITION!r}"
            elif not (is_position(Kind.INTEGER, position) or isinstance(position, str)):
                yield f"{urn!r}: {position!r} is not a value of a watermark column: an integer, or text"
