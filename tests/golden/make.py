"""Write the golden files: `python -m tests.golden.make [folder]`.

They are written once for each version of the formats and never change. With one version of pyarrow the bytes are
reproducible.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.avro import container_writer
from distcommit.fs.object_stores.staged_upload_marker import encode_marker
from distcommit.sinks.files.content_sum import as_text, content_sum
from distcommit.sinks.files.footer import METADATA_KEY
from distcommit.stores.history.run_table import encode_task_rows
from distcommit.stores.logs.segment_format import encode_segment
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.plan_and_task_state_encoding import encode_plan, encode_task_states
from tests.golden import samples
from tests.golden.job import make_job
from tests.golden.jobs import leave_out_display, make_jobs
from tests.simulation.altered_files import encoded

GOLDEN = Path(__file__).parent / "v1"
JOBS = GOLDEN / "jobs"

DOCUMENTS: dict[str, msgspec.Struct] = {
    "store": samples.MARKER,
    "settings": samples.RECORDED_SETTINGS,
    "owner": samples.OWNER,
    "manifest": samples.MANIFEST,
    "tombstone": samples.TOMBSTONE,
    "replacement": samples.REPLACEMENT,
    "expired": samples.RETAINED,
    "compaction": samples.COMPACTION,
    "expiry-request": samples.HORIZON,
    "schema": samples.KEPT_SCHEMA,
    "run": samples.RUN_RECORD,
    "begun": samples.RUN_BEGINNING,
    "cancel": samples.CANCEL_REQUEST,
    "reading": samples.READING_NOTE,
    "paused": samples.SCHEDULE_REQUEST,
    "snapshot-manifest": samples.ROOT,
    "snapshot-delta": samples.PIECE,
}
"""Each kind of document, by the name of its golden file."""


def stored_texts() -> Mapping[str, str]:
    """Return the texts in the metadata of data files."""
    return {
        "footer": samples.footer().to_metadata()[METADATA_KEY],
        "footer-replacing": samples.footer_of_replacing().to_metadata()[METADATA_KEY],
        "offsets": samples.offsets().to_text(),
    }


def make_segments(folder: Path) -> None:
    """Write a log segment of each kind of record."""
    for name, segment in samples.SEGMENTS.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))


def make_documents(folder: Path) -> None:
    """Write each kind of document, the marker of an upload, and a lock record."""
    for name, document in DOCUMENTS.items():
        (folder / f"{name}.json").write_bytes(encode_document(document))
    (folder / "upload.json").write_bytes(encode_marker(samples.UPLOAD))
    (folder / "lock.json").write_bytes(msgspec.json.encode(samples.LOCK))


def make_tables(folder: Path) -> None:
    """Write each kind of table."""
    (folder / "plan.parquet").write_bytes(encode_plan(samples.PLAN))
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES))
    (folder / "run_table.parquet").write_bytes(encode_task_rows(samples.TASK_ROWS))


def make_texts(folder: Path) -> None:
    """Write the texts of the metadata of data files."""
    for name, text in stored_texts().items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def make_ledgers(folder: Path) -> None:
    """Write the parts of the ledgers of tables, a row of Kafka's, and the column `covered` of a database's."""
    for name, part in samples.ledger_parts().items():
        (folder / f"{name}.json").write_bytes(msgspec.json.encode(part))
    (folder / "database-covered.json").write_bytes(msgspec.json.encode(samples.covered()))


def make_properties(folder: Path) -> None:
    """Write the property of each kind of maintenance unit."""
    for name, kind in samples.MAINTENANCE.items():
        (folder / f"{name}.json").write_text(kind.unit("orders", "", 3).properties["maintenance"], encoding="utf-8")


def make_files(folder: Path) -> None:
    """Write a data file of each format, with its footer and the checksum of its records."""
    for extension, rows in data_samples().items():
        total = as_text(content_sum(rows))
        metadata = msgspec.structs.replace(samples.footer(), records=rows.num_rows, content_sum=total).to_metadata()
        with (folder / f"records.{extension}").open("wb") as file:
            if extension == "avro":
                container_writer.write_table(rows, "null", metadata, file.write)
            elif extension == "parquet":
                with pq.ParquetWriter(file, rows.schema) as writer:
                    writer.write_table(rows)
                    writer.add_key_value_metadata(metadata)
            else:
                file.write(encoded(rows, extension, metadata))


def data_samples() -> dict[str, pa.Table]:
    """Return the records of each data file, by the end of its file name."""
    return {**samples_of_content(), **samples_at_the_end()}


def samples_of_content() -> dict[str, pa.Table]:
    """Return a column of each type that the formats support, by file extension."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "key": pa.array([b"k", None, b""], pa.binary()),
        "text": pa.array(["\u00fc", "", None], pa.string()),
        "headers": pa.array([[{"key": "a", "value": b"1"}, None], [], None], pa.list_(header)),
        "flag": pa.array([True, None, False]),
        "offset": pa.array([5, 6, -(2**63)], pa.int64()),
        "small": pa.array([255, None, 0], pa.uint8()),
        "ratio": pa.array([0.1, float("nan"), -0.0]),
        "single": pa.array([0.5, None, float("-inf")], pa.float32()),
        "day": pa.array([-1, None, 2**31 - 1], pa.date32()),
        "time": pa.array([1, None, -(2**62)], pa.timestamp("ms", "UTC")),
        "local": pa.array([1, None, 2], pa.timestamp("us")),
        "kind": pa.array(["create", "create", None]).dictionary_encode(),
    }
    more = {
        "price": pa.array([Decimal("-1.25"), None, Decimal("9999999.99")], pa.decimal128(9, 2)),
        "huge": pa.array([Decimal(-(10**60)), None, Decimal(1)], pa.decimal256(70, 0)),
        "seconds": pa.array([5, None, -5], pa.timestamp("s", "Europe/Brussels")),
        "nanos": pa.array([5, None, -5], pa.timestamp("ns")),
        "at": pa.array([5, None, 86_399], pa.time32("s")),
        "took": pa.array([5, None, -5], pa.duration("us")),
        "days": pa.array([86_400_000, None, 0], pa.date64()),
        "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
        "half": pa.array([0.5, None, 2.0], pa.float16()),
        "fixed": pa.array([b"abc", None, b"\0\0\0"], pa.binary(3)),
        "pair": pa.array([[1, 2], [None, 3], [4, 5]], pa.list_(pa.int16(), 2)),
        "map": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
    }
    return {"avro": pa.table(columns), "parquet": pa.table({**columns, **more})}


