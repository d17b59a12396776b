"""Meeting points of recoveries: many crashes leave different images that recovery turns into the same one.

A run recovers first, and continues from the recovered image. Its continuation follows from that image, from the run's
memory, and from the source, so that it needs to be seen once. If a recovery reaches the image of an earlier one that
ended correctly, it would end in the same way.

Two images are the same if they have the same bytes, except for ids that the recovering runs have created: run ids, ids
of writers, and the checksums of segments, of beginnings of runs and of snapshots, which cover them. The ids of one
image must then correspond to those of the other at every place. The content of run time files is ignored: no run reads
it, and its request counts are those of the whole process. An id in other bytes, or any other difference, such as
another inode of a file that commit steps name, makes a different image. A machine with symbolic links equals no other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import msgspec
from xxhash import xxh3_128_digest

from distcommit.core.errors import DistcommitError
from distcommit.engine.committing.recover import RecoverReport, recover_partition
from distcommit.engine.driver.launch_interface import Launch, Result
from distcommit.engine.planning.plan_partition import plan_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER
from distcommit.protocol.paths.store import BEGUN, RUN_TABLES, SEGMENT_SUFFIX, SNAPSHOTS
from distcommit.stores.history.run_records import BEGINNING_VERSION, RunBeginning
from distcommit.stores.logs.segment_format import decode_segment
from distcommit.stores.snapshots.snapshot_manifests import SNAPSHOT_VERSION, SnapshotManifest
from distcommit.stores.state.checksummed_json import decode_document
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS

_IDS = re.compile(r"([0-9a-f]{32}|\d{8}T\d{6}-[0-9a-f]{12}|[0-9a-f]{16})")
_CHECKSUM_LETTERS = 16
_BEGINNING = f"-{BEGUN}.json"
_TABLES = f"{ROOTS.store}/{RUN_TABLES}/"
_CUT = re.compile(rf"{SNAPSHOTS}/\d+-[12]\.json$")


class Met(BaseException):
    """The rest of the run would repeat one that was seen before. Not an Exception, so that no handler catches it."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A file or folder.

    Texts are split, and every second part may be an id. `said`: the content of a whole segment. `data`: all other
    bytes, None of a folder. `identity`: inode and time, if commit steps name them.
    """

    path: tuple[str, ...]
    said: tuple[str, ...]
    data: bytes | None
    identity: tuple[int, ...]
    checksum: str


class Meeting:
    """A recovering run, which may reach an image that another one has reached.

    Args:
        known: images from which runs continued to a correct end. `ended_well` adds this run's.
        machine: the machine before the run.
        about: further inputs of its outcome, in plain text.
    """

    def __init__(self, known: set[bytes], machine: SimulatedPosix, about: str) -> None:
        self._known, self._machine, self._about = known, machine, about
        self._older = ids_in(machine)
        self._recovered: list[RecoverReport] = []
        self._image = b""

    def watching(self, launch: Launch) -> Launch:
        """Return a launch that raises `Met` if the run begins to plan on a known image."""

        def watched(
            function: Callable[[RunSettings, int], Result], settings: RunSettings, tasks: int, kind: type[Result]
        ) -> list[Result]:
            if function is plan_partition:
                self._look(settings)
            results = launch(function, settings, tasks, kind)
            if function is recover_partition:
                self._recovered = [result for result in results if isinstance(result, RecoverReport)]
            return results

        return watched

    def ended_well(self) -> None:
        """Record that the run has ended correctly, so that no other run need continue from its image."""
        if self._image:
            self._known.add(self._image)

    def _look(self, settings: RunSettings) -> None:
        reports = [recover_report.report for recover_report in self._recovered]
        if any(report.reasons or report.counts.sequences_postponed for report in reports):
            return  # failures are in memory alone, and end the run
        if self._machine.has_links():
            return
        held = [recover_report.oldest_held_epoch for recover_report in self._recovered]
        memory = repr(
            (settings.epoch, settings.clock.now_ms(), held, [(report.heads, report.snapshots) for report in reports])
        )
        self._image = image(self._machine, self._older, f"{self._about} {memory}")
        if self._image in self._known:
            raise Met


def image(machine: SimulatedPosix, older: AbstractSet[str], memory: str) -> bytes:
    """Return the image of a machine and a process's memory, which is equal for images that differ in ids other than
    `older`."""
    places = _places(machine)
    checksums = {place.checksum for place in places}
    numbers: dict[str, int] = {}

    def is_own(each: str) -> bool:
        return each not in older and (len(each) != _CHECKSUM_LETTERS or each in checksums)

    def without_ids(pieces: tuple[str, ...]) -> str:
        return "".join("#" if at % 2 and is_own(name) else name for at, name in enumerate(pieces))

    def numbered(pieces: tuple[str, ...]) -> list[str | int]:
        return [
            numbers.setdefault(name, len(numbers)) if at % 2 and is_own(name) else name
            for at, name in enumerate(pieces)
        ]

    lines = [
        (numbered(place.path), numbered(place.said), place.data, place.identity)
        for place in sorted(places, key=lambda place: without_ids(place.path))
    ]
    return xxh3_128_digest(msgspec.msgpack.encode((lines, numbered(tuple(_IDS.split(memory))))))


def ids_in(machine: SimulatedPosix) -> set[str]:
    """Return the texts in its paths and segments that look like ids."""
    return {name for place in _places(machine) for name in (*place.path[1::2], *place.said[1::2])}


def _places(machine: SimulatedPosix) -> list[_Place]:
    ids = []
    for inode, path, there, mtime_ns in machine.contents():
        data = b"" if there and path.startswith(_TABLES) else there
        named = data is not None and not path.startswith(ROOTS.store) and f"/{OWNERSHIP_FOLDER}/" not in path
        identity = (inode, mtime_ns) if named else ()
        content, checksum = _said(path, data) if data and _has_ids(path) else ((), "")
        ids.append(_Place(_pieces(path), content, None if content else data, identity, checksum))
    return ids


@functools.lru_cache(200_000)
def _pieces(text: str) -> tuple[str, ...]:
    return tuple(_IDS.split(text))


def _has_ids(path: str) -> bool:
    """Return whether the file's kind may contain ids of the run that wrote it."""
    return path.endswith((SEGMENT_SUFFIX, _BEGINNING)) or _CUT.search(path) is not None


@functools.lru_cache(50_000)
def _said(path: str, data: bytes) -> tuple[tuple[str, ...], str]:
    """Return the parts of a segment, a beginning of a run or a snapshot, and its checksum; nothing if it is damaged."""
    try:
        if not path.endswith(SEGMENT_SUFFIX):
            if path.endswith(_BEGINNING):
                decode_document(data, RunBeginning, BEGINNING_VERSION, "", path)
            else:
                decode_document(data, SnapshotManifest, SNAPSHOT_VERSION, "", path)
            return tuple(_IDS.split(data.decode())), data[-_CHECKSUM_LETTERS - 1 : -1].decode()
        segment = decode_segment(data, path)
    except DistcommitError:
        return (), ""
    return tuple(_IDS.split(repr(segment))), segment.checksum
