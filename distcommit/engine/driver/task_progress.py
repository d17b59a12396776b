"""Progress of a run for display, by one small unsynced file for each task; failed writes are ignored."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType

import msgspec

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.support.decoding import from_json
from distcommit.engine.run_events import Event, Observer, PhaseBegan, Progressed
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.store import PROGRESS, progress_name, progress_task, run_name
from distcommit.stores.folders.folder_trees import delete_tree
from distcommit.stores.state.checksummed_json import UNREADABLE

_EVERY_S = 0.5


class ProgressFile:
    """File of a task's progress, written at most every half second under a new name. The highest name counts, so that
    the last attempt hides others.

    Args:
        task: number of the task in the job.
        so_far: returns the progress, whose `tasks_*` fields and rates are ignored.
    """

    def __init__(self, settings: RunSettings, job: str, task: int, so_far: Callable[[], Progressed]) -> None:
        self._fs = settings.store.fs
        self._folder = progress_folder(settings.store.roots.store, settings.run_id)
        self._so_far, self._clock = so_far, settings.clock
        self._job, self._task, self._writer = job, task, uuid.uuid4().hex
        self._began_ms = self._clock.now_ms()
        self._number, self._began_s = 0, self._clock.monotonic_s()
        self._written_s = self._began_s

    def __enter__(self) -> ProgressFile:
        self._write(finished=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(finished=True)

    def tick(self) -> None:
        if self._clock.monotonic_s() - self._written_s >= _EVERY_S:
            self._write(finished=False)

    def _write(self, *, finished: bool) -> None:
        running, ended = (0, 1) if finished else (1, 0)
        so_far, elapsed_s = self._so_far(), self._clock.monotonic_s() - self._began_s
        rate = so_far.counts.records_read / elapsed_s if running and elapsed_s > 0 else 0.0
        progress = msgspec.structs.replace(
            so_far, phase=self._job, tasks_running=running, tasks_finished=ended, slowest=rate, fastest=rate
        )
        old, self._number = self._path(), self._number + 1
        self._written_s = self._clock.monotonic_s()
        with contextlib.suppress(OSError):
            writer = self._fs.create(self._path())
            writer.write(msgspec.json.encode(progress))
            writer.close_file(sync=False)
            if self._number > 1:
                self._fs.delete(old)

    def _path(self) -> str:
        return f"{self._folder}/{progress_name(self._job, self._task, self._writer, self._number, self._began_ms)}"


def progress_folder(store_root: str, run_id: str) -> str:
    """Return the folder of progress files, which the driver creates and removes."""
    return f"{store_root}/{PROGRESS}/{run_name(run_id)}"


def read_progress(fs: FileSystem, folder: str, phase: str = "") -> Progressed:
    """Return the sum of all tasks' readable progress, labelled with `phase`. Costs O(tasks)."""
    newest: dict[str, Progressed] = {}
    try:
        names = sorted(entry.name for entry in fs.list_folder(folder))
    except OSError:
        names = []
    for name in names:
        with contextlib.suppress(OSError, *UNREADABLE):
            newest[progress_task(name)] = from_json(fs.read(f"{folder}/{name}"), Progressed)
    return sum(newest.values(), Progressed(phase))


@contextlib.contextmanager
def watched(settings: RunSettings, observer: Observer, *, look: bool = True) -> Iterator[Observer]:
    """Create the run's progress folder, report the tasks' progress about twice a second, and delete the folder at the
    end.

    Args:
        observer: receives all events of the run and the progress.
        look: whether to read the progress files, which costs O(tasks) each time.

    Yields:
        the observer that the run must report to.
    """
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    fs.make_folders(folder)
    ended, tracker = threading.Event(), _PhaseTracker(observer)

    def watch() -> None:
        while not ended.wait(0.5):
            observer.observe(read_progress(fs, folder, tracker.phase))

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    if look:
        thread.start()
    try:
        yield tracker
    finally:
        ended.set()
        if look:
            thread.join()
        with contextlib.suppress(OSError):  # nothing depends on these files
            delete_tree(fs, folder)


class _PhaseTracker:
    def __init__(self, observer: Observer) -> None:
        self._observer, self.phase = observer, "begin"

    def observe(self, event: Event) -> None:
        if isinstance(event, PhaseBegan):
            self.phase = event.phase
        self._observer.observe(event)
