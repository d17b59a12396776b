"""Jobs whose `source.paths` differ from those by which their store recorded the files that were read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit import Job
from distcommit.app.job_file.fixed_settings import fixed_settings_of
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSettings
from distcommit.core.watermark import Position
from distcommit.stores.state.recorded_fixed_settings import record_settings, require_settings

WATERMARK: dict[str, Position] = {"files": (0, 0, "", 1_700_000_000_000_000_000, 0, ""), "0": 5}


def _job(folder: Path, name: str, *folders: str, **source: Any) -> Job:
    paths = [f"{folder}/{subfolder}/*.jsonl" for subfolder in folders]
    job = {
        "job": name,
        "source": {"type": "files", "format": "jsonl", "dataset": "d", "paths": paths, **source},
        "paths": {place: f"{name}/{place}" for place in ("store", "staging", "output")},
        "commit": {"buckets": 2, "durability": "none"},
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(job))
    return Job.from_file(file)


def _pinned(job: Job) -> FixedSettings:
    return fixed_settings_of(job.config)


def test_reordered_source_paths_are_refused(tmp_path: Path) -> None:
    store = _job(tmp_path, "old", "in/a", "in/b").open_store(create=True)
    record_settings(store, _pinned(_job(tmp_path, "old", "in/a", "in/b")))
    require_settings(store, _pinned(_job(tmp_path, "old", "moved/in/a", "moved/in/b")))
    with pytest.raises(ConfigurationError, match=r"source\.paths \(folders\): a b; found .*: b a"):
        require_settings(store, _pinned(_job(tmp_path, "old", "in/b", "in/a")))


def test_store_without_recorded_folders_is_accepted_and_then_records_them(tmp_path: Path) -> None:
    """An older version of the program recorded no folders."""
    job = _job(tmp_path, "old", "in/a", "in/b")
    store, pinned = job.open_store(create=True), _pinned(job)
    older = {name: pin for name, pin in pinned.settings.items() if name != "source.paths (folders)"}
    assert len(older) == len(pinned.settings) - 1
    record_settings(store, FixedSettings(older))
    record_settings(store, pinned)
    require_settings(store, pinned)
    with pytest.raises(ConfigurationError):
        require_settings(store, _pinned(_job(tmp_path, "old", "in/b", "in/a")))


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("other_folders", [("in/b", "in/a"), ("in/a",), ("in/a", "in/b", "in/c")])
def test_watermarks_of_other_source_paths_are_not_imported(
    tmp_path: Path, other_folders: tuple[str, ...], is_recorded: bool
) -> None:
    old = _job(tmp_path, "old", "in/a", "in/b")
    store = old.open_store(create=True)
    old.set_watermark("d", WATERMARK, new=True)
    if is_recorded:
        record_settings(store, _pinned(old))
        _job(tmp_path, "old", *other_folders)  # the recorded paths take precedence
    new = _job(tmp_path, "new", *other_folders)
    new.open_store(create=True)
    with pytest.raises(ConfigurationError, match="source settings of the other job") as refused:
        new.import_watermarks(tmp_path / "old.yaml")
    assert "restore the old source.paths in their order" in refused.value.todo
    assert not new.status().datasets
    _job(tmp_path, "new", "moved/a", "moved/b").import_watermarks(tmp_path / "old.yaml")
    assert [row.positions for row in new.status().datasets] == [WATERMARK]
