"""The speed of sinks to their targets, beside each target's own client with the same data.

Each sink's question is a function, listed in `_QUESTIONS` with its figures. If a target is unavailable or not
requested, its figures are missing with the reason.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import SecretStr

from benchmarks.arms import delta as delta_arms
from benchmarks.arms.iceberg import NAMESPACE, IcebergPlace, RestPlace, delayed, delayed_requests
from benchmarks.arms.iceberg_json import RECORD_BYTES, typed_json
from benchmarks.results import Results, Sample, medians, results_of
from benchmarks.runner import Tell, WrongResultError
from benchmarks.workloads.sink_batches import sink_batches
from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened
from tests.servers.nessie import NessieServer
from tests.servers.postgresql import PostgresServer
from tests.servers.process import ServerUnavailableError

FIGURES = (
    "postgresql_over_copy",
    "iceberg_over_append",
    "delta_over_append",
    "delta_over_append_without_bounds",
    "iceberg_records_per_s",
    "catalog_wall_s",
    "catalog_wall_making_s",
    "rest_catalog_wall_s",
)
"""The figures, above 1 if the product is the faster one; the last four are not quotients."""

_CATALOG_CALL_S = 0.32
_APPENDS = 200
_BATCH_ROWS = 10_000
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """Input of each sink.

    Attributes:
        records: in all, where speed is measured.
        tables: of a commit of many tables.
        repeats: samples of each arm; the median counts.
        seed: of the values.
    """

    records: int
    tables: int
    repeats: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one sink: figures by name, every sample, and notes on how to read them."""

    figures: dict[str, float]
    samples: list[Sample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Ask = Callable[[Size, Path, Tell], Answer]
"""Measures one sink, in places of its own below that folder. ServerUnavailableError: its target is unavailable."""


def iceberg(size: Size, folder: Path, tell: Tell) -> Answer:
    """Measure the same records by the sink and by pyiceberg's append.

    Also measure the commit of many tables with catalog calls of 320 ms, beside appends in a row.
    """
    samples: list[Sample] = []

    def timed(arm: str, datasets: int, repeat: int, seconds: float) -> float:
        samples.append(Sample(arm, datasets, datasets, repeat, seconds))
        tell(f"{arm}: {seconds:.2f} s")
        return seconds

    with tempfile.TemporaryDirectory(dir=folder, prefix="iceberg-") as own_folder:
        records = _records(size)
        ours: list[float] = []
        theirs: list[float] = []
        for repeat in range(size.repeats):
            ours.append(timed("iceberg", 1, repeat, _iceberg_sink(Path(own_folder, f"ours-{repeat}"), records)))
            theirs.append(
                timed("iceberg_append", 1, repeat, _iceberg_append(Path(own_folder, f"theirs-{repeat}"), records))
            )
            _take_alike(Path(own_folder, f"ours-{repeat}"), Path(own_folder, f"theirs-{repeat}"))
        place = IcebergPlace(Path(own_folder, "many"))
        sink, batches = place.sink(), records.slice(0, 10).to_batches()
        names = [f"t{number}" for number in range(size.tables)]
        with delayed(_CATALOG_CALL_S) as making_calls:
            making_s = place.make(sink, names, records.schema)
            with place.asked_for_nothing(making_calls):
                first = [place.prepare(sink, name, 1, batches) for name in names]
            making_s = timed("iceberg_catalog_wall_making", size.tables, 0, making_s + place.commit(sink, first))
        requests = [place.prepare(sink, name, 2, batches) for name in names]
        with delayed(_CATALOG_CALL_S) as calls:
            wall_s = timed("iceberg_catalog_wall", size.tables, 0, place.commit(sink, requests))
        some = names[:_APPENDS]
        with delayed(_CATALOG_CALL_S) as their_calls:
            client, began = place.client(), time.perf_counter()
            for name in some:
                client.load_table((NAMESPACE, name)).append(records.slice(0, 10))
            timed("iceberg_appends_in_a_row", len(some), 0, time.perf_counter() - began)
        client.close()
        close_opened()
    return Answer(
        {
            "iceberg_over_append": median(theirs) / median(ours),
            "catalog_wall_s": wall_s,
            "catalog_wall_making_s": making_s,
        },
        samples,
        [
            f"{len(calls)} calls of the catalog for {size.tables} tables by the sink, {len(their_calls)} for"
            f" {len(some)} by appends in a row; each waits 320 ms, the catalog is in SQLite",
            f"catalog_wall_making_s: {len(making_calls)} calls to make these tables and to commit to them, without the"
            " writing in between, which asks the catalog for nothing",
            "iceberg_over_append: writing and committing the same records to a table that is there, both with bounds of"
            " columns; nothing is synced",
        ],
    )


def iceberg_rest(size: Size, folder: Path, tell: Tell) -> Answer:
    """Measure the commit of many tables with calls of a REST catalog of 320 ms."""
    batches = _records(Size(10, size.tables, 1, size.seed)).to_batches()
    names = [f"t{number}" for number in range(size.tables)]
    with tempfile.TemporaryDirectory(dir=folder, prefix="iceberg-rest-") as own_folder, NessieServer() as server:
        place = RestPlace(Path(own_folder, "many"), server)
        sink = place.sink()
        place.commit(sink, [place.prepare(sink, name, 1, batches) for name in names])
        requests = [place.prepare(sink, name, 2, batches) for name in names]
        close_opened()  # a run that has not used this catalog before
        with delayed_requests(_CATALOG_CALL_S) as calls:
            wall_s = place.commit(sink, requests)
        close_opened()
    together = len([call for call in calls if call.endswith("/transactions/commit")])
    tell(f"iceberg_rest_catalog_wall: {wall_s:.2f} s")
    return Answer(
        {"rest_catalog_wall_s": wall_s},
        [Sample("iceberg_rest_catalog_wall", size.tables, size.tables, 0, wall_s)],
        [
            f"rest_catalog_wall_s: {len(calls)} calls of Nessie for {size.tables} tables, {together} of them for many"
            " changes at once; each waits 320 ms more. The catalog's own files are on a mock of S3, tables' on disk;"
            " all share the processors"
        ],
    )


def delta(size: Size, folder: Path, tell: Tell) -> Answer:
    """Measure the same records by the sink and by deltalake's append, in turns."""
    samples: list[Sample] = []
    records = _records(size)
    with tempfile.TemporaryDirectory(dir=folder, prefix="delta-") as own_folder:
        for repeat in range(size.repeats):
            seconds = {
                "delta": delta_arms.by_sink(Path(own_folder, f"ours-{repeat}"), records, _BATCH_ROWS),
                "delta_append": delta_arms.by_append(Path(own_folder, f"theirs-{repeat}"), records, bounds=True),
                "delta_append_without_bounds": delta_arms.by_append(
                    Path(own_folder, f"alike-{repeat}"), records, bounds=False
                ),
            }
            for theirs in ("theirs", "alike"):
                _take_alike(Path(own_folder, f"ours-{repeat}"), Path(own_folder, f"{theirs}-{repeat}"))
            samples += [Sample(arm, 1, 1, repeat, spent) for arm, spent in seconds.items()]
            tell(f"{repeat}: {seconds}")
    middle = medians(samples)
    note = (
        "delta_over_append: writing and committing the same records to a table that is there, the sink's in batches of"
        f" {_BATCH_ROWS:,} as sources give them; nothing is synced. Only deltalake writes bounds of columns, and in"
        " delta_over_append_without_bounds it does not either"
    )
    figures = {
        "delta_over_append": middle["delta_append"] / middle["delta"],
        "delta_over_append_without_bounds": middle["delta_append_without_bounds"] / middle["delta"],
    }
    return Answer(figures, samples, [note])


def _take_alike(ours: Path, theirs: Path) -> None:
    """Require that both have written as many rows, compressed by the same codec.

    Raises:
        WrongResultError: if they have not.
    """
    written = [_written(folder) for folder in (ours, theirs)]
    if written[0] != written[1]:
        raise WrongResultError(
            f"rows and codecs of the sink's data files are {written[0]}, of the append's {written[1]}"
        )


def _written(folder: Path) -> tuple[int, set[str]]:
    files = [pq.read_metadata(path) for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    codecs = {file.row_group(0).column(number).compression for file in files for number in range(file.num_columns)}
    return sum(file.num_rows for file in files), codecs


def _records(size: Size) -> pa.Table:
    numbers = np.random.default_rng(size.seed).integers(0, 1 << 40, size.records)
    return pa.table({"id": numbers, "text": [f"{number:032x}" for number in numbers.tolist()]})


def _iceberg_sink(folder: Path, records: pa.Table) -> float:
    """Return the seconds of writing and committing by the sink, to an existing table."""
    place = IcebergPlace(folder)
    sink = place.sink()
    place.commit(sink, [place.prepare(sink, "t", 1, records.slice(0, 1).to_batches())])
    began = time.perf_counter()
    place.commit(sink, [place.prepare(sink, "t", 2, records.to_batches(max_chunksize=_BATCH_ROWS))])
    return time.perf_counter() - began


def _iceberg_append(folder: Path, records: pa.Table) -> float:
    """Return the seconds of pyiceberg's own append, to an existing table."""
    client = IcebergPlace(folder).client()
    client.create_namespace(NAMESPACE)
    client.create_table((NAMESPACE, "t"), records.schema).append(records.slice(0, 1))
    began = time.perf_counter()
    client.load_table((NAMESPACE, "t")).append(records)
    seconds = time.perf_counter() - began
    client.close()
    return seconds


def postgresql(size: Size, folder: Path, tell: Tell) -> Answer:
    """Measure rows of about 140 bytes to one new table each time, by the sink and by the client's own binary COPY."""
    from benchmarks.arms.postgresql import by_copy, by_sink, take  # noqa: PLC0415 - a driver that is an extra
    from distcommit.sinks.postgresql.sink import PostgresqlSink  # noqa: PLC0415

    batches = sink_batches(size.records, size.seed)
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix="postgresql-") as own_folder,
        PostgresServer() as server,
        server.connect() as connection,
    ):
        sink = PostgresqlSink(type="postgresql", url=server.url, password=SecretStr(server.password))
        for repeat in range(size.repeats):
            name = f"sink-{repeat}"
            seconds = {
                "postgresql": by_sink(sink, name, batches, Path(own_folder)),
                "copy": by_copy(connection, f"copy-{repeat}", batches),
            }
            for table in (name, f"copy-{repeat}"):
                take(connection, table, size.records)
            samples += [Sample(arm, 1, 1, repeat, spent) for arm, spent in seconds.items()]
            tell(f"{repeat}: {seconds}")
    middle = medians(samples)
    note = (
        "postgresql_over_copy: rows per second of the sink, with staging and sync, over those of psycopg's write_row;"
        " the server itself syncs nothing for either (fsync=off)"
    )
    return Answer({"postgresql_over_copy": middle["copy"] / middle["postgresql"]}, samples, [note])


