"""Flows of constructs over records in memory, and the same work without the product.

One process, one thread: a run has as many of these as Spark has slots.
"""

from __future__ import annotations

import gc
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.runner import Parts, WrongResultError
from benchmarks.workloads.typed_records import CASTS, JSON_FIELDS, NOISE, TYPED, HeldSource
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.interfaces.sink import AttemptIdentity, Origin, Origins, Sink, StagingArea
from distcommit.core.work_units import TaskOutcome
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.folders.staging import make_area, prepare_bucket
from distcommit.testing.fakes.convert_batch import convert_batch

ROW_GROUP_BYTES = 64 << 20
TYPED_JSON: Mapping[str, Any] = {
    "converters": [
        {"type": "json", "fields": JSON_FIELDS, "keep_column": False},
        {"type": "sql", "where": f"kind <> '{NOISE}'"},
        {"type": "cast", "columns": CASTS},
    ]
}
"""JSON to typed columns, a filter and casts, as a job file has them."""
_BY_HAND = {"type": "kafka", "brokers": "unused:9092", "topics": ["unused"]}


class _Clock:
    """Wall-clock time since its creation, and processor time of all threads of the process."""

    def __init__(self) -> None:
        gc.collect()
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def parts(self) -> Parts:
        return {"seconds": time.perf_counter() - self._began, "cpu_s": time.process_time() - self._cpu}


class FlowArm(ABC):
    """A way of writing records to files."""

    name: str

    @abstractmethod
    def make(self, root: Path) -> Parts:
        """Write files below the empty folder `root`, and return the costs."""


class ProductFlow(FlowArm):
    """An executor's task attempt at one work unit: constructs, staging, footers, content sums, checksums.

    Storing the attempt's state and publishing it are left out.

    Args:
        name: the arm's.
        settings: of the flow, as in a job file, without a source.
        source: the records.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], source: HeldSource) -> None:
        self.name, self._source = name, source
        self._flow: TaskFlow = FlowSettings.model_validate({**settings, "source": _BY_HAND}).task_flow()
        self._flow = self._flow.with_source(source)

    def make(self, root: Path) -> Parts:
        unit, area, identity = self._source.unit, *place(root)
        clock = _Clock()
        state = run_work_unit(self._flow, self._source.open(), unit, area, identity, SystemClock())
        parts = clock.parts()
        if state.outcome is not TaskOutcome.SUCCEEDED:
            raise WrongResultError(f"{self.name}: {state.error}")
        spent = {f"{counts.branch}{counts.construct}_s": counts.seconds for counts in state.constructs}
        return parts | spent


class WriterAlone(FlowArm):
    """A sink's writer that gets the batches directly."""

    def __init__(self, name: str, sink: Sink, source: HeldSource) -> None:
        self.name, self._sink, self._source = name, sink, source

    def make(self, root: Path) -> Parts:
        area, identity = place(root)
        clock = _Clock()
        writer = self._sink.open_writer(identity, area, Origin(self._source.provenance))
        for batch in self._source.batches:
            writer.write(batch, Origins(batch.column("kafka_partition"), batch.column("kafka_offset")))
        writer.prepare_commit()
        return clock.parts()


class PlainArrow(FlowArm):
    """A plain pyarrow loop: the same steps on the same batches to the same columns, codec and row-group size.

    Its file records no position.

    Args:
        batches: the records.
    """

    name = "plain_pyarrow"

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches

    def make(self, root: Path) -> Parts:
        clock = _Clock()
        schema = pa.schema([f for f in self._batches[0].schema if f.name != "value"] + list(TYPED))
        wire = pa.schema([f.with_type(pa.string()) if f.name == "code" else f for f in TYPED])
        read = pj.ReadOptions(use_threads=False, block_size=1 << 30)
        parse = pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore")
        waiting, waiting_bytes = list[pa.Table](), 0
        with pq.ParquetWriter(root / "plain.parquet", schema, compression="zstd") as writer:

            def write() -> None:
                rows = pa.concat_tables(waiting)
                writer.write_table(rows, row_group_size=max(1, rows.num_rows))
                waiting.clear()

            for batch in self._batches:
                one = pa.ListArray.from_arrays(pa.array([0, batch.num_rows], pa.int32()), batch.column("value"))
                text = pc.binary_join(one, b"\n")[0].as_buffer()
                fields = pj.read_json(pa.BufferReader(text), read, parse)
                beside = pa.Table.from_batches([batch.drop_columns(["value"])])
                rows = pa.Table.from_arrays([*beside.columns, *fields.columns], [*beside.column_names, *wire.names])
                rows = rows.filter(pc.not_equal(rows["kind"], NOISE)).cast(schema)
                waiting.append(rows)
                waiting_bytes += rows.nbytes
                if waiting_bytes >= ROW_GROUP_BYTES:
                    write()
                    waiting_bytes = 0
            if waiting:
                write()
        return clock.parts()


def typed_batches(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the flow's records from JSON, in memory."""
    pieces = list(batches)
    for converter in FlowSettings.model_validate({**TYPED_JSON, "source": _BY_HAND}).converters:
        pieces = [converted.records for batch in pieces for converted in convert_batch(converter, batch)]
        converter.close()
    return pieces


FORK: Mapping[str, Any] = {
    "fork": {
        "type": "all",
        "branches": {"parquet": {"sink": {"format": "parquet"}}, "avro": {"sink": {"format": "avro"}}},
    }
}
"""Every record to two file sinks, of two formats."""


def fork_arms(source: HeldSource) -> list[FlowArm]:
    """Return the fork, and each of its writers alone."""
    return [
        ProductFlow("ours_fork", FORK, source),
        WriterAlone("writer_parquet", FileSink(format="parquet"), source),
        WriterAlone("writer_avro", FileSink(format="avro"), source),
    ]


def place(root: Path) -> tuple[StagingArea, AttemptIdentity]:
    """Return the staging area of an attempt."""
    fs = LocalFileSystem()
    fs.make_folders(f"{root}/staging")
    prepare_bucket(fs, f"{root}/staging", 1, 0)
    identity = AttemptIdentity("run", 1, "events", "00000_000001", uuid.uuid4().hex)
    return make_area(fs, f"{root}/staging", f"{root}/output", 0, identity), identity
