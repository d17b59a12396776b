"""Every kind of stored file, damaged in every way: the file is named, only its dependants stop, and no loss is silent.

A history leaves files of many kinds on a machine. Each file of a kind in `STOPS` is damaged on a copy, and the job
continues there through its own entry functions. Then the damage is repaired, and one more run must make everything
exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import pytest

from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.inspection.job_status import read_status
from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConflictError, CorruptError, DistcommitError
from distcommit.core.records.log_records import Checkpoint
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.engine.committing.drain import drain_partition
from distcommit.engine.reading.ingest import ingest_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.shared_names import bucket_name
from distcommit.protocol.paths.store import SEGMENT_SUFFIX, partition_name
from distcommit.sinks.files.footer import read_footer
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.operator import operator_actions
from distcommit.stores.state.plan_and_task_state_encoding import decode_plan
from distcommit.stores.state.task_states import record_ingest_ended
from distcommit.testing.fakes.faulty_calls import Crashed, Operation
from tests.simulation.programs.parts import new_machine, planned, put_file
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.stepped_lock import SteppedLock
from tests.simulation.world import ROOTS, SimulatedClock, World
from tests.unit.engine.driver.machines import source

WORLD = World(buckets=2, partitions=2, watched=True)
JOB_LEVEL = replace(WORLD, job_level=True)
BEFORE, NOW = source(a=[1, 1], b=1, g=1, h=1), source(a=[2, 2], b=2, g=3, h=2)
ALL = frozenset(NOW.datasets)
ENDS = {urn: Watermark(dict(dataset.partitions)) for urn, dataset in NOW.datasets.items()}


def _flipped(data: bytes) -> bytes:
    place = len(data) * 2 // 3
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] if data else b"\1"


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda data: data[: len(data) // 2],
    "bit-flipped": _flipped,
    "emptied": lambda data: b"",
    "foreign": lambda data: b'{"name": "another program"}\n',
    "rotten": _flipped,
}
"""A foreign file is another file under the name. A rotten file differs only in its bytes."""


SEEN = frozenset({"truncated", "bit-flipped", "emptied", "foreign"})
"""Damage to data files that name, size and times reveal. Publishing does not read data again, so only the audit finds
rotten files."""


@dataclass(frozen=True, slots=True)
class Stops:
    """The consequences of damage to a file.

    `what`: "nothing", "all", "bucket" (the datasets of the file's bucket), "partition" (those of its partition's
    buckets) or "dataset" (the one of the file). `heals`: the next run recovers without help; otherwise the file must be
    restored. `seen`: the kinds of damage that stop these datasets; the others stop nothing, and the audit names the
    file. `shown`: the status names the file, too.
    """

    what: str
    heals: bool = False
    seen: frozenset[str] = frozenset(DAMAGES)
    shown: bool = True


STOPS = {
    "store marker": Stops("all"),
    "claim of a folder": Stops("all"),
    "mark of a run": Stops("nothing"),
    "job log": Stops("all"),
    "bucket log": Stops("bucket"),
    "log below its checkpoint": Stops("nothing"),
    "temporary file of a log": Stops("nothing"),
    "lock record": Stops("nothing"),
    "progress": Stops("nothing"),
    "record of a run": Stops("nothing"),
    "root of a cut": Stops("nothing"),
    "piece of a cut": Stops("nothing"),
    "table of a run that is over": Stops("nothing"),
    "marker that ingest has ended": Stops("nothing"),
    "manifest": Stops("all", heals=True),
    "plan table": Stops("partition", heals=True),
    "task-state table": Stops("partition", heals=True),
    "staged file, not sealed": Stops("dataset", heals=True, seen=frozenset({"foreign"})),
    "staged file, sealed": Stops("dataset", seen=SEEN),
    "published file, pending": Stops("dataset", seen=SEEN),
    "published file, done": Stops("dataset", seen=frozenset()),
}


@dataclass(frozen=True, slots=True)
class History:
    """A machine with its files, and how its job continues. `run` is the run in progress, if there is one."""

    world: World
    machine: SimulatedPosix
    run: RunSettings | None = None
    ingested: bool = False

    def files(self) -> Iterator[tuple[str, str]]:
        """Return every file with its kind."""
        for _, path, data in self.machine.files():
            if data is not None:
                yield path, self._kind(path, data)

    def goes_on(self, machine: SimulatedPosix) -> list[str]:
        """Continue with a run, or the rest of one, and return the reported errors."""
        try:
            if self.run is not None:
                return self._rest(machine, replace(self.run, store=self.world.store(machine)))
            with SteppedLock(self.world.store(machine).fs, ROOTS.store, "next", 30, SimulatedClock()):
                result = self.world.run(machine, NOW)
        except DistcommitError as error:
            return [str(error)]
        reasons = [reason.text for reason in result.reasons.entries]
        assert result.succeeded == (not reasons)
        return reasons

    def _rest(self, machine: SimulatedPosix, settings: RunSettings) -> list[str]:
        for task in range(0 if self.ingested else 2):
            with suppress(DistcommitError):  # the task dies, and reports it to Spark
                ingest_partition(settings, task)
        record_ingest_ended(settings.store.fs, ROOTS.store, settings.run_id)
        return [reason.text for partition in range(2) for reason in drain_partition(settings, partition).reasons]

    def _kind(self, path: str, data: bytes) -> str:
        place = path.removeprefix("/job/")
        live = self.run is not None and f"run={self.run.run_id}/" in path
        if segment := re.fullmatch(r"store/log/(job|bucket)(=\d+)?/(\d+)\.seg", place):
            if int(segment[3]) < self._base(path.rpartition("/")[0]):
                return "log below its checkpoint"
            return f"{segment[1]} log"
        if re.fullmatch(r"store/(plans|task_states/run=[^/]+)/(run|partition)=[^/]+/[^/]+\.parquet", place):
            kind = "plan table" if "/plans/" in place else "task-state table"
            return kind if live else "table of a run that is over"
        if re.fullmatch(r"store/plans/run=[^/]+/_manifest\.json", place):
            return "manifest" if live else "table of a run that is over"
        if re.fullmatch(r"staging/\d+/bucket=\d+/.+\.parquet", place):
            return "staged file, sealed" if self.run is None else "staged file, not sealed"
        if re.fullmatch(r"output/[abgh]/.+\.parquet", place):
            return f"published file, {'pending' if self._pending(place) else 'done'}"
        others = {
            r"store/store\.json": "store marker",
            r"(output|staging)/\.distcommit/owner\.json": "claim of a folder",
            r"output/\.distcommit/\d+-(began|ended|clean)": "mark of a run",
            r"store/log/[^/]+/\.tmp-.+": "temporary file of a log",
            r"store/lock/\d+\.json": "lock record",
            r"store/progress/run=[^/]+/.+": "progress",
            r"store/runs/\d+(-begun)?\.json": "record of a run",
            r"store/run_tables/run=[^/]+/.+\.parquet": "table of a run that is over",
            r"store/snapshots/\d+-[12]\.json": "root of a cut",
            r"store/snapshots/deltas/[^/]+\.json": "piece of a cut",
            r"store/task_states/run=[^/]+/_INGEST_ENDED": "marker that ingest has ended",
        }
        (kind,) = [kind for pattern, kind in others.items() if re.fullmatch(pattern, place)]
        return kind

    def _base(self, folder: str) -> int:
        files = {p: d for _, p, d in self.machine.files() if d is not None and p.startswith(f"{folder}/0")}
        return max(int(p[-16:-4]) for p, d in files.items() if isinstance(decode_segment(d, p).record, Checkpoint))

    def _pending(self, place: str) -> bool:
        store, urn = self.world.store(self.machine), place.split("/")[1]
        sequence = store.bucket_log(bucket_of(urn, 2)).refresh().state_of(urn).sequence
        return sequence is not None and f"/{sequence.epoch:010d}-" in place


def _settled(world: World = WORLD) -> SimulatedPosix:
    """Build a finished run whose logs have checkpoints, and of which one writer left a temporary file."""
    machine = new_machine()
    with SteppedLock(world.store(machine).fs, ROOTS.store, "first", 30, SimulatedClock()):
        world.run(machine, BEFORE)
    store = world.store(machine)
    for log in (store.job_log(), *map(store.bucket_log, range(2))):
        run_alone(log.checkpoint(at_least=1))
        machine.close(machine.open_new(f"{log.folder}/.tmp-000000000099.seg-0"))
    return machine


@contextmanager
def _dies_after(machine: SimulatedPosix, files: int) -> Iterator[None]:
    """Kill the process when it publishes one more file."""
    remaining = [files]

    def gate(operation: Operation) -> None:
        if operation.kind == "rename" and re.fullmatch(rf"{ROOTS.output}/.+\.parquet", operation.path):
            remaining[0] -= 1
            if remaining[0] < 0:
                raise Crashed

    machine.gate = gate
    with suppress(Crashed):
        yield
    machine.gate = None


def _half_published() -> History:
    """Build a sealed run with one published file in each bucket. The other files are staged."""
    machine = _settled()
    settings = planned(machine, WORLD, NOW)
    for task in range(2):  # each of one bucket
        with _dies_after(machine, 1):
            ingest_partition(settings, task)
    return History(WORLD, machine)


def _decided() -> History:
    """Build a job-level run that died after its decision: one bucket is published and closed, and of the other one file
    is published.
    """
    machine = _settled(JOB_LEVEL)
    with _dies_after(machine, 3):
        JOB_LEVEL.run(machine, NOW)
    return History(JOB_LEVEL, machine)


def _ingested() -> History:
    """Build a run that has read everything and could seal nothing."""
    machine = _settled()
    settings = planned(machine, WORLD, NOW)

    def gate(operation: Operation) -> None:
        if operation.kind == "create" and "/store/log/bucket=" in operation.path:
            raise OSError(5, "no log today", operation.path)

    machine.gate = gate
    for task in range(2):
        ingest_partition(settings, task)
    machine.gate = None
    return History(WORLD, machine, settings, ingested=True)


def _planned() -> History:
    machine = _settled()
    return History(WORLD, machine, planned(machine, WORLD, NOW))


HISTORIES: dict[str, Callable[[], History]] = {
    "settled": lambda: History(WORLD, _settled()),
    "half published": _half_published,
    "decided": _decided,
    "planned": _planned,
    "ingested": _ingested,
}
_story = cache(lambda name: HISTORIES[name]())


class Damaged:
    """A machine with one damaged file."""

    def __init__(self, history: History, path: str, damage: str) -> None:
        self.machine = machine = history.machine.after_kill()
        self._folder, self._name = machine._parent(path)
        self._inode = machine._lookup(path)
        self._whole = whole = machine._file(self._inode)
        data = DAMAGES[damage](whole.data)
        if damage == "foreign":
            machine.unlink(path)
            put_file(machine, path, data)
        else:
            mtime_ns = whole.mtime_ns + (damage != "rotten")
            machine._inodes[self._inode] = replace(whole, data=data, durable=data, mtime_ns=mtime_ns)
        machine.syncfs("/")

    def restore(self) -> None:
        """Restore the file, as from a snapshot of the disk."""
        self.machine._inodes[self._inode] = self._whole
        self.machine._folder(self._folder).names[self._name] = self._inode
        self.machine._durable_names[self._folder][self._name] = self._inode


def _watermark(history: History, machine: SimulatedPosix, urn: str) -> Watermark | None:
    return history.world.store(machine).bucket_log(bucket_of(urn, 2)).refresh().state_of(urn).watermark


def _status(history: History, machine: SimulatedPosix, kind: str) -> list[str]:
    """Return the problems that the status reports. Without the store's marker there is no status."""
    if kind == "store marker":
        with pytest.raises(CorruptError) as caught:
            history.world.store(machine)
        return [str(caught.value)]
    status = read_status(history.world.store(machine))
    return [*status.unreadable.values(), *(row.reason for row in status.datasets if row.reason)]


