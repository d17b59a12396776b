"""Table formats that add the same files.

They move nothing: the files are in their final place, and a log names them. Their timed work is the commit of known
files, as for the others. Their guarantees differ: readers see all of a commit or nothing, nothing of it is synced, and
no watermark moves with it.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.tree import SCHEMA, Shape, tree_datasets, write_dataset
from distcommit.core.work_units import StagedFile


class _TableFormat(Arm):
    _package: str

    def missing(self) -> str:
        return "" if find_spec(self._package) else f"the package {self._package} is not installed"

    def publish(self, shape: Shape, root: Path) -> Parts:
        output = root / "output"
        written = [
            file
            for dataset in tree_datasets(shape)
            for file in write_dataset(dataset, shape, f"{output}/{dataset.folder}")
        ]
        os.sync()
        seconds, names = self._add(root, written)
        if names != {file.final_path for file in written}:
            raise WrongResultError(f"{self.name} has {len(names)} files of {len(written)}")
        return {"seconds": seconds}

    def _add(self, root: Path, files: list[StagedFile]) -> tuple[float, set[str]]:
        """Return the seconds of the commit, and the table's file names, relative to the output."""
        raise NotImplementedError


class DeltaLake(_TableFormat):
    """delta-rs: a table and a transaction of add actions for each dataset, or one of each for all (`one_table`).

    The tables exist before the clock starts.
    """

    _package = "deltalake"

    def __init__(self, *, one_table: bool = False) -> None:
        self._one_table = one_table
        self.name = "deltalake_one_table" if one_table else "deltalake"

    def _add(self, root: Path, files: list[StagedFile]) -> tuple[float, set[str]]:
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 - optional
        from deltalake.transaction import AddAction, RemoveAction  # noqa: PLC0415

        schema, output = Schema.from_arrow(SCHEMA), root / "output"
        groups: dict[str, list[StagedFile]] = {}
        for file in files:
            groups.setdefault("" if self._one_table else file.final_path.partition("/")[0], []).append(file)
        tables = {folder: DeltaTable.create(str(output / folder), schema) for folder in groups}
        os.sync()
        began = time.perf_counter()
        for folder, group in groups.items():
            actions: list[AddAction | RemoveAction] = [
                AddAction(
                    file.final_path[len(folder) :].lstrip("/"),
                    file.size_bytes,
                    {},
                    file.mtime_ns // 1_000_000,
                    True,
                    '{"numRecords": 1}',
                )
                for file in group
            ]
            tables[folder].create_write_transaction(actions, mode="append", schema=schema)
        seconds = time.perf_counter() - began
        names: set[str] = set()
        for table in tables.values():
            table.update_incremental()
            names.update(uri.removeprefix("file://").removeprefix(f"{output}/") for uri in table.file_uris())
        return seconds, names


class PyIceberg(_TableFormat):
    """pyiceberg's `add_files` with an SQLite catalog: one table and one commit for all datasets, its cheapest way.

    It reads each file's footer.
    """

    name = _package = "pyiceberg"

    def _add(self, root: Path, files: list[StagedFile]) -> tuple[float, set[str]]:
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - optional

        catalog = SqlCatalog("bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
        catalog.create_namespace("bench")
        table = catalog.create_table("bench.files", SCHEMA)
        prefix = f"{root / 'output'}/"
        began = time.perf_counter()
        table.add_files([prefix + file.final_path for file in files], check_duplicate_files=False)
        seconds = time.perf_counter() - began
        paths = table.inspect.files()["file_path"].to_pylist()
        return seconds, {path.removeprefix(prefix) for path in paths}
