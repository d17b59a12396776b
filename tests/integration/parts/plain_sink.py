"""A sink with a writer and no committer: a file of lines for each attempt, visible line by line."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from distcommit import WriterSink
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Prepared, SinkWriter, StagingArea

HALF_WAY = "half_way"
RELEASE = "release"


@dataclass(frozen=True, slots=True)
class PlainSink(WriterSink):
    """Sink of lines below `folder`.

    If the job is to be held, the writers of dataset-20 create the file HALF_WAY and wait for RELEASE.
    """

    name: ClassVar[str] = "plain"

    folder: str
    held: bool = False

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> PlainWriter:
        return PlainWriter(self, attempt.dataset_urn)


class PlainWriter(SinkWriter):
    def __init__(self, sink: PlainSink, dataset: str) -> None:
        self._sink, self._dataset = sink, dataset
        self._file = (Path(sink.folder) / f"{uuid.uuid4()}.lines").open("w", encoding="utf-8")

    def write(self, batch: pa.RecordBatch, origins: Origins | None = None) -> None:
        for offset in batch["offset"].to_pylist():
            self._file.write(f"{self._dataset} {offset}\n")
        self._file.flush()
        folder = Path(self._sink.folder)
        if self._sink.held and self._dataset == "dataset-20":
            (folder / HALF_WAY).touch()
            while not (folder / RELEASE).exists():
                time.sleep(0.05)  # the test, another process, creates that file

    def prepare_commit(self) -> Prepared:
        self._file.close()
        return Prepared()

    def abort(self) -> None:
        self._file.close()
