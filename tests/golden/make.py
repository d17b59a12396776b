"""Writes the golden files: `python -m tests.golden.make [folder]`.

They are made once for each format version and then never again: what is committed is what that version wrote. Bytes are
the same each time, with one version of pyarrow.
"""

from __future__ import annotations

import shutil
import sys
from decimal import Decimal
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.fs.upload_marker import encode_marker
from distcommit.sinks.files import avro_container
from distcommit.sinks.files.content import as_text, content_sum
from distcommit.stores.documents import encode_document
from distcommit.stores.run_datasets import encode_run_datasets
from distcommit.stores.run_times import encode_run_times
from distcommit.stores.segment import encode_segment
from distcommit.stores.tables import encode_plan, encode_task_states
from tests.golden import samples
from tests.golden.cuts import PIECE, ROOT
from tests.golden.job import make_job
from tests.golden.jobs import make_jobs
from tests.simulation.altered_files import encoded

GOLDEN = Path(__file__).parent / "v1"
GOLDEN_2 = Path(__file__).parent / "v2"
GOLDEN_3 = Path(__file__).parent / "v3"
GOLDEN_4 = Path(__file__).parent / "v4"
GOLDEN_5 = Path(__file__).parent / "v5"
GOLDEN_6 = Path(__file__).parent / "v6"
GOLDEN_7 = Path(__file__).parent / "v7"
GOLDEN_8 = Path(__file__).parent / "v8"
GOLDEN_9 = Path(__file__).parent / "v9"
GOLDEN_10 = Path(__file__).parent / "v10"
GOLDEN_11 = Path(__file__).parent / "v11"
GOLDEN_12 = Path(__file__).parent / "v12"
GOLDEN_13 = Path(__file__).parent / "v13"
GOLDEN_14 = Path(__file__).parent / "v14"
GOLDEN_16 = Path(__file__).parent / "v16"
GOLDEN_17 = Path(__file__).parent / "v17"
GOLDEN_18 = Path(__file__).parent / "v18"
GOLDEN_19 = Path(__file__).parent / "v19"
GOLDEN_REPLACED = Path(__file__).parent / "replaced_v1"
GOLDEN_RETAINED = Path(__file__).parent / "retained_v1"
GOLDEN_CUTS = Path(__file__).parent / "cuts_v1"
GOLDEN_FORMATS = Path(__file__).parent / "formats_v1"
GOLDEN_RUNS = Path(__file__).parent / "runs_v1"
GOLDEN_SCHEDULE = Path(__file__).parent / "schedule_v1"
GOLDEN_TIMES = Path(__file__).parent / "times_v1"
GOLDEN_JOBS = Path(__file__).parent / "jobs_v4"
GOLDEN_JOBS_3 = Path(__file__).parent / "jobs_v3"
"""Made by the last program of format 3, as those by this one: their positions have holes."""
GOLDEN_JOBS_2 = Path(__file__).parent / "jobs_v2"
"""By the last one of format 2; one into a sink of the user's own."""
GOLDEN_JOBS_1 = Path(__file__).parent / "jobs_v1"
"""By the last one of format 1."""


def make_6(folder: Path) -> None:
    """Writes what came with branches: version 4 of task states, and of sinks' commit steps version 2."""
    folder.mkdir(parents=True)
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES_WITH_BRANCHES))
    (folder / "intent-sink.seg").write_bytes(encode_segment(samples.SINK_SEGMENT_2))


def make_7(folder: Path) -> None:
    """Writes what came with records of runs."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(encode_document(samples.RUN_RECORD))


def make_runs(folder: Path) -> None:
    """Writes what came with beginnings of runs, requests to end them, and tables of their datasets."""
    folder.mkdir(parents=True)
    (folder / "begun.json").write_bytes(encode_document(samples.RUN_BEGINNING))
    (folder / "cancel.json").write_bytes(encode_document(samples.CANCEL_REQUEST))
    (folder / "run_datasets.parquet").write_bytes(encode_run_datasets(samples.RUN_DATASETS))


def make_schedule(folder: Path) -> None:
    """Writes what is asked of services that run a job."""
    folder.mkdir(parents=True)
    (folder / "paused.json").write_bytes(encode_document(samples.SCHEDULE_REQUEST))


def make_times(folder: Path) -> None:
    """Writes what came with tables of what tasks did when."""
    folder.mkdir(parents=True)
    (folder / "run_times.parquet").write_bytes(encode_run_times(samples.RUN_TIMES))


def make_9(folder: Path) -> None:
    """Writes what came with anchors and generations: segments of version 4."""
    folder.mkdir(parents=True)
    for name, segment in samples.SEGMENTS_4.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))


def make_8(folder: Path) -> None:
    """Writes what came with content sums (a field at the end of sequences, states and footers), and a file of each
    format with the sum of its records."""
    folder.mkdir(parents=True)
    for name, segment in samples.SEGMENTS_WITH_CONTENT.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))
    (folder / "footer.txt").write_text(samples.footer_with_content().to_metadata()["distcommit"], encoding="utf-8")
    for extension, rows in samples_of_content().items():
        total = as_text(content_sum(rows))
        footer = msgspec.structs.replace(samples.footer(), records=rows.num_rows, content_sum=total)
        with (folder / f"records.{extension}").open("wb") as file:
            if extension == "avro":
                avro_container.write_table(rows, "null", footer.to_metadata(), file.write)
            else:
                with pq.ParquetWriter(file, rows.schema) as writer:
                    writer.write_table(rows)
                    writer.add_key_value_metadata(footer.to_metadata())


def samples_of_content() -> dict[str, pa.Table]:
    """A column of each kind of type that the formats hold, by the file's extension."""
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


