"""Probes write bytes to a target, because renames may succeed without free space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distcommit.sinks.iceberg.catalog.open_catalogs import close_opened, opened
from distcommit.sinks.table_formats.data_files import probe_folder
from tests.unit.sinks.full_disk import full_disk
from tests.unit.sinks.iceberg.iceberg_target import Target


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    yield Target(tmp_path)
    close_opened()


def test_missing_folder_is_probed_at_its_parent_and_not_created(tmp_path: Path) -> None:
    probe_folder(str(tmp_path / "a" / "b"))
    with full_disk(), pytest.raises(OSError, match="File too large"):
        probe_folder(str(tmp_path / "a" / "b"))
    assert list(tmp_path.iterdir()) == []


def test_iceberg_probes_each_location_that_the_job_names(target: Target) -> None:
    (target.folder / "data").touch()  # blocks a folder of that name
    target.committer(target.sink()).probe()
    sink = target.sink(properties={"write.data.path": f"file://{target.folder}/data"})
    with pytest.raises(NotADirectoryError):
        target.committer(sink).probe()


def test_foreign_location_is_skipped_only_if_the_catalog_may_lend_credentials(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = opened(target.sink().catalog)
    tables.probe_locations(["the-name-of-a-warehouse", ""])
    with pytest.raises(UserWarning, match="nowhere"):
        tables.probe_locations(["nowhere://bucket/prefix"])
    monkeypatch.setattr(type(tables), "lends_credentials", True)
    tables.probe_locations(["nowhere://bucket/prefix"])
