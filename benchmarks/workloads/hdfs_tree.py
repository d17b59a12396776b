"""A tree of staged files on HDFS, and a run of the product that has staged it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benchmarks.workloads.tree import Shape, TreeDataset, file_bytes, tree_datasets
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.work_units import StagedFile

_THREADS = 16


def stage(fs: FileSystem, shape: Shape, staging: str, *, empty: bool = False) -> dict[str, list[StagedFile]]:
    """Write the tree's files; return them by URN.

    Args:
        fs: the file system.
        shape: the tree.
        staging: an absolute folder.
        empty: files have no bytes, which is quicker, and does not affect renames.
    """

    def write(dataset: TreeDataset) -> list[StagedFile]:
        return write_dataset(fs, dataset, shape, f"{staging}/{dataset.staged}", empty=empty)

    datasets = list(tree_datasets(shape))
    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip((dataset.urn for dataset in datasets), pool.map(write, datasets), strict=True))


def write_dataset(
    fs: FileSystem, dataset: TreeDataset, shape: Shape, folder: str, *, empty: bool = False
) -> list[StagedFile]:
    """Write one dataset's files into a new folder and identify them."""
    fs.make_folders(folder)
    written: list[StagedFile] = []
    for place, name in enumerate(dataset.names(shape.files)):
        writer = fs.create(f"{folder}/{name}")
        if not empty:
            writer.write(file_bytes(dataset.number * shape.files + place))
        closed = writer.close_file(sync=True)
        written.append(
            StagedFile(
                staged_path=f"{dataset.staged}/{name}",
                final_path=f"{dataset.folder}/{name}",
                size_bytes=closed.size_bytes,
                checksum=writer.checksum,
                file_id=closed.file_id,
                mtime_ns=closed.mtime_ns,
                records=1,
            )
        )
    return written
