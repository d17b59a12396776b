"""Imports of watermarks from another job of the same source that knows datasets which this job no longer names."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from distcommit.app.migration.foreign_positions import ForeignPositions
from distcommit.app.migration.import_watermarks import import_watermarks
from distcommit.app.migration.take_over_watermarks import _add_partitions
from distcommit.core.interfaces.source import Source
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position, Watermark
from distcommit.sources.rest.source import RestSource
from distcommit.sources.sql.source import SqlSource

SQL = SqlSource(type="sql", url="sqlite:////db", tables=("orders",), watermark="id", lookback=0)
REST = RestSource.model_validate(
    {
        "type": "rest",
        "url": "http://h/{dataset}",
        "datasets": ("orders",),
        "paging": {"type": "none"},
        "watermark": {"field": "id", "type": "integer", "since": "s", "lookback": 0},
    }
)


@pytest.mark.parametrize(("source", "at"), [(SQL, {"": 5}), (REST, {"": (5,), "rows": 5})])
def test_dataset_that_the_job_no_longer_names_is_left_out_and_the_others_are_imported(
    source: Source, at: Mapping[str, Position]
) -> None:
    states = {urn: DatasetState(urn, watermark=Watermark(dict(at), "id:integer")) for urn in ("orders", "given_up")}
    positions = ForeignPositions("job other", {})
    for state in states.values():
        _add_partitions(source, source, state, states, positions)
    store = None
    result = import_watermarks(store, source, positions, "me", overwrite=False, dry_run=True)
    assert result.datasets_set == 1
    assert [reason.partition(":")[0] for reason in result.skipped] == ["given_up"]
