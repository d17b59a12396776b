"""The probe of an fsspec file system finds and names each defect when a store is created."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from fsspec.implementations.local import LocalFileSystem

from distcommit.core.errors import ConfigurationError
from distcommit.stores.state.job_store import Roots, open_store
from tests.unit.fs.fsspec_based import fsspec_file_systems
from tests.unit.fs.fsspec_based.fsspec_file_systems import Renaming, opened


@pytest.fixture(autouse=True)
def maker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fsspec_file_systems.MAKER, str(os.getpid()))


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() or "probe" in path.name}


@pytest.mark.parametrize("kind", [Renaming, fsspec_file_systems.ReportsWhenClosed, fsspec_file_systems.RefusesOddNames])
def test_correct_file_system_is_accepted_and_no_probe_file_is_left(tmp_path: Path, kind: type[LocalFileSystem]) -> None:
    (tmp_path / "store" / "probe-folder-of-one-that-died" / "0").mkdir(parents=True)
    (tmp_path / "store" / "probe-folder-of-one-that-died" / "0" / "a").touch()
    roots = Roots(*(str(tmp_path / name) for name in ("store", "staging", "output")))
    store = open_store(opened(kind), roots, "job", 1, create=True)
    assert store.fs.scheme == "renaming"
    remaining = {name for name in files(tmp_path) if not name.startswith("store/log/")}
    assert remaining == {"store/store.json"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "asked", "expected", "problem"),
    [
        ("ReadsLess", "read what was written", "b'", "b'"),
        ("Overwrites", "exclusive create of a taken name", "'FileExistsError'", "'done'"),
        ("EmptiesExistingTargets", "leave the existing file unchanged", "b'", "b''"),
        ("MakesWhenClosed", "exclusive create while the name is being written", "b'first'", "'done', 'done'"),
        ("MakesFoldersAgain", "make a folder once", "(True, False)", "(True, True)"),
        ("MakesRoomForFiles", "reject a file in a missing folder", "'FileNotFoundError'", "'done'"),
        ("MakesRoomForRenames", "reject a rename into a missing folder", "'FileNotFoundError'", "'done'"),
        ("MakesRoomForFolders", "reject a folder in a missing folder", "'FileNotFoundError'", "'done'"),
        ("RemovesTrees", "keep a non-empty folder", "(False, b'x')", "FileNotFoundError"),
        ("KeepsFiles", "delete a file once", "(True, False)", "(True, True)"),
        ("ListsForEver", "show a deletion at once", "([], None)", "(['file'], None)"),
        ("KeepsFolders", "delete an empty folder", "(True, None)", "(True, FileStatus"),
        ("HasShortPaths", "store a file at a long path", "('done', 'done', ['a'])", "('done', 'OSError', [])"),
        ("Replaces", "rename without replacing a file", "'FileExistsError'", "'done'"),
        ("LosesUnrenamedFiles", "leave both files unchanged", "(b'mine', b'theirs')", "FileNotFoundError"),
        ("RenamesIntoFolders", "rename without replacing a folder", "'FileExistsError'", "'done'"),
        ("RenamesIntoFoldersAndRefuses", "reject a rename onto a folder", "(b'mine', [])", "(b'mine', ['a'])"),
        ("KeepsTheOldName", "rename a file", "(b'mine', None)", "(b'mine', FileStatus"),
        ("IgnoresMissingFiles", "reject the rename of a missing file", "'FileNotFoundError'", "'done'"),
        ("LooksThenRenames", "one winner of concurrent renames to a name", "'done': 1}", "'done': "),
        ("ReportsTheWrongWinner", "give the winner the name", "b'", "b'"),
        ("LosesTheLoserOfARace", "leave the losers' files", "['", "['renamed']"),
        ("LooksThenMakes", "one winner of concurrent creates of a name", "'done': 1}", "'done': "),
        ("MixesConcurrentWrites", "store the winner's bytes", "b'", "b'"),
        ("DropsDots", "store names unchanged", "[]", "['dot']"),
        ("TakesAsciiOnly", "store names unchanged", "['ünï", "[]"),
        ("IgnoresCase", "distinguish names by case", "{'A': b'A', 'a': b'a'}", "{'a': b'A'}"),
        ("CachesMissingFiles", "show a new file to other clients at once", "(['a'], 1)", "(['a'], None)"),
        ("CachesExistingFiles", "show a rename to other clients at once", "(['b'], None)", "(['b'], 1)"),
        ("ShowsOneProcessOnly", "show files to other processes at once", "(['b'], 1)", "([], 1)"),
        (
            "OverwritesOtherProcesses",
            "a name taken by another process",
            "'FileExistsError'",
            "'done'",
        ),
        ("WorksInOneProcessOnly", "access from another process", "a result", "no such mount"),
    ],
)
def test_defective_file_system_is_rejected_with_the_defect(
    tmp_path: Path, kind: str, asked: str, expected: str, problem: str
) -> None:
    fs = opened(getattr(fsspec_file_systems, kind))
    refused = f"the renaming file system lacks a capability .*{re.escape(asked)}"
    with pytest.raises(ConfigurationError, match=refused) as caught:
        fs.probe(str(tmp_path / "probe"))
    assert expected in caught.value.expected
    assert problem in caught.value.found
    assert str(tmp_path) in caught.value.ids["path"]
    assert caught.value.todo


def test_file_system_that_cannot_be_pickled_is_rejected(tmp_path: Path) -> None:
    class Here(Renaming):
        pass

    with pytest.raises(ConfigurationError, match=r"access from executors.*a class that can be imported.*Here"):
        opened(Here).probe(str(tmp_path / "probe"))


def test_rejection_at_creation_leaves_no_files(tmp_path: Path) -> None:
    roots = Roots(*(str(tmp_path / name) for name in ("store", "staging", "output")))
    with pytest.raises(ConfigurationError, match="store names unchanged"):
        open_store(opened(fsspec_file_systems.DropsDots), roots, "job", 1, create=True)
    assert files(tmp_path) == set()