def _depending(history: History, path: str, what: str) -> frozenset[str]:
    """Return the datasets that depend on the file."""
    if what == "dataset":
        footer = read_footer(history.world.store(history.machine).fs, path)
        return frozenset({footer.dataset_urn}) if footer else frozenset()
    if what == "partition" and "/plans/" in path:
        return frozenset(plan.dataset_urn for plan in decode_plan(history.machine.read_file(path), path))
    name = bucket_name if what == "bucket" else partial(partition_name, partitions=2)  # each has one of the two buckets
    among = frozenset(urn for urn in ALL if name(bucket_of(urn, 2)) in path)
    return {"nothing": frozenset(), "all": ALL, "bucket": among, "partition": among}[what]


def check(history: History, path: str, kind: str, damage: str) -> None:
    """Damage the file, let the job continue, repair the damage, and check the outcome of each dataset."""
    stops = STOPS[kind]
    case = Damaged(history, path, damage)
    machine, observed = case.machine, damage in stops.seen
    stopped = _depending(history, path, stops.what) if observed else frozenset()
    reasons, shown = history.goes_on(machine), _status(history, machine, kind)
    if stopped:
        below_root = path.split("/", 3)[3]
        assert any(below_root in text for text in reasons), f"not named: {reasons}"
        assert stops.heals or any(below_root in text for text in shown) == stops.shown, (
            f"not named by the status: {shown}"
        )
    else:
        assert reasons == shown == []
    for urn in ALL - stopped:
        assert _watermark(history, machine, urn) == ENDS[urn], f"{urn} depends on it: {reasons}"
    if not observed:
        audit = audit_store(history.world.store(machine), NOW.provenance, deep=True)
        assert not audit.exact
        assert any(path.rpartition("/")[2] in name for name in audit.unknown_files), audit
        return
    if stopped and not stops.heals:
        case.restore()
    for urn in stopped:
        assert _watermark(history, machine, urn) == _watermark(history, history.machine, urn), (
            f"the watermark of {urn} has moved"
        )
        with suppress(ConflictError):
            operator_actions.retry(history.world.store(machine), urn, "person")
    for _ in range(
        2 if kind.endswith("of a cut") else 1
    ):  # a damaged file of an older cut stays until the cut is deleted
        history.world.run(machine, NOW)
    assert history.world.violation(machine, NOW, {}) == ""


