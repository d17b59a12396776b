"""Typed JSON to one Iceberg table: a process for each slot, each a task attempt at its own work unit, and one commit
for all."""

from __future__ import annotations

import multiprocessing
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import msgspec
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.workloads.typed_records import HeldSource, as_batches
from distcommit.app.job_file.sections.flow_settings import FlowSettings
from distcommit.core.interfaces.committer import CommitRequest, Committed, CommitterContext
from distcommit.core.interfaces.sink import AttemptIdentity
from distcommit.engine.system_clock import SystemClock
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.pipeline.task_attempt import run_work_unit
from distcommit.sinks.iceberg.sink import IcebergSink
from distcommit.stores.folders.staging import make_area, prepare_bucket

RECORD_BYTES = 142
_FIELDS = {
    "id": "int64",
    "at": "timestamp",
    "kind": "string",
    "n": "int64",
    "ratio": "float64",
    "ok": "bool",
    "note": "string",
}
_NO_KAFKA = {"type": "kafka", "brokers": "unused:9092", "topics": ["unused"]}


@dataclass(frozen=True, slots=True)
class Part:
    """The work of one process. `begin`, `end`: of the ids of its records. `epoch`: of the run."""

    folder: Path
    begin: int
    end: int
    epoch: int

    @property
    def dataset(self) -> str:
        return f"events-{self.begin}"

    def sink(self) -> dict[str, Any]:
        """Return the `sink` section of a job file."""
        catalog = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return {"type": "iceberg", "catalog": {"type": "sql", **catalog}, "namespace": "bench", "table": "events"}


@dataclass(frozen=True, slots=True)
class Made:
    """Prepared commit, its times by the clock of all processes, and the seconds of its converter and of the
    processor."""

    request: CommitRequest
    ended_s: float
    converted_s: float
    cpu_s: float


def typed_json(folder: Path, records: int, processes: int) -> dict[str, float]:
    """Return the seconds from the first batch to the commit of all, and of its parts.

    Raises:
        RuntimeError: if the table does not hold exactly these records.
    """
    folder.mkdir(parents=True)
    _run([Part(folder, records, records + 1, 1)])  # the table exists, as in any run but the first
    share = records // processes
    bounds = [share * number for number in range(processes)] + [records]
    parts = [Part(folder, begin, end, 2) for begin, end in pairwise(bounds)]
    selected = _run(parts)
    settings = parts[0].sink()["catalog"]
    catalog = SqlCatalog("default", uri=settings["uri"], warehouse=settings["warehouse"])
    ids = catalog.load_table("bench.events").scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    catalog.close()
    if sorted(ids) != list(range(records + 1)):
        raise RuntimeError(f"the table holds {len(ids)} records, expected {records + 1}")
    return selected


def _run(parts: Sequence[Part]) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier, results = context.Barrier(len(parts) + 1), manager.list()
        workers = [context.Process(target=_attempt, args=(part, barrier, results)) for part in parts]
        for worker in workers:
            worker.start()
        barrier.wait()
        began = time.monotonic()
        for worker in workers:
            worker.join()
        mades: list[Made] = list(results)
    if len(mades) != len(parts):
        raise RuntimeError(f"{len(mades)} of {len(parts)} processes have ended well")
    prepared_s = max(each.ended_s for each in mades) - began
    fs, folder = LocalFileSystem(), parts[0].folder
    committer = IcebergSink.model_validate(parts[0].sink()).open_committer(
        CommitterContext(fs, f"{folder}/staging", f"{folder}/output", "bench")
    )
    began, began_cpu_s = time.monotonic(), time.process_time()
    outcomes = committer.commit([each.request for each in mades])
    commit_s = time.monotonic() - began
    if set(outcomes) != {Committed()}:
        raise RuntimeError(f"not committed: {outcomes}")
    converted_s = sum(each.converted_s for each in mades) / len(mades)
    cpu_s = sum(each.cpu_s for each in mades) + time.process_time() - began_cpu_s
    parts_s = {"prepared_s": prepared_s, "converted_s": converted_s, "commit_s": commit_s, "cpu_s": cpu_s}
    return {"seconds": prepared_s + commit_s, **parts_s}


def _attempt(part: Part, barrier: Barrier, results: list[Made]) -> None:
    """Run one attempt in a process of its own.

    It creates its records, converts one as a warm-up, waits for the others, then converts and writes them.
    """
    source = HeldSource(as_batches([_record(number) for number in range(part.begin, part.end)]))
    _prepared(part, HeldSource(as_batches([_record(part.begin)])))
    barrier.wait()
    began_cpu_s = time.process_time()
    request, converted_s = _prepared(part, source)
    results.append(Made(request, time.monotonic(), converted_s, time.process_time() - began_cpu_s))


def _prepared(part: Part, source: HeldSource) -> tuple[CommitRequest, float]:
    """Return an attempt's prepared commit of these records, and the seconds of its converter."""
    converters = [{"type": "json", "fields": _FIELDS, "keep_column": False}]
    settings = {"source": _NO_KAFKA, "converters": converters, "sink": part.sink()}
    flow = FlowSettings.model_validate(settings).task_flow().with_source(source)
    fs, attempt = LocalFileSystem(), uuid.uuid4().hex
    staging = f"{part.folder}/staging/{part.begin}"
    fs.make_folders(staging)
    prepare_bucket(fs, staging, part.epoch, 0)
    identity = AttemptIdentity("run", part.epoch, part.dataset, "00000_000001", attempt)
    area = make_area(fs, staging, f"{part.folder}/output", 0, identity)
    state = run_work_unit(flow, source.open(), source.unit, area, identity, SystemClock())
    infos = [info for result in state.branches for info in result.infos]
    if not infos:
        raise RuntimeError(f"nothing was prepared: {state.error}")
    spent = sum(construct.seconds for construct in state.constructs)
    return CommitRequest(part.dataset, part.epoch, tuple(infos)), spent


def _record(number: int) -> bytes:
    fields = {
        "id": number,
        "at": f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}Z",
        "kind": ("view", "click", "buy")[number % 3],
        "n": number * 31 % 1_000_003,
        "ratio": number % 1000 / 8,
        "ok": number % 3 == 0,
        "note": "",
    }
    padding = RECORD_BYTES - len(msgspec.json.encode(fields))
    return msgspec.json.encode(
        {**fields, "note": f"{number * 2_654_435_761 % (1 << 64):016x}{number:0{padding}x}"[:padding]}
    )
