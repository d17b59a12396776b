"""Records with typed fields, as JSON and as Avro, in Kafka's form, and the expected output of a flow."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from xxhash import xxh3_64_hexdigest

from benchmarks.workloads.topics import FIRST_DAY_MS
from distcommit.avro import container_reader
from distcommit.core.interfaces.provenance import Provenance
from distcommit.core.interfaces.source import Extraction, Extractor, Source
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import DatasetPlan, WorkUnit
from distcommit.sources.kafka.batch_schema import BATCH_SCHEMA

NOISE = "noise"
"""The kind of every tenth record, which a filter removes."""
BATCH_RECORDS = 10_000
"""The largest batch of the product's Kafka extractor."""

JSON_FIELDS = {
    "id": "int64",
    "at": "timestamp",
    "kind": "string",
    "n": "int64",
    "code": "string",
    "ratio": "float64",
    "total": "float64",
    "ok": "bool",
    "user": "string",
    "path": "string",
    "note": "string",
}
CASTS = {"n": "int32", "code": "int64"}
TYPED: pa.Schema = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("n", pa.int32()),
        ("code", pa.int64()),
        ("ratio", pa.float64()),
        ("total", pa.float64()),
        ("ok", pa.bool_()),
        ("user", pa.string()),
        ("path", pa.string()),
        ("note", pa.string()),
    ]
)
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "code", "type": ["null", "long"]},
        {"name": "ratio", "type": "double"},
        {"name": "total", "type": "double"},
        {"name": "ok", "type": "boolean"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "path", "type": "string"},
        {"name": "note", "type": "string"},
    ],
}
_KINDS = ("view", "click", "buy", "search", "view", "click", "view", "login", "view", NOISE)
_TEXT_BYTES = 1 << 20


def events(records: int, seed: int, note_bytes: int) -> Iterator[dict[str, Any]]:
    """Return records whose ids count from 0. `note_bytes`: of the one long text, which compresses to about a half."""
    chance = random.Random(seed)
    text = chance.randbytes(_TEXT_BYTES // 2).hex()
    for number in range(records):
        start = number * 7919 % (_TEXT_BYTES - max(note_bytes, 1))
        cents = number * 7907 % 10_000_000
        yield {
            "id": number,
            "at": FIRST_DAY_MS * 1000 + number * 1_234_567 % 86_400_000_000,
            "kind": _KINDS[number % len(_KINDS)],
            "n": number * 31 % 1_000_003,
            "code": number * 104_729 % 10_000_000_000,
            "ratio": (number % 1000) / 8,
            "total": cents / 4,
            "ok": number % 3 == 0,
            "user": f"user-{number * 31 % 50_021:05d}",
            "path": f"/shop/{_KINDS[number % 7]}/{number * 17 % 2003}",
            "note": text[start : start + note_bytes],
        }


def as_json(found: Iterator[dict[str, Any]]) -> list[bytes]:
    """Return one JSON object each: times in ISO 8601, codes as text."""
    encode = msgspec.json.Encoder().encode
    return [
        encode(item | {"at": _iso(item["at"]), "code": f"{item['code']:010d}"})  # some 280 bytes beside the note
        for item in found
    ]


def as_avro(found: Iterator[dict[str, Any]], schema_id: int) -> list[bytes]:
    """Return Avro's binary form in Confluent's frame."""
    schema, head, values = fastavro.parse_schema(AVRO_SCHEMA), b"\0" + schema_id.to_bytes(4, "big"), list[bytes]()
    for item in found:
        body = io.BytesIO(head)
        body.seek(len(head))
        fastavro.schemaless_writer(body, schema, item | {"at": datetime.fromtimestamp(item["at"] / 1e6, UTC)})
        values.append(body.getvalue())
    return values


def _iso(micros: int) -> str:
    hour, minute, second = micros // 3_600_000_000 % 24, micros // 60_000_000 % 60, micros % 60_000_000 / 1e6
    return f"{_day()}T{hour:02d}:{minute:02d}:{second:09.6f}Z"


@cache
def _day() -> str:
    return f"{datetime.fromtimestamp(FIRST_DAY_MS / 1000, UTC):%Y-%m-%d}"


def as_batches(values: Sequence[bytes]) -> list[pa.RecordBatch]:
    """Return records of one partition, as the product's Kafka extractor returns them."""
    batches = []
    for begin in range(0, len(values), BATCH_RECORDS):
        part = values[begin : begin + BATCH_RECORDS]
        rows = len(part)
        columns = [
            pa.array([b"%d" % number for number in range(begin, begin + rows)], pa.binary()),
            pa.array(part, pa.binary()),
            pa.nulls(rows, BATCH_SCHEMA.field("headers").type),
            pa.repeat(pa.scalar(0, pa.int32()), rows),
            pa.array(range(begin, begin + rows), pa.int64()),
            pa.repeat(pa.scalar(FIRST_DAY_MS, BATCH_SCHEMA.field("kafka_timestamp").type), rows),
            pa.repeat(pa.scalar("create", pa.string()), rows),
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=BATCH_SCHEMA))
    return batches


