"""The outcome of each dataset in a run: a Parquet table, for operators and for programs that read such tables.

<store>/run_datasets/run=<run id>/<phase>-<partition>.parquet

Executors write it, one file per partition and phase with outcomes, so that each process needs memory for its own part
alone. Nothing depends on it. The row of a later phase replaces that of an earlier one.
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
"""Phases that report outcomes of datasets, in order."""
_TEXT = 1000


class RunDataset(msgspec.Struct, frozen=True):
    """The outcome of a dataset in a run.

    Attributes:
        dataset: the dataset.
        bucket: its bucket.
        outcome: `replayed`, `published`, `partly published`, `unchanged`, `held`, `failed`, `left` (pending),
            `quarantined` or `skipped`.
        records: published records.
        files: published files.
        positions_lost: source positions that its plan skipped as lost.
        kind: kind of the failure, if it was not completed.
        reason: reason of the failure.
    """

    dataset: str
    bucket: int
    outcome: str
    records: int = 0
    files: int = 0
    positions_lost: int = 0
    kind: str = ""
    reason: str = ""


def run_datasets_folder(store_root: str, run_id: str) -> str:
    """Return the folder of a run's table."""
    return f"{store_root}/{RUN_DATASETS}/{run_name(run_id)}"


def put_run_datasets(
    fs: FileSystem, store_root: str, run_id: str, phase: str, partition: int, rows: Sequence[RunDataset]
) -> None:
    """Put the outcomes of a partition's datasets in a phase, unless a twin has. A failure is only logged."""
    if not rows:
        return
    folder = run_datasets_folder(store_root, run_id)
    try:
        fs.make_folders(folder)
        fs.put_if_absent(f"{folder}/{run_datasets_name(phase, partition)}", encode_run_datasets(rows))
    except OSError as error:
        logger.warning(
            "outcomes of datasets were not written: %s", error, extra={"phase": phase, "partition": partition}
        )


def encode_run_datasets(rows: Sequence[RunDataset]) -> bytes:
    """Return the rows as a Parquet file."""
    columns = {
        "dataset": [plain_text(row.dataset) for row in rows],
        "kind": [plain_text(row.kind, _TEXT) for row in rows],
        "reason": [reason_text(row.reason, _TEXT) for row in rows],
    }
    for name in ("bucket", "outcome", "records", "files", "positions_lost"):
        columns[name] = [getattr(row, name) for row in rows]
    return encode_rows(RUN_DATASETS_SCHEMA, columns)


def decode_run_datasets(data: bytes, path: str) -> list[RunDataset]:
    """Return the rows of a file.

    Raises:
        UnknownVersionError, CorruptError: if `encode_run_datasets` did not write the file.
    """
    rows = decode_rows(data, RUN_DATASETS_SCHEMA, "a table of outcomes of datasets", path)
    return [RunDataset(*row) for row in rows]


def read_run_datasets(fs: FileSystem, store_root: str, run_id: str) -> Iterator[list[RunDataset]]:
    """Yield the rows of a run file by file, those of the last phase first: the first row of a dataset is valid.

    Raises:
        UnknownVersionError, CorruptError: if a file cannot be read.
    """
    folder = run_datasets_folder(store_root, run_id)
    for name in _last_phase_first(entry.name for entry in fs.list_folder(folder)):
        path = f"{folder}/{name}"
        yield decode_run_datasets(fs.read(path), path)


def _last_phase_first(names: Iterable[str]) -> list[str]:
    tables = [name for name in names if run_datasets_phase(name) in PHASES]
    return sorted(tables, key=lambda name: (-PHASES.index(run_datasets_phase(name)), name))
