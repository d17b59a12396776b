"""What people may set as positions of tables. Needs no SQLAlchemy."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from distcommit.core.watermark import Position
from distcommit.sources.watermark_column import PARTITION, Kind, is_position

OF_QUERY = " of query "
"""Stands in the incarnation of positions before the id of the query that they are values of."""


def counts_in(incarnation: str, column: str, query_id: str) -> bool:
    """Whether positions of an incarnation are values of that column of a table (no id), or of that query."""
    counted, _, of = incarnation.partition(OF_QUERY)
    return counted.rpartition(":")[0] == column and of == query_id


def position_problems(datasets: Mapping[str, Mapping[str, Position]], tables: Container[str]) -> Iterator[str]:
    """What keeps these from being positions, whatever kind of column a table has: one text each.

    Args:
        datasets: the positions by partition, by dataset.
        tables: the job's.
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
