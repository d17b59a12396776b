"""A folder of files with controlled modification times, and a source that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distcommit.core.interfaces.source import DatasetProblem
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.files.source import FilesSource
from tests.unit.sources.retried_ranges import states_of

NOW_S = 1_700_000_000


class Folder:
    """A folder whose datasets are read as a job reads them, run after run. `again`: the end of each dataset's failed
    read."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.watermarks = folder, dict[str, Watermark]()
        self.again: dict[str, Watermark] = {}
        self.settings: dict[str, Any] = {
            "type": "files",
            "paths": [f"{folder}/in/{{dataset}}/**/*.jsonl"],
            "format": "jsonl",
            **settings,
        }
        (folder / "in").mkdir(exist_ok=True)

    def put(self, name: str, data: bytes | str, at: float = 0) -> Path:
        """Write a file below `in`, modified the given number of seconds after `NOW_S`."""
        path = self.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        os.utime(path, (NOW_S + at,) * 2)
        return path

    def source(self, **settings: Any) -> FilesSource:
        return FilesSource.model_validate({**self.settings, **settings})

    def plan(self, **settings: Any) -> dict[str, DatasetPlan | DatasetProblem]:
        states = states_of(self.watermarks, self.again)
        return {plan.dataset_urn: plan for plan in self.source(**settings).plan(lambda urn: True, states)}

    def problem(self, urn: str, **settings: Any) -> str:
        planned = self.plan(**settings)[urn]
        assert isinstance(planned, DatasetProblem)
        return planned.error

    def run(self, batches: int = 0, **settings: Any) -> list[dict[str, Any]]:
        """Read the new rows and advance the watermarks. With `batches`, read only that many batches of the first work
        unit."""
        rows: list[dict[str, Any]] = []
        for urn, plan in self.plan(**settings).items():
            assert isinstance(plan, DatasetPlan), plan
            reached = {**plan.start.positions, **(plan.planned_low.positions if plan.planned_low else {})}
            for unit in plan.work_units[: 1 if batches else None]:
                extraction = self.source(**settings).open().extract(unit)
                for number, batch in enumerate(extraction, 1):
                    rows += batch.to_pylist()
                    if number == batches:
                        break
                assert unit.can_end_at(extraction.actual_high())
                assert all(reached[p] == low for p, low in unit.low.positions.items())
                reached |= extraction.actual_high().positions
            self.watermarks[urn] = Watermark(reached, plan.start.incarnation)
        return rows

    def values(self, batches: int = 0, **settings: Any) -> list[str]:
        return [row["value"].decode() for row in self.run(batches, **settings)]


def counted(rows: list[dict[str, Any]]) -> Mapping[str, list[int]]:
    """Return the offsets of rows by partition."""
    offsets: dict[str, list[int]] = {}
    for row in rows:
        offsets.setdefault(row["_partition"], []).append(row["_offset"])
    return offsets
