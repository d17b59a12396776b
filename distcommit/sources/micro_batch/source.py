"""Settings of the source of micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from pydantic import Field

from distcommit.core.errors import SourceError
from distcommit.core.interfaces.source import DatasetProblem, Extractor, SourceState
from distcommit.core.interfaces.source_table import Extract, TableType
from distcommit.core.records.fixed_settings import FixedSetting
from distcommit.core.watermark import Position
from distcommit.core.work_units import DatasetPlan
from distcommit.sources.described_source import DescribedSource


class MicroBatchSource(DescribedSource):
    """Micro-batches that a streaming query passes to `Job.on_batch`. A run outside a query reads nothing and only
    replays.

    Attributes:
        type: `micro_batch`.
        dataset_column: text column with each row's dataset.
    """

    type: Literal["micro_batch"]
    dataset_column: str = Field(min_length=1)

    @property
    def reads_whole_units(self) -> bool:
        return True

    @property
    def supports_retry_ranges(self) -> bool:
        return False

    @property
    def batch_column(self) -> str:
        return self.dataset_column

    def fixed_settings(self) -> Mapping[str, FixedSetting]:
        return {"dataset_column": FixedSetting(self.dataset_column)}

    def extract_of(self, dataset_urn: str) -> Extract:
        return self.described(Extract(self.type, dataset_urn, TableType.APPEND_ONLY))

    def plan(self, owned: Callable[[str], bool], states: SourceState) -> Iterator[DatasetPlan | DatasetProblem]:
        return iter(())

    def position_problems(self, datasets: Mapping[str, Mapping[str, Position]]) -> Iterator[str]:
        """Yield the problems of positions that are not numbers of micro-batches. Partitions are ids of queries."""
        for urn, positions in datasets.items():
            for query_id, number in positions.items():
                if type(number) is not int or number < 0:
                    yield f"{urn!r}: position {number!r} of query {query_id!r} is not the number of a micro-batch"

    def open(self) -> Extractor:
        raise SourceError(
            "no micro-batch to read",
            id="SOURCE_READ_INCOMPLETE",
            todo="pass Job.on_batch to foreachBatch of a streaming query",
        )
