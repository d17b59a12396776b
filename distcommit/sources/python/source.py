"""Settings of a custom source, and the calls that are handed on to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from distcommit.core.interfaces.custom_class import custom_code, make_named
from distcommit.core.interfaces.extract import Extract
from distcommit.core.interfaces.source import (
    Extractor,
    GroupPositions,
    Lag,
    Planned,
    Source,
    SourceSettings,
    SourceState,
)
from distcommit.core.interfaces.targets import Target
from distcommit.core.provenance import Provenance
from distcommit.core.records.fixed_settings import Pin
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import Position
from distcommit.fs.secret_files import with_secret_files_in

if TYPE_CHECKING:
    import pyarrow as pa


class PythonSource(BaseModel, SourceSettings):
    """A custom subclass of `Source`.

    Attributes:
        type: `python`.
        class_name: the class, as `package.module:Class`. The driver and each executor must be able to import it.
        options: keyword arguments of the class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    is_imported: ClassVar[bool] = True
    type: Literal["python"]
    class_name: str = Field(alias="class")
    options: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def _source(self) -> Source:
        return make_named(Source, "source", self.class_name, with_secret_files_in(self.options))  # type: ignore[type-abstract]

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return {**state, "__dict__": {k: v for k, v in state["__dict__"].items() if k != "_source"}}

    @property
    def provenance(self) -> Provenance | None:  # type: ignore[override]
        with custom_code("source", self.class_name):
            return self._source.provenance

    @property
    def batch_schema(self) -> pa.Schema | None:
        with custom_code("source", self.class_name):
            return self._source.batch_schema

    def pins(self) -> Mapping[str, Pin]:
        """The class, and its own pins. A renamed class must pin `class` as it was."""
        with custom_code("source", self.class_name):
            return {"class": Pin(self.class_name), **self._source.pins()}

    def selects(self, dataset_urn: str, partition: str) -> bool:
        with custom_code("source", self.class_name):
            return self._source.selects(dataset_urn, partition)

    def reads(self, target: Target) -> bool:
        with custom_code("source", self.class_name):
            return self._source.reads(target)

    @property
    def apart_hint(self) -> str:
        with custom_code("source", self.class_name):
            return self._source.apart_hint

    @property
    def location(self) -> str:
        with custom_code("source", self.class_name):
            return self._source.location

    def extract_of(self, dataset_urn: str) -> Extract | None:
        with custom_code("source", self.class_name):
            return self._source.extract_of(dataset_urn)

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[Planned]:
        return self._source.plan(owned, states)

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterable[str]:
        with custom_code("source", self.class_name):
            return self._source.position_problems(datasets)

    def incarnations(self, states: Mapping[str, DatasetState]) -> Mapping[str, str]:
        return self._source.incarnations(states)

    def group_positions(self, group: str) -> GroupPositions:
        with custom_code("source", self.class_name):
            return self._source.group_positions(group)

    def lags(self, states: Mapping[str, DatasetState]) -> Iterable[Lag]:
        with custom_code("source", self.class_name):
            return self._source.lags(states)

    def open(self) -> Extractor:
        return self._source.open()