@dataclass(frozen=True)
class HeldSource(Source, Extractor):
    """A source of existing batches of one partition: reading them costs nothing."""

    batches: Sequence[pa.RecordBatch]
    provenance = Provenance("kafka_partition", "kafka_offset")

    @property
    def unit(self) -> WorkUnit:
        """Return a work unit of all of them."""
        records = sum(batch.num_rows for batch in self.batches)
        end = 1 + max(pc.max(batch.column(self.provenance.offset_column)).as_py() for batch in self.batches)
        return WorkUnit("00000_000001", "events", Watermark({"0": 0}), Watermark({"0": end}), records)

    def plan(self, owned: object, states: object) -> Iterator[DatasetPlan]:
        return iter(())

    def open(self) -> Extractor:
        return self

    def extract(self, unit: WorkUnit) -> Extraction:
        return _HeldExtraction(self)

    def close(self) -> None:
        pass


@dataclass
class _HeldExtraction(Extraction):
    source: HeldSource
    bytes: int = field(default=0)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.source.batches:
            self.bytes += batch.nbytes
            yield batch

    def actual_high(self) -> Watermark:
        return self.source.unit.expected_high

    def bytes_read(self) -> int:
        return self.bytes


def expected_digest(found: Iterator[dict[str, Any]], *, with_noise: bool = True) -> str:
    """Return the digest of files with these records, or those of them that pass the filter."""
    passing = (item for item in found if with_noise or item["kind"] != NOISE)
    return _digest(pa.concat_tables(pa.Table.from_pylist(part, TYPED) for part in _batched(passing)))


def _batched(found: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while part := list(islice(found, BATCH_RECORDS)):
        yield part


def digests_of(folder: Path) -> dict[str, str]:
    """Return the digests of the typed columns of the files below a folder, in any order of records, by format.

    Files of a job's store do not count.
    """
    paths = [path for path in folder.rglob("*.*") if path.relative_to(folder).parts[0] != "store"]
    tables = {
        "parquet": [pq.ParquetFile(p).read(TYPED.names).cast(TYPED) for p in paths if p.suffix == ".parquet"],
        "avro": [_read_avro(path) for path in paths if path.suffix == ".avro"],
    }
    return {kind: _digest(pa.concat_tables(pieces)) for kind, pieces in tables.items() if pieces}


def _read_avro(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:  # fastavro reads no zstd without another package
        return container_reader.read_table(file).select(TYPED.names).cast(TYPED)


def _digest(rows: pa.Table) -> str:
    ordered = rows.take(pc.sort_indices(rows["id"])).combine_chunks()
    sums = [xxh3_64_hexdigest(_bytes_of(ordered.slice(begin, 4096))) for begin in range(0, ordered.num_rows, 4096)]
    return f"{ordered.num_rows} records, xxh3 {xxh3_64_hexdigest(''.join(sums).encode())}"


def _bytes_of(rows: pa.Table) -> memoryview:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([c.combine_chunks() for c in rows.columns], schema=TYPED))
    return memoryview(stream.getvalue())
