"""Snapshot readers: the records of one or many datasets at one snapshot, without Spark and the client of a source."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from distcommit.app.job_file.environment_variables import unset_variables
from distcommit.app.job_file.folder_locations import normal_location, open_folders, path_of
from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.load_job_file import load_tree, parse_config
from distcommit.app.reading.live_files import keeps_names_apart, live_files, published_files
from distcommit.app.reading.snapshot_choice import AsOf, choose_snapshot
from distcommit.app.reading.table_union import joined_schema, joined_table
from distcommit.core.errors import ConfigurationError, SnapshotExpiredError, StaleStoreError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.bucket_and_dataset_snapshots import DatasetSnapshot
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import MAIN_BRANCH, error_branch_of, is_error_branch
from distcommit.sinks.files.footer import read_records
from distcommit.stores.folders.run_markers import Marker, read_markers
from distcommit.stores.logs.fencing import newer_runs, older_output
from distcommit.stores.snapshots.expiry_requests import expiry_note
from distcommit.stores.snapshots.snapshot_deltas import read_chain
from distcommit.stores.snapshots.snapshot_manifests import SnapshotBucket, SnapshotManifest, snapshot_manifest_path
from distcommit.stores.state.job_store import JobStore, Roots, open_any_store
from distcommit.stores.state.recorded_fixed_settings import read_settings

if TYPE_CHECKING:
    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_TRIES = 5
_BRANCH_TYPE = re.compile(r"fork\.branches\.([^.]+)\.sink\.type")
_BY_SPARK = {".parquet": "parquet", ".orc": "orc"}


class Snapshot:
    """The datasets of one snapshot: exactly the records that were committed up to it.

    The content of a snapshot never changes. Its files are deleted only after the snapshot has expired. A late reader
    gets `SnapshotExpiredError`, never a part of the records. Methods with the parameter `dataset` read all datasets by
    default, and raise ConfigurationError if the snapshot does not have the dataset.

    Attributes:
        epoch, phase: run that created the snapshot, after its replay (1) or at its end (2).
        time_ms: time of creation, in milliseconds since 1970.
        datasets: done epoch and watermark by dataset.
        branch: branch that is read.
        exactly_once: False if runs delivered at least once. Then records may be duplicated, and failed work units may
            have left some of their files.
    """

    def __init__(
        self,
        store: JobStore,
        location: str,
        root: SnapshotManifest,
        datasets: Mapping[str, DatasetSnapshot],
        branch: str,
    ) -> None:
        self._store, self._place, self._manifest = store, location, root
        self.epoch, self.phase, self.time_ms = root.epoch, int(root.phase), root.time_ms
        self.datasets, self.branch = dict(sorted(datasets.items())), branch
        self.exactly_once = not read_markers(store.fs, store.roots.output)[Marker.UNSEALED]

    @property
    def file_system(self) -> FileSystem:
        """The file system of `paths`."""
        return self._store.fs

    @property
    def location(self) -> str:
        """The output folder of the job, as a local path or a URL."""
        return self._place

    def files(self, dataset: str | None = None) -> list[str]:
        """Return paths or URLs of the live files, sorted. Raises SnapshotExpiredError if the snapshot has expired."""
        return [path for paths in self.files_by_dataset(dataset).values() for path in paths]

    def files_by_dataset(self, dataset: str | None = None) -> dict[str, list[str]]:
        """Return the paths or URLs of the live files by dataset. Raises SnapshotExpiredError if the snapshot has
        expired.
        """
        scheme_and_host = self._place.removesuffix(path_of(self._place))
        return {urn: [f"{scheme_and_host}{path}" for path in paths] for urn, paths in self.paths(dataset).items()}

    def paths(self, dataset: str | None = None) -> dict[str, list[str]]:
        """Return the live files by dataset, as paths on `file_system`. Raises SnapshotExpiredError if the snapshot has
        expired.
        """
        fs, output = self._store.fs, self._store.roots.output
        named = [self._named(dataset)] if dataset is not None else list(self.datasets)
        epochs = [(urn, self.datasets[urn].done_epoch) for urn in named]
        paths_of_datasets = run_parallel(
            fs.parallel_calls, lambda one: live_files(fs, output, one[0], one[1], self.branch), epochs
        )
        if not keeps_names_apart(fs, output):
            paths_of_datasets = run_parallel(
                fs.parallel_calls, lambda one: published_files(fs, *one), [*zip(named, paths_of_datasets, strict=True)]
            )
        self._require_unexpired()
        return dict(zip(named, paths_of_datasets, strict=True))

    def to_arrow(self, dataset: str | None = None) -> pa.Table:
        """Return all records, with null in columns that a file lacks.

        Raises:
            SnapshotExpiredError: if the snapshot has expired.
            ConfigurationError: if a column has incompatible types.
        """
        fs = self._store.fs
        paths = [path for dataset_paths in self.paths(dataset).values() for path in dataset_paths]
        try:
            tables = run_parallel(fs.parallel_calls, partial(read_records, fs), paths)
        except FileNotFoundError as error:
            raise self._expired_error(str(error)) from error
        return joined_table(tables)

    def to_pandas(self, dataset: str | None = None) -> pd.DataFrame:
        """Return all records as a pandas frame. Raises SnapshotExpiredError if the snapshot has expired, and
        ConfigurationError if a column has incompatible types.
        """
        return self.to_arrow(dataset).to_pandas()

    def to_pyarrow_dataset(self, dataset: str | None = None) -> ds.Dataset:
        """Return a pyarrow dataset. If all files are local Parquet files, it reads them lazily, and raises
        FileNotFoundError if the snapshot has expired meanwhile. Otherwise all records are read into memory at once.
        """
        import pyarrow.dataset as ds  # noqa: PLC0415 - it brings pandas along

        paths = [path for dataset_paths in self.paths(dataset).values() for path in dataset_paths]
        if self._store.fs.scheme != "file" or not paths or not all(path.endswith(".parquet") for path in paths):
            return ds.dataset(self.to_arrow(dataset))
        try:
            schemas = [pq.read_schema(path) for path in paths]
        except FileNotFoundError as error:
            raise self._expired_error(str(error)) from error
        return ds.dataset(paths, schema=joined_schema(schemas), format="parquet")

    def to_duckdb(
        self, dataset: str | None = None, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return a DuckDB relation. Needs the package extra `distcommit[sql]`."""
        import duckdb  # noqa: PLC0415 - an extra

        return (connection or duckdb.connect()).from_arrow(self.to_pyarrow_dataset(dataset))

    def to_spark(self, spark: SparkSession, dataset: str | None = None) -> DataFrame:
        """Return a Spark frame. If all files are Parquet, or all are ORC, Spark reads them, on S3 as s3a://. Otherwise
        this process reads all records into memory.

        Raises:
            SnapshotExpiredError: if the snapshot has expired.
            ConfigurationError: if Spark would have to read az://, or a column has incompatible types.
        """
        files = self.files(dataset)
        endings = {file[file.rindex(".") :] for file in files}
        form = _BY_SPARK.get(endings.pop()) if len(endings) == 1 else None
        if form is None:
            return spark.createDataFrame(self.to_arrow(dataset))
        return spark.read.format(form).option("mergeSchema", "true").load(_for_hadoop(files))

    def _named(self, dataset: str) -> str:
        if dataset not in self.datasets:
            raise _no_dataset(self._store, dataset)
        return dataset

    def _require_unexpired(self) -> None:
        if self._store.fs.status(snapshot_manifest_path(self._store.roots.store, self._manifest.name)) is None:
            raise self._expired_error("its snapshot manifest is deleted")

    def _expired_error(self, actual: str) -> SnapshotExpiredError:
        return SnapshotExpiredError(
            "the snapshot was deleted while it was read",
            store=self._store.roots.store,
            expected=f"the snapshot of epoch {self.epoch}, phase {self.phase}",
            found=actual + expiry_note(self._store, lambda cutoff: self.epoch <= cutoff.after_epoch),
            todo="read a newer snapshot; raise readers.kept_snapshots in the job file to keep more snapshots",
        )


