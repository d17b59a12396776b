"""Parts that record properties in their task states; the source also keeps a log of the states that it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from distcommit import BranchCounts, Converted, Converter, TaskCheck, TaskChecker
from distcommit.core.interfaces.source import Extraction, Extractor, Planned, SourceState
from distcommit.core.interfaces.work_unit_settings import with_settings
from distcommit.core.task_properties import PropertyValue
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from tests.integration.parts.paused_source import PausedSource


class RecordingSource(PausedSource):
    """Records the name of each dataset as `etag`. Each plan appends the previous work units to the file `seen`."""

    def __init__(self, names: list[str], at: str, half_way: str, release: str, seen: str) -> None:
        super().__init__(names, at, half_way, release)
        self.seen = seen

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        with Path(self.seen).open("ab") as file:
            for urn, units in states.previous_work_units.items():
                file.write(msgspec.json.encode([urn, units]) + b"\n")
        for planned in super().plan(owned, states):
            assert isinstance(planned, DatasetPlan)
            if planned.dataset_urn != "beta":
                yield planned
                continue
            settings = {"python": {"weight": 10}, "main.task_checkers.row_count": {"min": 3}}
            with_own = tuple(with_settings(unit, settings) for unit in planned.work_units)
            yield msgspec.structs.replace(planned, work_units=with_own)

    def open(self) -> Extractor:
        return _Recording(super().open())


@dataclass
class _Recording(Extractor):
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        return _RecordingExtraction(self.inner.extract(unit), unit.dataset_urn)

    def close(self) -> None:
        self.inner.close()


@dataclass
class _RecordingExtraction(Extraction):
    inner: Extraction
    dataset: str

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.inner)

    def actual_high(self) -> Watermark:
        return self.inner.actual_high()

    def bytes_read(self) -> int:
        return self.inner.bytes_read()

    def task_properties(self) -> Mapping[str, PropertyValue]:
        return {"etag": f"{self.dataset}-v1", "pages": 2}


class CountingConverter(Converter):
    """Records the number of records of the work unit, with the weight of each."""

    records = 0

    def __init__(self, weight: int = 1) -> None:
        self.weight = weight

    def begin_work_unit(self, unit: WorkUnit) -> None:
        self.records = 0

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        self.records += batch.num_rows
        yield Converted(batch)

    def task_properties(self) -> Mapping[str, PropertyValue]:
        return {"weight": self.records * self.weight, "is_full": self.records == 3, "ratio": 0.5}


class RecordingChecker(TaskChecker):
    def begin(self) -> TaskCheck:
        return _RecordingCheck()


class _RecordingCheck(TaskCheck):
    def outcome(self, counts: BranchCounts) -> tuple[bool, str]:
        return True, ""

    def task_properties(self) -> Mapping[str, PropertyValue]:
        return {"checked": "yes"}
