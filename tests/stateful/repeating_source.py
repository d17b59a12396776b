"""A model source whose work units fail a number of times before they can be read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import Extraction, Extractor
from distcommit.core.work_units import WorkUnit
from distcommit.testing.fakes.model_source import ModelSource


@dataclass(frozen=True)
class RepeatingSource(ModelSource):
    """A source whose work units fail `repeats` times first. `tried` counts the attempts."""

    repeats: int = 0
    tried: Counter[str] = field(default_factory=Counter)

    def open(self) -> Extractor:
        return _RepeatingExtractor(self, ModelSource.open(self))


@dataclass
class _RepeatingExtractor(Extractor):
    source: RepeatingSource
    inner: Extractor

    def extract(self, unit: WorkUnit) -> Extraction:
        self.source.tried[unit.work_unit_id] += 1
        if self.source.tried[unit.work_unit_id] <= self.source.repeats:
            raise SourceError("not this time", work_unit=unit.work_unit_id)
        return self.inner.extract(unit)

    def close(self) -> None:
        self.inner.close()
