"""Run markers: the runs that may have published in an output. They show whether a store is older than its output.

<output>/.distcommit/<epoch>-<kind>     a run marker
"""

from __future__ import annotations

from enum import StrEnum

from distcommit.core.interfaces.file_system import FileSystem
from distcommit.protocol.paths.output import run_marker_name, run_marker_of
from distcommit.protocol.paths.shared_names import OWNERSHIP_FOLDER


class Marker(StrEnum):
    """The kinds of run markers in an output.

    BEGAN: the run may publish. ENDED: the run has ended. CLEAN: as ENDED, without open sequences. REBUILD: a rebuild is
    in progress; no run starts. UNSEALED: the run publishes before it seals (at-least-once), so that its published files
    may be only a part of what it has read.
    """

    BEGAN = "began"
    ENDED = "ended"
    CLEAN = "clean"
    REBUILD = "rebuild"
    UNSEALED = "unsealed"


def read_markers(fs: FileSystem, output: str) -> dict[Marker, int]:
    """Return the newest epoch of each kind of marker; 0 if there is no marker of the kind."""
    newest = dict.fromkeys(Marker, 0)
    for entry in fs.list_folder(f"{output}/{OWNERSHIP_FOLDER}"):
        epoch, mark = run_marker_of(entry.name) or (0, "")
        if mark in newest:
            newest[Marker(mark)] = max(newest[Marker(mark)], epoch)
    return newest


def newest_end(run_markers: dict[Marker, int]) -> int:
    return max(run_markers[Marker.ENDED], run_markers[Marker.CLEAN])


def put_run_marker(fs: FileSystem, output: str, epoch: int, mark: Marker) -> None:
    """Put a marker, durably, then delete older ones of its kind."""
    folder = f"{output}/{OWNERSHIP_FOLDER}"
    fs.make_folders(folder)
    fs.put_if_absent(f"{folder}/{run_marker_name(epoch, mark)}", b"")
    fs.sync([folder], output)
    for entry in fs.list_folder(folder):
        other_epoch, other = run_marker_of(entry.name) or (epoch, "")
        if other == mark and other_epoch < epoch:
            fs.delete(f"{folder}/{entry.name}")
