"""One store file for each step, durable before the step runs: the plainest form of write-ahead."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path

from benchmarks.arms.gobblin import remove_empty_parents, sync_folder, write_file
from benchmarks.runner import Arm, Parts, WrongResultError
from benchmarks.workloads.tree import Shape, TreeDataset, files_left, tree_datasets, write_staged


class FilePerStep(Arm):
    """Store files with an fsync each and one for their folder, renames, the output folder synced, a watermark file,
    store files deleted."""

    name = "file_per_step_fsync"

    def publish(self, shape: Shape, root: Path) -> Parts:
        write_staged(shape, root)
        for folder in ("store", "state"):
            os.mkdir(root / folder)
        work = list(tree_datasets(shape))
        gc.collect()
        began = time.perf_counter()
        for dataset in work:
            _commit(str(root), dataset, shape.files)
        remove_empty_parents(root, work)
        seconds = time.perf_counter() - began
        if remaining := files_left(root / "staging") + files_left(root / "store"):
            raise WrongResultError(f"{self.name} left {remaining} files and folders")
        return {"seconds": seconds}


def _commit(root: str, dataset: TreeDataset, files: int) -> None:
    staged, target = f"{root}/staging/{dataset.staged}", f"{root}/output/{dataset.folder}"
    store = f"{root}/store/{dataset.folder}"
    names = dataset.names(files)
    os.mkdir(store)
    for place, name in enumerate(names):
        step = json.dumps({"type": "rename", "source": f"{staged}/{name}", "target": f"{target}/{name}"})
        write_file(f"{store}/{place:06d}.json", step.encode(), fsync=True)
    sync_folder(store)
    sync_folder(f"{root}/store")
    os.mkdir(target)
    for name in names:
        os.rename(f"{staged}/{name}", f"{target}/{name}")
    sync_folder(target)
    write_file(f"{root}/state/{dataset.folder}", json.dumps({"watermark": files}).encode(), fsync=True)
    sync_folder(f"{root}/state")
    for place in range(files):
        os.unlink(f"{store}/{place:06d}.json")
    os.rmdir(store)
    os.rmdir(staged)
