"""The progress of long operator actions, which keeps stall detection from reporting them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from distcommit.core.interfaces.clock import Clock
from distcommit.engine.driver.task_progress import progress_folder
from distcommit.protocol.paths.store import progress_name
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.state.job_store import JobStore

EVERY_S = 10.0


@contextmanager
def signs_of_life(store: JobStore, run_id: str, clock: Clock) -> Iterator[Callable[[], None]]:
    """Yield a function to call at each progress of the action. At most every ten seconds it replaces a file in the
    run's progress folder, whose new name shows the progress. An OSError is ignored. At the end the folder is deleted.
    """
    fs, folder, writer = store.fs, progress_folder(store.roots.store, run_id), uuid.uuid4().hex
    number, left_s = 0, clock.monotonic_s()

    def tick() -> None:
        nonlocal number, left_s
        if clock.monotonic_s() - left_s < EVERY_S:
            return
        before, number, left_s = number, number + 1, clock.monotonic_s()
        with suppress(OSError):
            fs.make_folders(folder)
            fs.create(f"{folder}/{progress_name('by_hand', 0, writer, number)}").close_file(sync=False)
            fs.delete(f"{folder}/{progress_name('by_hand', 0, writer, before)}")

    try:
        yield tick
    finally:
        if number:
            with suppress(OSError):  # informative: nothing depends on it
                delete_tree(fs, folder)
