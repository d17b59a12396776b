"""A source that quotes its options in errors and records the output of `ps` for the JVMs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from distcommit.core.interfaces.source import Extraction, Extractor, Planned, SourceState
from distcommit.core.work_units import WorkUnit
from tests.integration.parts.failing_source import FailingExtractor, FailingSource


class LeakingExtractor(FailingExtractor):
    """Extractor that fails with the secret in its error message."""

    def extract(self, unit: WorkUnit) -> Extraction:
        raise ValueError(f"login with {getattr(self.source, 'label', '')} was refused")


class LeakingSource(FailingSource):
    """Source of one unreadable dataset. `label`: a secret under a plain name. `ps`: the file for the output of `ps`."""

    def __init__(self, label: str, ps: str, notes: str) -> None:
        super().__init__({"x": 10}, f"{notes}/broken", notes)
        self.label, self.ps = label, ps

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        Path(self.ps).write_bytes(b"\n".join(line.replace(b"\0", b" ") for line in lines if b"SparkSubmit" in line))
        yield from super().plan(owned, states)

    def open(self) -> Extractor:
        return LeakingExtractor(self)
