"""Ingest continues although files that only readers need are damaged."""

from __future__ import annotations

from pathlib import Path

from distcommit.stores.snapshots.snapshot_manifests import snapshot_manifest_path, valid_manifests
from tests.unit.app.reading.test_snapshot_reader import NAMES, Place


def test_damaged_older_snapshot_manifest_does_not_stop_the_job(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for end in range(1, 5):
        place.run(end)
    roots = list(valid_manifests(place.fs, place.roots.store, place.store().job_log().refresh()))
    damaged = Path(snapshot_manifest_path(place.roots.store, roots[3].name))
    damaged.write_bytes(damaged.read_bytes()[:-5])
    place.run(9)
    assert place.counts(place.read()) == dict.fromkeys(NAMES, 9)