def make_formats(folder: Path) -> None:
    """Writes a file of each format that says at its end what others say in their footer."""
    folder.mkdir(parents=True)
    for extension, rows in samples_at_the_end().items():
        total = as_text(content_sum(rows))
        footer = msgspec.structs.replace(samples.footer(), records=rows.num_rows, content_sum=total)
        (folder / f"records.{extension}").write_bytes(encoded(rows, extension, footer.to_metadata()))


def samples_at_the_end() -> dict[str, pa.Table]:
    """The same for these formats, by how the names of files end."""
    every = samples_of_content()
    lines = every["parquet"].drop(["took", "days", "half", "pair", "map"])
    orc = every["avro"].drop(["time"]).append_column("price", every["parquet"]["price"])
    text = lines.drop(["headers"])
    return {"orc": orc, "jsonl.gz": lines, "jsonl.zst": lines, "csv.gz": text, "csv.zst": text}


def make_10(folder: Path) -> None:
    """Writes the manifest of version 2, in which others read work units than the partition that owns their bucket."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(encode_document(msgspec.structs.replace(samples.MANIFEST, version=2)))


def make_19(folder: Path) -> None:
    """Writes the manifest of version 3, in which buckets that were planned together share a file."""
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_bytes(encode_document(samples.MANIFEST))


def make_11(folder: Path) -> None:
    """Writes what came with constructs: version 5 of task states, and of footers version 2."""
    folder.mkdir(parents=True)
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES_WITH_CONSTRUCTS))
    (folder / "footer.txt").write_text(samples.footer_with_branches().to_metadata()["distcommit"], encoding="utf-8")


def make_12(folder: Path) -> None:
    """Writes what came with reprocess: tombstones, and of footers version 3."""
    folder.mkdir(parents=True)
    (folder / "tombstone.json").write_bytes(encode_document(samples.TOMBSTONE))
    (folder / "footer.txt").write_text(samples.footer_of_replaced().to_metadata()["distcommit"], encoding="utf-8")


def make_replaced(folder: Path) -> None:
    """Writes what came with publishers that replace: of tombstones version 2, and of footers version 4."""
    folder.mkdir(parents=True)
    (folder / "replacement.json").write_bytes(encode_document(samples.REPLACEMENT))
    (folder / "footer.txt").write_text(samples.footer_of_replacing().to_metadata()["distcommit"], encoding="utf-8")


def make_retained(folder: Path) -> None:
    """Writes what came with retention: of tombstones version 3, and what was asked for."""
    folder.mkdir(parents=True)
    (folder / "retained.json").write_bytes(encode_document(samples.RETAINED))
    (folder / "horizon.json").write_bytes(encode_document(samples.HORIZON))


def make_13(folder: Path) -> None:
    """Writes what came with optional branches and schemas: version 6 of task states, and fields at the end of sequences
    and states."""
    folder.mkdir(parents=True)
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES_WITH_OPTIONAL))
    for name, segment in samples.SEGMENTS_WITH_SCHEMAS.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))


def make_14(folder: Path) -> None:
    """Writes what came with what could not be read: segments of version 5, and a state that shows it."""
    folder.mkdir(parents=True)
    for name, segment in samples.SEGMENTS_5.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))


def make_16(folder: Path) -> None:
    """Writes what came with composite positions, and with plans that do not know how far a work unit goes."""
    folder.mkdir(parents=True)
    (folder / "set-watermark.seg").write_bytes(encode_segment(samples.COMPOSITE_SEGMENT))
    (folder / "plan.parquet").write_bytes(encode_plan(samples.OPEN_ENDED_PLAN))


def make_18(folder: Path) -> None:
    """Writes what came with columns that are inferred."""
    folder.mkdir(parents=True)
    (folder / "schema.json").write_bytes(encode_document(samples.KEPT_SCHEMA))


def make_17(folder: Path) -> None:
    """Writes what came with bases: of sinks' commit steps version 3, and fields at the end of sequences and
    states."""
    folder.mkdir(parents=True)
    for name, segment in samples.SEGMENTS_WITH_TARGETS.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))
    (folder / "intent-sink.seg").write_bytes(encode_segment(samples.SINK_SEGMENT_3))


def make_5(folder: Path) -> None:
    """Writes what came with reasons of what is pending (segments of version 3, a state that shows an outage) and with
    pinned settings: the record of them."""
    folder.mkdir(parents=True)
    (folder / "settings.json").write_bytes(encode_document(samples.RECORDED_SETTINGS))
    for name, segment in samples.SEGMENTS_3.items():
        (folder / f"{name}.seg").write_bytes(encode_segment(segment))


def make_4(folder: Path) -> None:
    """Writes what came with at-least-once: an INTENT of what is published already."""
    folder.mkdir(parents=True)
    (folder / "intent-published.seg").write_bytes(encode_segment(samples.PUBLISHED_SEGMENT))


def make_3(folder: Path) -> None:
    """Writes what came with holes (version 3 of task states, and fields at the end of skipped ranges and footers),
    segments of version 2, and the marks in a job's folders."""
    (folder / "segments").mkdir(parents=True)
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES_WITH_HOLES))
    (folder / "intent-holes.seg").write_bytes(encode_segment(samples.HOLES_SEGMENT))
    (folder / "footer.txt").write_text(samples.footer_with_holes().to_metadata()["distcommit"], encoding="utf-8")
    for name, segment in samples.SEGMENTS_2.items():
        (folder / "segments" / f"{name}.seg").write_bytes(encode_segment(segment))
    (folder / "owner.json").write_bytes(encode_document(samples.OWNER))