def samples_at_the_end() -> dict[str, pa.Table]:
    """Return the same for these formats, by the ends of file names."""
    every = samples_of_content()
    lines = every["parquet"].drop(["took", "days", "half", "pair", "map"])
    orc = every["avro"].drop(["time"]).append_column("price", every["parquet"]["price"])
    text = lines.drop(["headers"])
    return {"orc": orc, "jsonl.gz": lines, "jsonl.zst": lines, "csv.gz": text, "csv.zst": text}


def make_stopped_job(folder: Path) -> None:
    """Write the job that a kill stopped half-way, without the display columns of its tables."""
    make_job(folder)
    leave_out_display(folder)


WRITERS: dict[str, Callable[[Path], None]] = {
    "segments": make_segments,
    "documents": make_documents,
    "tables": make_tables,
    "texts": make_texts,
    "ledgers": make_ledgers,
    "properties": make_properties,
    "files": make_files,
    "job": make_stopped_job,
    "jobs": make_jobs,
}
"""The writer of each golden folder."""


def make(folder: Path, *names: str) -> None:
    """Write golden folders (by default all) that do not exist yet."""
    for name in names or WRITERS:
        (folder / name).mkdir(parents=True)
        WRITERS[name](folder / name)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    if target.exists():
        sys.exit(f"{target} exists and golden files are never overwritten: move it away, or name another folder")
    make(target)
