"""Programs for the crash explorer: records that runs keep for operators, and schemas that they keep for later runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from distcommit.app.inspection.recorded_runs import RunStatus, read_run, read_runs
from distcommit.app.inspection.report_data.run_report import make_report
from distcommit.core.errors import ConfigurationError, CorruptError, DistcommitError
from distcommit.protocol.paths.store import PAUSED, RUN_TABLES
from distcommit.stores.history.run_records import (
    CANCEL_VERSION,
    CancelRequest,
    put_cancel,
    read_cancel,
    recorded_epochs,
)
from distcommit.stores.operator import operator_actions
from distcommit.stores.operator.schedule_requests import (
    ScheduleRequests,
    delete_pause,
    delete_triggers,
    paused_by,
    put_pause,
    put_trigger,
    read_requests,
)
from distcommit.stores.schemas.schema_store import SchemaStore
from distcommit.stores.state.job_store import open_any_store
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.programs.parts import SOURCE, Program, new_machine, put_file, require_refused
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, SimulatedClock, SimulatedFileSystem, World

_WORLD = World(buckets=2)
_MORE = ModelSource({"a": ModelDataset({"0": 3, "1": 1}), "b": ModelDataset({"0": 2}), "c": ModelDataset({"0": 1})})
_FIRST, _SECOND, _OTHER = {"a": "int64"}, {"a": "int64", "b": "string"}, {"z": "bool"}
_TOLD = "/job/told"


def _lived() -> SimulatedPosix:
    machine = new_machine()
    _WORLD.run(machine, SOURCE)
    machine.syncfs("/")
    return machine


def _runs_and_is_to_end(machine: SimulatedPosix) -> None:
    """Run, and request the end of the run when it has just ended."""
    epoch = _WORLD.run(machine, _MORE).epoch
    put_cancel(_WORLD.store(machine), CancelRequest(CANCEL_VERSION, epoch, "ann@host", 0))


def _check_run_records(machine: SimulatedPosix) -> str:
    """Require that the records of the crashed run are readable; then another run continues, and all records are
    unchanged."""
    store, clock = _WORLD.store(machine), SimulatedClock()
    before = {row.epoch: row.status for row in read_runs(store, clock).runs}
    for epoch in recorded_epochs(store.fs, ROOTS.store):
        report = make_report(store, epoch, clock)
        read_cancel(store.fs, ROOTS.store, epoch)
        if report.record is None and report.run.status in (RunStatus.SUCCESSFUL, RunStatus.COMMITTED):
            return f"epoch {epoch} is {report.run.status}, and has left no record"
    newest = _WORLD.run(machine, _MORE).epoch
    rows = {row.epoch: row.status for row in read_runs(store, clock).runs}
    if changed := [epoch for epoch, status in before.items() if rows.get(epoch) != status and epoch in rows]:
        ended = (RunStatus.PENDING, RunStatus.RUNNING)
        if any(before[epoch] not in ended for epoch in changed):
            return f"what became of runs was {before}, and is {rows}"
    recorded = read_run(store, newest, clock)
    if recorded.run.status not in (RunStatus.SUCCESSFUL, RunStatus.COMMITTED):
        return f"the last run is {recorded.run.status}"
    try:
        read_run(store, newest + 1, clock)
        return "an unknown run is reported"
    except ConfigurationError:
        return _WORLD.violation(machine, _MORE, {}) or _damaged(machine, newest)


def _damaged(machine: SimulatedPosix, epoch: int) -> str:
    """Require that unreadable records of a run affect only themselves."""
    store = _WORLD.store(machine)
    asked = CancelRequest(CANCEL_VERSION, epoch, "ann@host", 0)
    if not put_cancel(store, asked) or put_cancel(store, asked):
        return "a run is cancelled more than once"
    for _, path, data in list(machine.files()):
        if data and (path.endswith(f"{epoch:010d}-cancel.json") or f"/{RUN_TABLES}/" in path):
            machine.unlink(path)
            put_file(machine, path, data[: len(data) // 2])
    report = make_report(store, epoch, SimulatedClock())
    request = read_cancel(store.fs, ROOTS.store, epoch)
    times = [
        make_report(store, item, SimulatedClock()).missing_times_reason
        for item in recorded_epochs(store.fs, ROOTS.store)
    ]
    if not any("corrupt" in item for item in times):
        return f"damaged run times are reported as {times}"
    if (
        request is None
        or request.requested_by != "somebody"
        or not report.missing_datasets_reason
        or report.record is None
    ):
        return f"damage is reported as {request}, {report.missing_datasets_reason!r}"
    return _unreadable(machine)


def _unreadable(machine: SimulatedPosix) -> str:
    """Open a store without its job file; a bucket with an unreadable log is reported, and others are not."""
    store = _WORLD.store(machine)
    if open_any_store(store.fs, ROOTS) != store:
        return "without its job file the store is another one"
    require_refused([partial(open_any_store, store.fs, replace(ROOTS, store="/job/elsewhere"))], ConfigurationError)
    newest = max(path for _, path, _ in machine.files() if path.startswith(store.bucket_log(0).folder + "/"))
    data = machine.read_file(newest)
    machine.unlink(newest)
    put_file(machine, newest, data[: len(data) // 2])
    told = [each for _, each in store.bucket_log(0).segments() if isinstance(each, DistcommitError)]
    if len(told) != 1:
        return f"a damaged segment is reported as {told}"
    named = list(operator_actions.retry_all(store, "person").unreadable)
    return "" if named == ["bucket 0"] else f"{named} can't be read"


def _schema_store(machine: SimulatedPosix, epoch: int) -> SchemaStore:
    fs = SimulatedFileSystem(machine)
    fs.make_folders(ROOTS.store)
    return SchemaStore(fs, ROOTS.store, epoch)


def _inferred() -> SimulatedPosix:
    """Put columns by a run that published nothing."""
    machine = new_machine()
    schema_store = _schema_store(machine, 5).of("a", "json")
    schema_store.put_next(schema_store.put_next(0, _OTHER)[0], {**_OTHER, "y": "bool"})
    machine.syncfs("/")
    return machine


def _infers(machine: SimulatedPosix) -> None:
    """Infer columns by two tasks of a run: the first one gets its own columns, and the second one the same."""
    one, two = (_schema_store(machine, 7).of("a", "json") for _ in range(2))
    number, schema = one.put_next(0, _FIRST)
    put_file(machine, _TOLD, repr((number, dict(schema))).encode())
    machine.syncfs("/job")
    two.put_next(two.put_next(0, _OTHER)[0], _SECOND)


def _agrees(machine: SimulatedPosix) -> str:
    """Require that tasks of that run get the same columns, and later runs only those that are named."""
    told = [data for _, path, data in machine.files() if path == _TOLD]
    number, schema = _schema_store(machine, 7).of("a", "json").put_next(0, _FIRST)
    if (number, schema) != (7000, _FIRST):
        return f"columns {number} are {schema}, and were {_FIRST}"
    if told and told[0] not in (b"", repr((number, dict(schema))).encode()):
        return f"a task received {told[0]!r}"
    later = _schema_store(machine, 9).of("a", "json")
    if later.schema(number) != _FIRST or later.put_next(number, _SECOND) != (9000, _SECOND):
        return "a later run reads by other columns"
    require_refused([partial(later.schema, 4242)], CorruptError)
    require_refused([partial(later.put_next, 9999, _SECOND)], ConfigurationError)
    remaining = [path for _, path, _ in machine.files() if "/schemas/" in path and "/00000000500" in path]
    return f"left behind: {remaining}" if remaining else ""


def _asks(machine: SimulatedPosix) -> None:
    """Pause the job, trigger it, and resume it."""
    store = _WORLD.store(machine)
    put_pause(store, "ann@host", 1)
    put_trigger(store, "bob@host", 2)
    delete_triggers(store.fs, ROOTS.store, read_requests(store.fs, ROOTS.store).triggers)
    delete_pause(store)


def _is_asked(machine: SimulatedPosix) -> str:
    """Require that each request is present or absent and repeatable. An unreadable pause counts as one. Runs
    continue."""
    store = _WORLD.store(machine)
    if (before := paused_by(store.fs, ROOTS.store)) not in ("", "ann@host"):
        return f"it is paused by {before}"
    if put_pause(store, "eve@host", 3) == bool(before) or paused_by(store.fs, ROOTS.store) != (before or "eve@host"):
        return "a second one has paused it"
    name = put_trigger(store, "eve@host", 4)
    asked = read_requests(store.fs, ROOTS.store)
    if name not in asked.triggers or len(asked.triggers) > 2:
        return f"of triggers there are {asked.triggers}"
    delete_triggers(store.fs, ROOTS.store, asked.triggers)
    (path,) = (path for _, path, _ in machine.files() if path.endswith(PAUSED))
    machine.unlink(path)
    put_file(machine, path, b"{")
    if paused_by(store.fs, ROOTS.store) != "somebody" or not delete_pause(store) or delete_pause(store):
        return "an unreadable pause is reported differently, or does not end"
    if read_requests(store.fs, ROOTS.store) != ScheduleRequests():
        return "something is still asked"
    _WORLD.run(machine, _MORE)
    return _WORLD.violation(machine, _MORE, {})


STORED_RECORDS = (
    Program("schedule-is-asked", _lived, _asks, _is_asked),
    Program("runs-are-told", _lived, _runs_and_is_to_end, _check_run_records),
    Program("schemas-inferred", _inferred, _infers, _agrees),
)
