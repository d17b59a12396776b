"""Work units that kill the Python worker that reads them.

Once a worker has died, tasks write a marker before they read a work unit. A marked work unit whose attempt has not
ended is a *suspect*, which tasks leave out. At the end a Spark job of one task reads each suspect alone. If the
worker dies again, the work unit is recorded as failed, and its dataset as not read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from distcommit.core.error_handling.error_text_classification import has_killed_its_worker
from distcommit.core.errors import ConfigurationError, DistcommitError, ProcessLostError, WorkerDiedError
from distcommit.core.records.log_records import DatasetState
from distcommit.core.watermark import format_position
from distcommit.core.work_units import TaskOutcome, TaskState, WorkUnit
from distcommit.engine.driver.launch_interface import JobFailedError, Launch
from distcommit.engine.node_failures import hand_back
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.shared_names import bucket_of_work_unit
from distcommit.stores.history.run_records import read_record
from distcommit.stores.state.work_units_being_read import (
    ReadingNote,
    ReadingNotes,
    delete_notes,
    older_notes,
    read_notes,
)

logger = logging.getLogger(__name__)

MAX_SUSPECTS = 64
"""Maximum number of suspects that a run reads. Later runs read others."""
_SHOWN_PARTITIONS = 5


def units_to_read(units: Sequence[WorkUnit], states: Iterable[TaskState]) -> tuple[list[WorkUnit], int]:
    """Return work units that are left to read, and the number of those that killed a worker."""
    states = list(states)
    finished = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED}
    killers = {state.work_unit_id for state in states if has_killed_its_worker(state.error)} - finished
    remaining = [unit for unit in units if unit.work_unit_id not in finished | killers]
    return remaining, sum(1 for unit in units if unit.work_unit_id in killers)


def without_suspects(settings: RunSettings, units: Sequence[WorkUnit]) -> list[WorkUnit]:
    """Return work units without a marker of this run; all if markers cannot be read."""
    store = settings.store
    try:
        notes = read_notes(store.fs, store.roots.store, settings.run_id).values()
    except OSError as error:
        logger.warning("notes of work units cannot be read: %s", error)
        return list(units)
    suspects = {(note.work_unit_id, note.dataset_urn) for note in notes}
    return [unit for unit in units if (unit.work_unit_id, unit.dataset_urn) not in suspects]


class TaskNotes:
    """Markers of a task attempt, which are unused until a worker has died."""

    def __init__(self, settings: RunSettings) -> None:
        store, self._settings = settings.store, settings
        self._notes = ReadingNotes(store.fs, store.roots.store, settings.run_id) if settings.after_death else None

    @property
    def are_written(self) -> bool:
        return self._notes is not None

    def put(self, unit: WorkUnit) -> None:
        """Replace the attempt's marker by one for this work unit.

        Raises:
            OSError: if the marker cannot be written. The work unit must not be read then.
        """
        if self._notes is not None:
            self._notes.put(unit, self._settings.epoch, alone=bool(self._settings.alone))

    def without_suspects(self, units: list[WorkUnit]) -> list[WorkUnit]:
        if self._notes is None or self._settings.alone:
            return units
        return without_suspects(self._settings, units)

    def deaths_of(self, units: Iterable[WorkUnit]) -> Iterator[tuple[WorkUnit, WorkerDiedError]]:
        """Yield the work unit to read alone, with an error, if a worker died on it alone."""
        for unit in units if self._settings.alone else ():
            if (error := death_of(self._settings, unit)) is not None:
                yield unit, error

    def forget(self, units: Iterable[WorkUnit]) -> None:
        """Delete the attempt's marker, and with `settings.alone` all other markers of `units`.

        Errors of the file system are only logged.

        Args:
            units: work units that were read to their end. Markers of a work unit that killed a worker must stay.
        """
        if self._notes is None:
            return
        try:
            self._notes.clear()
            for unit in units if self._settings.alone else ():
                forget_suspect(self._settings, unit)
        except OSError as error:  # costs the next run a task for this work unit
            logger.warning("notes of work units could not be deleted: %s", error)


class WorkerDeaths(msgspec.Struct, frozen=True):
    """Work units on which workers died.

    Attributes:
        killers: number of work units that killed a worker twice, and failed.
        suspects: ids of the work units to read alone.
    """

    killers: int = 0
    suspects: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        return self.killers + len(self.suspects)


def find_worker_deaths(settings: RunSettings, partition: int) -> WorkerDeaths:
    """Return a partition's killers and suspects; none if unreadable. Delete markers of finished work units."""
    buckets, store = settings.buckets_of(partition), settings.store
    tables = settings.task_states(buckets)
    try:
        states = [state for bucket in buckets for state in tables.take(bucket, from_start=True)[0]]
        notes = read_notes(store.fs, store.roots.store, settings.run_id)
        finished = {state.work_unit_id for state in states if state.outcome is TaskOutcome.SUCCEEDED}
        delete_notes(store.fs, [path for path, note in notes.items() if note.work_unit_id in finished])
    except (DistcommitError, OSError) as error:
        hand_back(settings, error)
        logger.warning("task states or notes cannot be read: %s", error, extra={"partition": partition})
        return WorkerDeaths()
    killers = {state.work_unit_id for state in states if has_killed_its_worker(state.error)}
    noted = {note.work_unit_id for note in notes.values() if bucket_of_work_unit(note.work_unit_id) in buckets}
    return WorkerDeaths(len(killers), tuple(sorted(noted - killers - finished)))


