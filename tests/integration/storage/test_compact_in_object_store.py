"""Files in an object store are compacted. A staged file cannot be read there before it is published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distcommit.fs.object_stores.s3_file_system import S3FileSystem
from distcommit.fs.object_stores.s3_requests import S3Requests
from distcommit.sinks.files import merged_file
from distcommit.sinks.files.open_file import ClosedFile
from distcommit.stores.state.job_store import Roots
from tests.servers.s3 import S3Server
from tests.unit.engine.maintenance.test_compact import NAMES, Files


@pytest.fixture
def place(tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Files:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    place = Files(tmp_path)
    place.fs = S3FileSystem(S3Requests(s3_server.make_bucket()))  # type: ignore[assignment]
    place.roots = Roots("/job/store", "/job/staging", "/job/output")
    for end in (3, 5, 9):
        place.run(end, NAMES)
    return place


def data_files(place: Files) -> list[str]:
    return [entry.name for entry in place.fs.list_folder(f"{place.roots.output}/a") if not entry.is_folder]


def test_files_in_an_object_store_are_merged_and_deleted(place: Files) -> None:
    assert not place.fs.has_folders
    assert len(data_files(place)) == 3
    result = place.compact()
    assert result.succeeded, result.reasons
    audited = place.audit()
    assert (audited.exact, audited.records, audited.superseded_files) == (True, 18, 8)
    for _ in range(2):
        place.run(9, NAMES)
    assert len(data_files(place)) == 1
    audited = place.audit()
    assert (audited.exact, audited.records, audited.superseded_files) == (True, 18, 0)


def test_copy_with_other_bytes_is_never_published(place: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    written = merged_file._written

    def with_other_checksum(*args: object, **kwargs: object) -> ClosedFile:
        closed = written(*args, **kwargs)  # type: ignore[arg-type]
        return replace(closed, checksum=closed.checksum ^ 1)

    monkeypatch.setattr(merged_file, "_written", with_other_checksum)
    result = place.compact()
    assert not result.succeeded
    assert all("COMPACTION_NOT_CONSERVED" in reason.text for reason in result.reasons.entries), result.reasons
    assert len(data_files(place)) == 3
    assert place.audit().exact
