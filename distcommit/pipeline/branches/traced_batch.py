"""Records of one schema with their input rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TracedBatch:
    """Records of one schema with their input rows.

    Attributes:
        records: the records.
        rows: row of each record in the extractor's batch; None if the records are exactly that batch.
    """

    records: pa.RecordBatch
    rows: Rows | None = None

    def origin_rows(self) -> Rows:
        """Return the input row of each record, also if `rows` is None."""
        return np.arange(self.records.num_rows, dtype=np.int64) if self.rows is None else self.rows

    def only(self, keep: npt.NDArray[np.bool_]) -> TracedBatch:
        """Return the records that `keep` selects."""
        if keep.all():
            return self
        return TracedBatch(self.records.filter(pa.array(keep)), self.origin_rows()[keep])

    def slice(self, begin: int, length: int) -> TracedBatch:
        """Return `length` records from `begin` on."""
        if length == self.records.num_rows:
            return self
        return TracedBatch(self.records.slice(begin, length), self.origin_rows()[begin : begin + length])
