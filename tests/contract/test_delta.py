"""The Delta sink keeps what a sink has to keep."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable

from distcommit.model.committer import CommitRequest
from distcommit.sinks.committer_sink import CommitterSink
from distcommit.sinks.delta.sink import DeltaSink
from distcommit.sinks.table_names import plain_name
from distcommit.testing.contracts import SinkContract

_DATASETS = {plain_name(urn): urn for urn in ("a", "b", "c", "b/ü", *(f"{urn}/{n}" for urn in "ab" for n in range(4)))}


class TestDeltaSink(SinkContract):
    """A table for each dataset."""

    preloaded = ("deltalake", "distcommit.sinks.delta.committer", "pyarrow.dataset")

    def make_sink(self, place: Path) -> CommitterSink:
        tables = place / "tables"
        if not tables.exists():
            tables.mkdir()
        return DeltaSink.model_validate({"type": "delta", "location": str(tables)})

    def observe(self, place: Path) -> Sequence[tuple[str, int]]:
        """What deltalake alone finds."""
        return [
            (_DATASETS[log.parent.name], offset)
            for log in (place / "tables").glob("*/_delta_log")
            for offset in DeltaTable(log.parent).to_pyarrow_table()["offset"].to_pylist()
        ]

    def lose(self, place: Path, request: CommitRequest) -> bool:
        (place / "tables" / request.infos[-1]["files"][0]["path"]).unlink()
        return True

    def cut_off(self, place: Path) -> bool:
        """What the tables are on is not there any more."""
        shutil.move(place / "tables", place / "elsewhere")
        (place / "tables").touch()
        return True
