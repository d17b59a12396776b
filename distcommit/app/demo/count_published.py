"""Count the demo's published records with pyarrow alone, independently of the audit."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.app.demo.flights import checksum
from distcommit.core.errors import DistcommitError
from distcommit.sinks.files.footer import Footer

CHECKSUM_MODULUS = 1 << 64
"""Modulus of the sum that is the checksum of a set of records."""


class Published:
    """The content of the Parquet files below a folder.

    Attributes:
        files: number of files.
        records: number of records in them.
        distinct: number of different source positions, by topic, partition and offset.
        checksum: sum of the records' checksums, as in `flights.Produced`.
    """

    def __init__(self, output: str) -> None:
        self.records = self.files = self.checksum = 0
        positions: dict[str, list[npt.NDArray[np.int64]]] = defaultdict(list)
        for path in sorted(Path(output).rglob("*.parquet")):
            with pq.ParquetFile(path) as file:
                topic = _topic(file, path)
                table = file.read(["value", "kafka_partition", "kafka_offset"])
            self.files += 1
            self.records += table.num_rows
            self.checksum += sum(checksum(topic, value) for value in table["value"].to_pylist())
            positions[topic].append(_positions(table))
        self.checksum %= CHECKSUM_MODULUS
        self.distinct = sum(len(np.unique(np.concatenate(arrays))) for arrays in positions.values())


def _topic(file: pq.ParquetFile, path: Path) -> str:
    metadata = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    footer = Footer.from_metadata(metadata)
    if footer is None:
        raise DistcommitError("a published file does not name its dataset", path=path)
    return footer.dataset_urn.rpartition("@")[0]


def _positions(table: pa.Table) -> npt.NDArray[np.int64]:
    partitions = table["kafka_partition"].to_numpy().astype(np.int64)
    offsets: npt.NDArray[np.int64] = table["kafka_offset"].to_numpy()
    positions: npt.NDArray[np.int64] = partitions * (1 << 48) + offsets
    return positions
