"""A source of datasets with arbitrary names and three records each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import Extractor, Planned, Source, SourceState
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource


class NamedSource(Source):
    provenance = Provenance("partition", "offset")

    def __init__(self, names: list[str]) -> None:
        self._model = ModelSource({name: ModelDataset({"0": 3}) for name in names})

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        return self._model.plan(owned, states)

    def open(self) -> Extractor:
        return self._model.open()