def _sites(history: History) -> Iterator[tuple[str, str]]:
    """Return one file of each kind and location and, in a log, of each record type. A run in progress no longer reads
    the job log or the folder claims.
    """
    sites: dict[tuple[str, str, str], str] = {}
    for path, kind in history.files():
        if kind in ("job log", "claim of a folder") and history.run is not None:
            continue
        data = history.machine.read_file(path)
        record = type(decode_segment(data, path).record).__name__ if path.endswith(SEGMENT_SUFFIX) else ""
        sites[kind, record, Operation("", path).site] = path
    yield from ((path, kind) for (kind, _, _), path in sites.items())


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("history", HISTORIES)
def test_damaged_file_is_named_and_stops_only_its_dependants(history: str, damage: str) -> None:
    story = _story(history)
    for path, kind in _sites(story):
        try:
            check(story, path, kind, damage)
        except Exception as error:
            error.add_note(f"{kind}, {damage}: {path}")
            raise


def test_every_kind_of_stored_file_is_damaged_by_these_tests() -> None:
    assert {kind for history in HISTORIES for _, kind in _sites(_story(history))} == STOPS.keys()


@pytest.mark.parametrize("place", range(8))
def test_deep_audit_finds_corruption_of_any_record_in_a_published_file(place: int) -> None:
    story = _story("settled")
    path = next(path for path, kind in story.files() if kind == "published file, done" and "/a/" in path)
    machine = story.machine.after_kill()
    whole = machine.read_file(path)
    values = [match.start() for match in re.finditer(rb"a/[01]/0", whole)]  # uncompressed, in separate pages
    at = values[0] + place % 5
    inode = machine._lookup(path)
    rotten = whole[:at] + bytes([whole[at] ^ (1 << place)]) + whole[at + 1 :]
    machine._inodes[inode] = replace(machine._file(inode), data=rotten)
    assert any(path.endswith(unknown.partition(": ")[0]) for unknown in audit_of(machine).unknown_files)


def audit_of(machine: SimulatedPosix) -> AuditResult:
    return audit_store(WORLD.store(machine), NOW.provenance, deep=True)