def make_2(folder: Path) -> None:
    """Writes the golden files of version 2: of task states, and of renames; and of what came later: the type of step
    that sinks have, and the marker of uploads."""
    folder.mkdir(parents=True)
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES_WITH_INFOS))
    (folder / "intent-sink.seg").write_bytes(encode_segment(samples.SINK_SEGMENT))
    (folder / "intent-rename.seg").write_bytes(encode_segment(samples.RENAME_SEGMENT))
    (folder / "upload.json").write_bytes(encode_marker(samples.UPLOAD))


def make(folder: Path) -> None:
    """Writes all golden files of version 1 into a folder that has none yet."""
    (folder / "segments").mkdir(parents=True)
    for name, segment in samples.SEGMENTS.items():
        (folder / "segments" / f"{name}.seg").write_bytes(encode_segment(segment))
    (folder / "plan.parquet").write_bytes(encode_plan(samples.PLAN))
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES))
    (folder / "manifest.json").write_bytes(encode_document(samples.MANIFEST))
    (folder / "store.json").write_bytes(encode_document(samples.MARKER))
    (folder / "lock.json").write_bytes(msgspec.json.encode(samples.LOCK))
    (folder / "footer.txt").write_text(samples.footer().to_metadata()["distcommit"], encoding="utf-8")
    (folder / "offsets.txt").write_text(samples.offsets().to_text(), encoding="utf-8")
    make_job(folder / "job")
    for name in ("progress", "run_datasets", "run_times", "cuts"):  # display only; not yet written by version 1
        shutil.rmtree(folder / "job" / "store" / name, ignore_errors=True)


def make_cuts(folder: Path) -> None:
    """What readers go by."""
    folder.mkdir(parents=True)
    (folder / "root.json").write_bytes(encode_document(ROOT))
    (folder / "piece.json").write_bytes(encode_document(PIECE))


if __name__ == "__main__":
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN.parent
    writers = {
        GOLDEN: make,
        GOLDEN_2: make_2,
        GOLDEN_3: make_3,
        GOLDEN_4: make_4,
        GOLDEN_5: make_5,
        GOLDEN_6: make_6,
        GOLDEN_7: make_7,
        GOLDEN_8: make_8,
        GOLDEN_9: make_9,
        GOLDEN_10: make_10,
        GOLDEN_11: make_11,
        GOLDEN_12: make_12,
        GOLDEN_13: make_13,
        GOLDEN_14: make_14,
        GOLDEN_16: make_16,
        GOLDEN_17: make_17,
        GOLDEN_18: make_18,
        GOLDEN_19: make_19,
        GOLDEN_REPLACED: make_replaced,
        GOLDEN_RETAINED: make_retained,
        GOLDEN_CUTS: make_cuts,
        GOLDEN_FORMATS: make_formats,
        GOLDEN_RUNS: make_runs,
        GOLDEN_SCHEDULE: make_schedule,
        GOLDEN_TIMES: make_times,
        GOLDEN_JOBS: make_jobs,
    }
    for name, write in ((folder.name, write) for folder, write in writers.items()):
        if (parent / name).exists():
            sys.stderr.write(f"{parent / name} is there and stays: golden files are never overwritten\n")
        else:
            write(parent / name)
