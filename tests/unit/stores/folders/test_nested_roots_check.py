"""Nested folders of different jobs are refused, whichever job was first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.logs.fencing import begin_run, take_ownership_of_folders
from distcommit.stores.state.job_store import JobStore, Roots, open_store

NAMES = ("store", "staging", "output")


def job(place: Path, name: str, **moved: Path) -> JobStore:
    """Begin a run of a job with folders below `place/name`, except for those that are moved."""
    roots = Roots(*(str(moved.get(folder, place / name / folder)) for folder in NAMES))
    store = open_store(LocalFileSystem(durable=False), roots, name, 1, create=True)
    begin_run(store, f"run of {name}")
    return store


@pytest.mark.parametrize("inner", NAMES)
@pytest.mark.parametrize("outer", NAMES)
@pytest.mark.parametrize("below", ["x", "_rejected/x", "x/y/z"])
def test_folder_inside_a_folder_of_another_job_is_refused(tmp_path: Path, inner: str, outer: str, below: str) -> None:
    first = job(tmp_path, "first")
    place = Path(getattr(first.roots, outer)) / below
    with pytest.raises(ConfigurationError, match="a job's folder is inside a folder of another job"):
        job(tmp_path, "second", **{inner: place})
    assert not place.exists(), "a refused job must create no folder"
    begin_run(first, "again")


@pytest.mark.parametrize("inner", NAMES)
@pytest.mark.parametrize("outer", NAMES)
def test_folder_around_a_folder_of_another_job_is_refused(tmp_path: Path, inner: str, outer: str) -> None:
    job(tmp_path, "first", **{inner: tmp_path / "wide/below" / inner})
    with pytest.raises(ConfigurationError, match="inside"):
        job(tmp_path, "second", **{outer: tmp_path / "wide"})


@pytest.mark.parametrize(("first_folder", "second_folder"), [(a, b) for a in NAMES for b in NAMES])
def test_folder_shared_by_two_jobs_is_refused(tmp_path: Path, first_folder: str, second_folder: str) -> None:
    first = job(tmp_path, "first")
    with pytest.raises(ConfigurationError, match=r"belongs to another job|inside a folder of another job"):
        job(tmp_path, "second", **{second_folder: Path(getattr(first.roots, first_folder))})


@pytest.mark.parametrize(("folder", "setting"), [("store", "paths.store"), ("output", "paths.output")])
def test_refused_folder_of_another_job_names_both_jobs_and_each_way_on(
    tmp_path: Path, folder: str, setting: str
) -> None:
    first = job(tmp_path, "first")
    with pytest.raises(ConfigurationError) as caught:
        job(tmp_path, "second", **{folder: Path(getattr(first.roots, folder))})
    text = str(caught.value)
    assert caught.value.id == "FOLDER_OF_ANOTHER_JOB"
    assert "job 'second'; found job 'first'" in text
    assert f"if this job is new, set {setting}" in text
    assert "if it is job 'first', set job to 'first'" in text


def test_nested_jobs_created_at_the_same_time_are_refused_at_the_next_run(tmp_path: Path) -> None:
    """Neither job saw the other's claim when it created its store."""
    outer = job(tmp_path, "outer")
    inner = job(tmp_path, "inner")
    moved = Path(outer.roots.output) / "inner"
    Path(inner.roots.output).rename(moved)
    again = open_store(inner.fs, Roots(inner.roots.store, inner.roots.staging, str(moved)), "inner", create=False)
    with pytest.raises(ConfigurationError, match=f"found a folder of job 'outer' at {outer.roots.output}"):
        take_ownership_of_folders(again)


def _plain_file(place: Path) -> None:
    (place / "store.json").write_text("{}")


def _empty_folder(place: Path) -> None:
    (place / "other").mkdir()


@pytest.mark.parametrize("neighbour", [_plain_file, _empty_folder])
def test_sibling_folders_and_foreign_files_are_accepted(tmp_path: Path, neighbour: Callable[[Path], None]) -> None:
    neighbour(tmp_path)
    for name in ("first", "second"):
        job(tmp_path, name)
    job(tmp_path, "third", output=tmp_path / "first/output2", staging=tmp_path / "first/staging-of-third")
