"""Casts for the interleaver: readers of snapshots, with the steps of runs between any two of theirs.

A reader opens the newest snapshot and reads all of it, as `distcommit.read` does. It gets whole commits, or is refused
because the snapshot was deleted meanwhile. Of a `scope: job` job it gets all datasets or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from distcommit.app.reading.snapshot_reader import Snapshot, read_store
from distcommit.core.errors import SnapshotExpiredError, StaleStoreError
from distcommit.core.work_units import MAIN_BRANCH
from distcommit.sinks.files.sink import FileSink
from distcommit.stores.snapshots.snapshot_manifests import valid_manifests
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.casts.parts import Act, Cast, Scene, runs, violation_of_exact
from tests.simulation.programs.compact import SMALL_FILES
from tests.simulation.programs.expire import TIMED, retain_old, timed_source
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS, World

_READS = 3
_KEPT = 2
"""Snapshots that a run of these worlds keeps: the default of `RunSettings.kept_snapshots`."""


def _source(end: int) -> ModelSource:
    return ModelSource({urn: ModelDataset({"0": end}, units=2) for urn in "ab"})


_ENDS = (1, 3, 5)
_APPENDS = World(buckets=2, partitions=2)
_TOGETHER = replace(_APPENDS, job_level=True)
_REPLACES = World(files=FileSink(compression="none", publish="replace"))


def _offsets_of(cut: Snapshot, urn: str) -> list[tuple[str, int]]:
    table = cut.to_arrow(urn)
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)) if len(table) else []


def _wrong_with(world: World, cut: Snapshot, seen: Mapping[str, list[tuple[str, int]]], aged_epoch: int) -> str:
    """Return whatever is not a whole commit: a snapshot's watermark of a dataset defines its records.

    Expired records are complete up to `aged_epoch`, and absent after it.
    """
    for urn, offsets in seen.items():
        reached = cut.datasets[urn].watermark
        ends = {} if reached is None else {partition: int(str(end)) for partition, end in reached.positions.items()}
        for partition, end in ends.items():
            first = max([0, *(number for number in _ENDS if number < end)]) if world.files.publish == "replace" else 0
            positions = [at for of_partition, at in offsets if of_partition == partition]
            if partition == "0" and 0 < aged_epoch < cut.datasets[urn].done_epoch:
                first = end
            if positions != [*range(first, end)]:
                return f"of {urn} at {cut.epoch}.{cut.phase} a reader gets {offsets}, expected {first} to {end}"
    if world.job_level and len({tuple(offsets) for offsets in seen.values()}) > 1:
        return f"half a job is read at {cut.epoch}.{cut.phase}: {seen}"
    return ""


def _kept(store: JobStore) -> list[tuple[int, int]]:
    """Return the snapshots that a run keeps now. A reader that is slower than two runs may lose an older one."""
    manifests = valid_manifests(store.fs, store.roots.store, store.job_log().refresh())
    return [(manifest.epoch, int(manifest.phase)) for manifest in islice(manifests, _KEPT)]


def _reads(world: World, *, aged_epoch: int = 0) -> Act:
    """Return a reader that opens the newest snapshot, reads it, and repeats that; a newer snapshot never shows less.

    With `aged_epoch` expiry deletes the files of that epoch, and the snapshots that show them.
    """

    def act(store: JobStore, scene: Scene) -> None:
        newest, opened = (0, 0), None
        for _ in range(_READS):
            try:
                opened = None
                cut = read_store(store, ROOTS.output, MAIN_BRANCH, None, None)
                opened = (cut.epoch, cut.phase)
                observed = {urn: _offsets_of(cut, urn) for urn in cut.datasets}
            except SnapshotExpiredError:
                if aged_epoch or (opened is not None and opened not in _kept(store)):
                    continue
                raise AssertionError("a snapshot that is kept went while it was read") from None
            except StaleStoreError as error:
                raise AssertionError(f"a reader is refused beside a run: {error}") from error
            wrong = _wrong_with(world, cut, observed, aged_epoch)
            if wrong or (cut.epoch, cut.phase) < newest:
                raise AssertionError(wrong or f"a reader is taken back from {newest} to {cut.epoch}.{cut.phase}")
            newest = (cut.epoch, cut.phase)

    return act


def _beside_runs(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    for end in _ENDS[:2]:
        world.run(machine, _source(end))
    last = _source(_ENDS[2])
    return {"reader": _reads(world), "run": runs(world, last), "other": runs(world, last)}


def _retains(store: JobStore, scene: Scene) -> None:
    try:
        retain_old(store.fs._calls)  # type: ignore[attr-defined]
    except AssertionError:
        if not scene.disturbed:
            raise


def _beside_retention(machine: SimulatedPosix) -> Mapping[str, Act]:
    """Old files, of partition 0, are deleted with the snapshots that show them. Those of partition 1 stay."""
    for source in _AGED:
        TIMED.run(machine, source)
    states = TIMED.store(machine).bucket_log(0).refresh().datasets.values()
    return {"reader": _reads(TIMED, aged_epoch=max(state.done_epoch for state in states)), "expire": _retains}


def _compacts(world: World, source: ModelSource) -> Act:
    """Return a part that compacts small files. If no other run fences it and no error strikes, it must succeed."""

    def act(store: JobStore, scene: Scene) -> None:
        result = world.compact(store.fs._calls, source, SMALL_FILES)  # type: ignore[attr-defined]
        if not (result.succeeded or scene.disturbed):
            raise AssertionError(f"small files cannot be compacted: {result}")

    return act


def _beside_compactions(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    for end in _ENDS[:2]:
        world.run(machine, _source(end))
    last = _source(_ENDS[2])
    return {"reader": _reads(world), "compact": _compacts(world, last), "run": runs(world, last)}


def _two_compactions(world: World, machine: SimulatedPosix) -> Mapping[str, Act]:
    for end in _ENDS:
        world.run(machine, _source(end))
    last = _source(_ENDS[2])
    return {"reader": _reads(world), "one": _compacts(world, last), "two": _compacts(world, last)}


_AGED = (timed_source(1, 1), timed_source(2, 2))
_BLIND = frozenset({"reader"})

READERS = (
    *(
        Cast(name, partial(_beside_runs, world), violation_of_exact, world, _source(_ENDS[2]), blind=_BLIND)
        for name, world in (("reader", _APPENDS), ("reader-of-a-job", _TOGETHER), ("reader-of-replaced", _REPLACES))
    ),
    *(
        Cast(name, partial(stage, _APPENDS), violation_of_exact, _APPENDS, _source(_ENDS[2]), blind=_BLIND)
        for name, stage in (("reader-of-compacted", _beside_compactions), ("two-compactions", _two_compactions))
    ),
    Cast("reader-of-retained", _beside_retention, violation_of_exact, TIMED, _AGED[1], blind=_BLIND),
)