def read(
    job: str | Path | Mapping[str, str],
    datasets: Iterable[str] | None = None,
    *,
    branch: str | None = None,
    as_of: AsOf = None,
) -> Snapshot:
    """Return a job's records at one snapshot.

    Args:
        job: job file; or its folders, `{"store": ..., "output": ...}`, as paths or URLs.
        datasets: URNs of the datasets; default: all that had published records by then.
        branch: the branch, for a job with a fork; `errors` or `errors/BRANCH` for rejected records.

    Raises:
        ConfigurationError: if the store, dataset, branch or run does not exist, the branch has no files, or the job has
            several branches and none is given.
        NotSettledError, SnapshotExpiredError: if the snapshot does not exist yet, or has expired.
        StaleStoreError: if store and output do not belong together.
        CorruptError: if records of the store or output can't be read.
    """
    store, location, branch = _opened(job, branch)
    return read_store(store, location, branch, datasets, as_of)


def read_store(store: JobStore, location: str, branch: str, datasets: Iterable[str] | None, as_of: AsOf) -> Snapshot:
    """Return one snapshot of an open store, as `read` does. `location` is the output as the job file names it."""
    _require_together(store)
    for tries_left in reversed(range(_TRIES)):
        root = choose_snapshot(store, as_of)
        try:
            datasets_at = _datasets_at(store, root)
            break
        except FileNotFoundError as error:  # the cut goes, unless it is damaged
            if not tries_left:
                raise SnapshotExpiredError(
                    "the snapshot was deleted while it was opened",
                    store=store.roots.store,
                    expected=f"the snapshot deltas of epoch {root.epoch}, phase {root.phase}",
                    found=str(error),
                    todo="read a newer snapshot",
                ) from error
    if datasets is not None:
        requested = list(datasets)
        for urn in requested:
            if urn not in datasets_at:
                raise _no_dataset(store, urn)
        datasets_at = {urn: datasets_at[urn] for urn in requested}
    cut = Snapshot(store, location, root, datasets_at, branch)
    if not cut.exactly_once:
        logger.warning("runs of this job have delivered at least once", extra={"store": store.roots.store})
    return cut


