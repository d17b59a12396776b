"""Progress for people to look at: each task keeps one small file up to date, the driver adds them up.

Nothing depends on these files; they are not synced, and a task that can't write them goes on.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from types import TracebackType

import msgspec

from distcommit.core.ports import FileSystem
from distcommit.decoding import from_json
from distcommit.engine.driver.events import Event, Observer, PhaseBegan, Progress, Progressed
from distcommit.engine.settings import RunSettings
from distcommit.protocol.paths.store import PROGRESS, progress_name, progress_task, run_name
from distcommit.stores.folders.deletion import delete_tree
from distcommit.stores.state.documents import UNREADABLE

_EVERY_S = 0.5


class ProgressFile:
    """Writes a task's progress, at most every half second. Each writing is a new name; the highest counts.

    Args:
        settings: the run.
        job: the Spark job, and
        task: its task.
        so_far: what the task has done; which tasks run is not asked.
    """

    def __init__(self, settings: RunSettings, job: str, task: int, so_far: Callable[[], Progress]) -> None:
        self._fs = settings.store.fs
        self._folder = progress_folder(settings.store.roots.store, settings.run_id)
        self._job, self._task, self._writer = job, task, uuid.uuid4().hex
        self._so_far, self._clock = so_far, settings.clock
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
        """Writes if it is time."""
        if self._clock.monotonic_s() - self._written_s >= _EVERY_S:
            self._write(finished=False)

    def _write(self, *, finished: bool) -> None:
        running, ended = (0, 1) if finished else (1, 0)
        so_far, elapsed_s = self._so_far(), self._clock.monotonic_s() - self._began_s
        rate = so_far.records_read / elapsed_s if running and elapsed_s > 0 else 0.0
        progress = msgspec.structs.replace(
            so_far, tasks_running=running, tasks_finished=ended, slowest=rate, fastest=rate
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
        return f"{self._folder}/{progress_name(self._job, self._task, self._writer, self._number)}"


def progress_folder(store_root: str, run_id: str) -> str:
    """Where a run's progress files are; the driver makes it and removes it."""
    return f"{store_root}/{PROGRESS}/{run_name(run_id)}"


def read_progress(fs: FileSystem, folder: str) -> Progress:
    """The sum over all tasks; of several attempts at a task the last one counts. Costs O(tasks)."""
    newest: dict[str, Progress] = {}
    try:
        names = sorted(entry.name for entry in fs.list_folder(folder))
    except OSError:
        names = []
    for name in names:
        with contextlib.suppress(OSError, *UNREADABLE):
            newest[progress_task(name)] = from_json(fs.read(f"{folder}/{name}"), Progress)
    return sum(newest.values(), Progress())


@contextlib.contextmanager
def watched(settings: RunSettings, observer: Observer, *, look: bool = True) -> Iterator[Observer]:
    """Keeps the progress folder for the run, and tells the observer what the tasks write there, about twice a second.

    Args:
        settings: the run.
        observer: who is told.
        look: whether anybody wants to know: looking costs O(tasks).

    Yields:
        whom the run is to tell what happens; it tells the observer.
    """
    fs, folder = settings.store.fs, progress_folder(settings.store.roots.store, settings.run_id)
    fs.make_folders(folder)
    ended, passing_on = threading.Event(), _NotingPhase(observer)

    def watch() -> None:
        while not ended.wait(0.5):
            observer.observe(Progressed(passing_on.phase, read_progress(fs, folder)))

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    if look:
        thread.start()
    try:
        yield passing_on
    finally:
        ended.set()
        if look:
            thread.join()
        with contextlib.suppress(OSError):  # for people to look at: nothing depends on them
            delete_tree(fs, folder)


class _NotingPhase:
    """Passes events on, and knows which phase the run is in."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self.phase = observer, "begin"

    def observe(self, event: Event) -> None:
        if isinstance(event, PhaseBegan):
            self.phase = event.phase
        self._observer.observe(event)