def all_worker_deaths(launch: Launch, settings: RunSettings) -> WorkerDeaths:
    try:
        deaths = launch(find_worker_deaths, settings, settings.partitions, WorkerDeaths)
    except (JobFailedError, ConfigurationError, ProcessLostError) as error:
        logger.warning("work units at which workers have died cannot be counted: %s", error)
        return WorkerDeaths()
    suspects = sorted(unit_id for part in deaths for unit_id in part.suspects)
    return WorkerDeaths(sum(part.killers for part in deaths), tuple(suspects))


def has_died(settings: RunSettings, epoch: int) -> bool:
    """Return whether all processes, or the JVM, of a run died; False for epoch 0, which is not a run. The record of its
    end is then missing, unreadable, or without completed ingest."""
    try:
        record = read_record(settings.store.fs, settings.store.roots.store, epoch) if epoch else None
    except (DistcommitError, OSError):
        return True
    if record is None:
        return epoch > 0
    return any(phase.name == "ingest" and not phase.completed for phase in record.phases)


class EarlierSuspects:
    """Suspects of earlier runs: work units with a marker of a run whose processes all died, or recorded as killers.

    Args:
        states: stored states of the partition's datasets, by bucket.
    """

    def __init__(self, settings: RunSettings, states: Mapping[int, Mapping[str, DatasetState]]) -> None:
        self._settings, self._store = settings, settings.store
        self._notes: list[dict[str, ReadingNote]] = []
        self._dead: dict[int, bool] = {}
        failures = (
            state.read_failure.reason for bucket in states.values() for state in bucket.values() if state.read_failure
        )
        if settings.after_death or any(has_killed_its_worker(reason) for reason in failures):
            self._notes = older_notes(self._store.fs, self._store.roots.store, settings.run_id)

    def note(self, units: Iterable[WorkUnit]) -> int:
        """Write markers of this run for its suspects, and return their number.

        The newest earlier run with a marker decides. If it died reading only the work unit, this run does not read it.

        Raises:
            OSError: if a marker cannot be written.
        """
        suspects = 0
        for unit in units if self._notes else ():
            matching = ([note for note in of_run.values() if note.overlaps(unit)] for of_run in self._notes)
            if notes := next(filter(None, matching), None):
                died = any(note.is_alone or note.has_died for note in notes) and self._is_dead(notes[0].epoch)
                own_notes = ReadingNotes(self._store.fs, self._store.roots.store, self._settings.run_id)
                own_notes.put(unit, self._settings.epoch, died=died)
                suspects += 1
        return suspects

    def _is_dead(self, epoch: int) -> bool:
        if epoch not in self._dead:
            self._dead[epoch] = has_died(self._settings, epoch)
        return self._dead[epoch]


def death_of(settings: RunSettings, unit: WorkUnit) -> WorkerDiedError | None:
    """Return an error if a worker died reading only this work unit, else None.

    The death was in this run's previous launch, or in an earlier run whose processes all died. Spark's own second
    attempt proves nothing: the first attempt may be slow, or its node lost.

    The markers stay for the next run, which reads the work unit alone from the start.
    """
    fs, root = settings.store.fs, settings.store.roots.store
    try:
        notes = read_notes(fs, root, settings.run_id).values()
    except OSError as error:
        logger.warning("notes of work units cannot be read: %s", error)
        return None
    own = [note for note in notes if note.is_of(unit)]
    if not any(note.has_died or (note.is_alone and settings.has_died_alone) for note in own):
        return None
    return WorkerDiedError(
        "a worker died twice while it read a work unit, the second time without any other",
        dataset=unit.dataset_urn,
        work_unit=unit.work_unit_id,
        expected="a result or an error",
        found=f"two dead workers at {_range_of(unit)}",
        todo="find the cause in the executor's log. If memory ran out, raise spark.executor.memoryOverhead; if native"
        " code crashed, correct its library or the records. To continue behind the records, give"
        " `distcommit dataset set-watermark`",
    )


def forget_suspect(settings: RunSettings, unit: WorkUnit) -> None:
    """Delete all markers of a work unit that was read; raises OSError."""
    fs, root = settings.store.fs, settings.store.roots.store
    own = [path for path, note in read_notes(fs, root, settings.run_id).items() if note.is_of(unit)]
    older = older_notes(fs, root, settings.run_id)
    delete_notes(fs, [*own, *(path for of_run in older for path, note in of_run.items() if note.overlaps(unit))])


def _range_of(unit: WorkUnit) -> str:
    low, high = unit.low.positions, unit.expected_high.positions
    partitions = sorted({*low, *high})
    parts = [
        f"partition {partition!r} from {format_position(low[partition]) if partition in low else 'its begin'}"
        f" to {format_position(high[partition]) if partition in high else 'its end'}"
        for partition in partitions[:_SHOWN_PARTITIONS]
    ]
    more = len(partitions) - len(parts)
    return ", ".join(parts) + (f" and {more} more partitions" if more else "")
