"""Places of a forked flow's records: the branches and error branches in which they are, and in which they must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from distcommit.app.admin.rebuild_store import stored_states
from distcommit.app.auditing.files.read_published_files import read_published
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import error_branch_of
from distcommit.sinks.files.footer import read_records
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelSource
from tests.models.model_flow import places_of
from tests.simulation.casts.parts import Cast, violation_of
from tests.simulation.simulated_posix import SimulatedPosix

Places = Callable[[str, int], Iterable[str]]
"""Places of a value's record at an offset: names of branches and error branches, with repetitions."""


def _live(store: JobStore) -> dict[str, list[str]]:
    """Return the live places of each value."""
    done, places = stored_states(store), dict[str, list[str]]()
    for folder in read_published(store.fs, store.roots.output):
        for file in folder.live_files(done[folder.dataset_urn].done_epoch):
            name = file.footer.branch
            place = error_branch_of(name) if file.footer.kind == "rejected" else name
            for value in read_records(store.fs, file.path).column("value").to_pylist():
                places.setdefault(value, []).append(place)
    return places


def misplaced(store: JobStore, source: ModelSource, *flows: Places) -> str:
    """Return a misplaced record, if any: each must be where one of these flows puts it, and no others may exist."""
    results = _live(store)
    for urn, dataset in source.datasets.items():
        for partition, end in dataset.partitions.items():
            for offset in range(end):
                value = f"{urn}/{partition}/{offset}"
                live, expected = sorted(results.pop(value, [])), [sorted(places(value, offset)) for places in flows]
                if live not in expected:
                    return f"{value} is in {live}, expected in one of {expected}"
    return f"no reader has read {results}" if results else ""


def by_offset(_: str, offset: int) -> Iterable[str]:
    """Return the places of `model_flow` by offset."""
    return places_of(offset)


def violation_of_branches(cast: Cast, machine: SimulatedPosix, before: Mapping[str, Watermark]) -> str:
    """Return a violation of `model_flow`'s places between source and sink."""
    wrong = violation_of(cast, machine, before)
    return wrong or misplaced(cast.world.store(machine), cast.source, by_offset)