def iceberg_json(size: Size, folder: Path, tell: Tell) -> Answer:
    """Measure JSON of 142 bytes to typed columns of one Iceberg table, by two processes, and one commit."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="iceberg-json-") as own_folder:
        for repeat in range(size.repeats):
            parts = typed_json(Path(own_folder, str(repeat)), size.records, _SLOTS)
            seconds = parts.pop("seconds")
            samples.append(Sample("iceberg_json", 1, 1, repeat, seconds, parts))
            tell(f"iceberg_json: {seconds:.2f} s, {parts}")
    close_opened()
    note = (
        f"iceberg_records_per_s: JSON of {RECORD_BYTES} bytes, seven typed columns, {_SLOTS} processes with batches in"
        " memory, from the first batch to the commit of all in one snapshot; goal 85,000 on 2 cores. parts: seconds of"
        " the attempts, of the JSON converter in each, of the commit, and of the processor in all"
    )
    return Answer({"iceberg_records_per_s": size.records / medians(samples)["iceberg_json"]}, samples, [note])


_QUESTIONS: dict[tuple[str, ...], Ask] = {
    ("postgresql_over_copy",): postgresql,
    ("iceberg_over_append", "catalog_wall_s", "catalog_wall_making_s"): iceberg,
    ("rest_catalog_wall_s",): iceberg_rest,
    ("delta_over_append", "delta_over_append_without_bounds"): delta,
    ("iceberg_records_per_s",): iceberg_json,
}
"""Question functions by their figures."""


def sinks(size: Size, folder: Path, tell: Tell, only: frozenset[str] = frozenset()) -> Results:
    """Measure each sink, one after the other.

    Args:
        size: the input of each.
        folder: on the measured disk.
        tell: receives each sample.
        only: the requested figures; all if empty.
    """
    figures: dict[str, float] = {}
    samples: list[Sample] = []
    notes: list[str] = []
    missing = dict.fromkeys(FIGURES, "nothing here measures it")
    for names, ask in _QUESTIONS.items():
        if only and not only.intersection(names):
            missing.update(dict.fromkeys(names, "not asked for"))
            continue
        try:
            answer = ask(size, folder, tell)
        except ServerUnavailableError as error:
            tell(f"{', '.join(names)}: {error}")
            missing.update(dict.fromkeys(names, str(error)))
            continue
        figures |= answer.figures
        samples += answer.samples
        notes += answer.notes
        missing |= dict.fromkeys(names, "its question gave no figure")
    return results_of(
        "sinks",
        figures,
        samples,
        seed=size.seed,
        folder=folder,
        parameters={"records": size.records, "tables": size.tables, "repeats": size.repeats},
        skipped={name: reason for name, reason in missing.items() if name not in figures},
        notes=notes,
    )