def _for_hadoop(files: list[str]) -> list[str]:
    """Return the files as URLs with Hadoop's schemes. Raises ConfigurationError if Hadoop has none, as for az://."""
    if files and files[0].startswith("az://"):
        raise ConfigurationError(
            "Spark has no file system for az://",
            id="FILE_SYSTEM_UNSUPPORTED",
            path=files[0],
            expected="a URL with abfss://, which names the account",
            todo="read with spark.read.format('distcommit'); use abfss:// for the folders of a new job",
        )
    return [f"s3a://{file.removeprefix('s3://')}" if file.startswith("s3://") else file for file in files]


def _opened(job: str | Path | Mapping[str, str], branch: str | None) -> tuple[JobStore, str, str]:
    if isinstance(job, Mapping):
        if job.keys() != {"store", "output"}:
            raise ConfigurationError(
                "the mapping of a job's folders has wrong keys",
                id="ARGUMENT_INVALID",
                expected="store and output",
                found=str(sorted(job)),
            )
        locations = {name: normal_location(location, Path.cwd()) for name, location in job.items()}
        fs = open_folders(locations["store"], (locations["output"],), durable=False)
        roots = Roots(path_of(locations["store"]), "", path_of(locations["output"]))
        store = open_any_store(fs, roots)
        return store, locations["output"], branch or _only_branch(store)
    tree = load_tree(job)
    config = parse_config(tree, Path(job), needs_variables=False)
    branches = {each.name: each.sink for each in config.task_flow().branches}
    if branch is None and len(branches) == 1:
        branch = next(iter(branches))
    rejected = branch is not None and is_error_branch(branch)
    files = [name for name, sink in branches.items() if sink.abilities.files]
    if branch is None or (not rejected and branch not in files):
        raise ConfigurationError(
            "there are no files of that branch",
            id="ARGUMENT_INVALID",
            job=config.job,
            expected=f"one of {', '.join([*files, error_branch_of('')])}",
            found=branch or "none, of several",
            todo="set branch to one of these branches; read the output of other sinks at their targets",
        )
    folders = JobFolders(config, Path(job), unset=unset_variables(tree))
    return folders.open_store(create=False), config.paths.output, branch


def _only_branch(store: JobStore) -> str:
    """Return the only branch in the store. Raises ConfigurationError if there are several."""
    names = [match[1] for name in read_settings(store).settings if (match := _BRANCH_TYPE.fullmatch(name))]
    if len(names) > 1:
        raise ConfigurationError(
            "the job has a fork, and the branch to read is not given",
            id="ARGUMENT_INVALID",
            job=store.job,
            expected=f"branch: one of {', '.join([*sorted(names), error_branch_of('')])}",
            found="none",
        )
    return names[0] if names else MAIN_BRANCH


def _require_together(store: JobStore) -> None:
    for wrong in (older_output(store), newer_runs(store)):
        if wrong:
            raise StaleStoreError(
                "the store and the output do not belong together",
                store=store.roots.store,
                output=store.roots.output,
                expected="both as the newest run has left them",
                found=wrong,
                todo="put the newest of both in their place; `distcommit status` shows more",
            )


def _datasets_at(store: JobStore, root: SnapshotManifest) -> dict[str, DatasetSnapshot]:
    def chain(bucket: SnapshotBucket) -> dict[str, DatasetSnapshot]:
        return read_chain(store.fs, store.roots.store, bucket.snapshot)

    snapshots: dict[str, DatasetSnapshot] = {}
    for part in run_parallel(store.fs.parallel_calls, chain, list(root.buckets.values())):
        snapshots |= part
    return snapshots


def _no_dataset(store: JobStore, urn: str) -> ConfigurationError:
    return ConfigurationError(
        "the snapshot has nothing of this dataset",
        id="DATASET_UNKNOWN",
        dataset=urn,
        store=store.roots.store,
        todo="give its URN as `distcommit status --all` shows it, or read a newer snapshot",
    )
