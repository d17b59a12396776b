"""What became of each dataset in a run: a Parquet table, for people and for the programs that read such tables.

<store>/run_datasets/run=<run id>/<phase>-<partition>.parquet

Executors write it, one file for each partition and phase that has anything to tell, so that no process ever holds more
than its own part. Nothing depends on it. What a later phase says of a dataset takes the place of what an earlier one
said.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from distcommit.core.errors import plain_text, reason_text
from distcommit.core.ports import FileSystem
from distcommit.protocol.paths.store import RUN_DATASETS, run_datasets_name, run_datasets_phase, run_name
from distcommit.stores.history.run_tables import decode_rows, encode_rows
from distcommit.stores.state.table_schemas import RUN_DATASETS_SCHEMA

logger = logging.getLogger(__name__)

PHASES = ("recover", "plan", "drain", "publish")
"""Phases that tell what became of datasets, in their order."""
_TEXT = 1000


class RunDataset(msgspec.Struct, frozen=True):
    """A dataset in a run. `outcome`: `replayed`, `published`, `partly published`, `unchanged`, `held`, `failed`, `left`
    (pending), `quarantined` or `skipped`. `kind` and `reason`: why, if it did not go through as a whole. `records`,
    `files`: published of it. `positions_lost`: given up by its plan."""

    dataset: str
    bucket: int
    outcome: str
    records: int = 0
    files: int = 0
    positions_lost: int = 0
    kind: str = ""
    reason: str = ""


def run_datasets_folder(store_root: str, run_id: str) -> str:
    """Where a run's table is."""
    return f"{store_root}/{RUN_DATASETS}/{run_name(run_id)}"


def put_run_datasets(
    fs: FileSystem, store_root: str, run_id: str, phase: str, partition: int, rows: Sequence[RunDataset]
) -> None:
    """Leaves what became of a partition's datasets in a phase; a twin's stands if it was there first. Where that fails
    it is only told."""
    if not rows:
        return
    folder = run_datasets_folder(store_root, run_id)
    try:
        fs.make_folders(folder)
        fs.put_if_absent(f"{folder}/{run_datasets_name(phase, partition)}", encode_run_datasets(rows))
    except OSError as error:
        logger.warning(
            "what became of datasets can't be kept: %s", error, extra={"phase": phase, "partition": partition}
        )


def encode_run_datasets(rows: Sequence[RunDataset]) -> bytes:
    """The rows as a Parquet file."""
    columns = {
        "dataset": [plain_text(row.dataset) for row in rows],
        "kind": [plain_text(row.kind, _TEXT) for row in rows],
        "reason": [reason_text(row.reason, _TEXT) for row in rows],
    }
    for name in ("bucket", "outcome", "records", "files", "positions_lost"):
        columns[name] = [getattr(row, name) for row in rows]
    return encode_rows(RUN_DATASETS_SCHEMA, columns)


def decode_run_datasets(data: bytes, path: str) -> list[RunDataset]:
    """The rows of a file.

    Raises:
        UnknownVersionError, CorruptError: if the file is not one that `encode_run_datasets` wrote.
    """
    found = decode_rows(data, RUN_DATASETS_SCHEMA, "a table of what became of datasets", path)
    return [RunDataset(*row) for row in found]


def read_run_datasets(fs: FileSystem, store_root: str, run_id: str) -> Iterator[list[RunDataset]]:
    """What is kept of a run's datasets, file by file: those of the last phase first, so that the first row of a dataset
    counts.

    Raises:
        UnknownVersionError, CorruptError: if a file can't be read.
    """
    folder = run_datasets_folder(store_root, run_id)
    for name in _in_order(entry.name for entry in fs.list_folder(folder)):
        path = f"{folder}/{name}"
        yield decode_run_datasets(fs.read(path), path)


def _in_order(names: Iterable[str]) -> list[str]:
    known = [name for name in names if run_datasets_phase(name) in PHASES]
    return sorted(known, key=lambda name: (-PHASES.index(run_datasets_phase(name)), name))
