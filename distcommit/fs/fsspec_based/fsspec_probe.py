"""Tests of an unknown file system's capabilities before a job's folders are created.

Races are tried several times with many callers, because one try may not show a fault.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from reprlib import repr as shortened
from typing import Any, TypeVar

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem

Result = TypeVar("Result")

_DONE, _TAKEN, _MISSING = "done", "FileExistsError", "FileNotFoundError"
_AT_ONCE = 8
_ONE_WINS = {_DONE: 1, _TAKEN: _AT_ONCE - 1}
_TURNS = 5
_LARGE = bytes(range(256)) * (3 << 12)
_KEPT_NAMES = ("ünï côde 日本", "%2F a", "x" * 200)
_ODD_NAMES = ("dot.", "space ", "a:b", "a\\b", "a*?[b]")
_DEEP = "/".join(["tief-ü-" * 5] * 10)
_ELSEWHERE = "import pickle, sys; sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)()))"
_TIMEOUT_S = 120


def probe(fs: FileSystem, folder: str) -> None:
    """Test a file system in `folder`, a new folder that the caller deletes.

    Raises:
        ConfigurationError: if a capability is missing.
        OSError: if the folder cannot be written at all.
    """
    fs.make_folders(folder)
    checks = (_makes_files, _has_folders, _renames, _lets_one_win, _keeps_names, _shows_others)
    for number, check in enumerate(checks):
        below = f"{folder}/{number}"
        fs.make_folder(below)
        check(fs, below)


def _makes_files(fs: FileSystem, folder: str) -> None:
    path = f"{folder}/a"
    _write(fs, path, _LARGE)
    _expect(fs, path, "read what was written", _LARGE, _read(fs, path))
    _expect(fs, path, "exclusive create of a taken name", _TAKEN, _result(_write, fs, path, b"second"))
    _expect(fs, path, "leave the existing file unchanged", _LARGE, _read(fs, path))
    path = f"{folder}/b"
    writer = fs.create(path)
    writer.write(b"first")
    second = _result(_write, fs, path, b"second")
    first = _result(partial(writer.close_file, sync=True))
    expected = (_DONE, _TAKEN, b"first") if first == _DONE else (_TAKEN, _DONE, b"second")
    actual = (first, second, _read(fs, path))
    _expect(fs, path, "exclusive create while the name is being written", expected, actual)


def _has_folders(fs: FileSystem, folder: str) -> None:
    below, missing = f"{folder}/a", f"{folder}/missing"
    _expect(fs, below, "make a folder once", (True, False), (fs.make_folder(below), fs.make_folder(below)))
    file = f"{below}/file"
    _write(fs, file, b"x")
    refusals = {
        "a file in a missing folder": _result(_write, fs, f"{missing}/file", b"x"),
        "a rename into a missing folder": _result(fs.rename, file, f"{missing}/file"),
        "a folder in a missing folder": _result(fs.make_folder, f"{missing}/below"),
    }
    for request, result in refusals.items():
        _expect(fs, missing, f"reject {request}", _MISSING, result)
    _expect(fs, below, "keep a non-empty folder", (False, b"x"), (fs.delete_folder(below), _read(fs, file)))
    _expect(fs, file, "delete a file once", (True, False), (fs.delete(file), fs.delete(file)))
    _expect(fs, below, "show a deletion at once", ([], None), _look(fs, below, file))
    _expect(fs, below, "delete an empty folder", (True, None), (fs.delete_folder(below), fs.status(below)))
    deep = f"{folder}/{_DEEP}"
    results = _result(fs.make_folders, deep), _result(_write, fs, f"{deep}/a", b"x"), _names(fs, deep)
    _expect(fs, deep, "store a file at a long path", (_DONE, _DONE, ["a"]), results)


def _renames(fs: FileSystem, folder: str) -> None:
    source, target, empty = f"{folder}/a", f"{folder}/b", f"{folder}/empty"
    _write(fs, source, b"mine")
    _write(fs, target, b"theirs")
    _expect(fs, target, "rename without replacing a file", _TAKEN, _result(fs.rename, source, target))
    _expect(fs, target, "leave both files unchanged", (b"mine", b"theirs"), (_read(fs, source), _read(fs, target)))
    fs.make_folder(empty)
    _expect(fs, empty, "rename without replacing a folder", _TAKEN, _result(fs.rename, source, empty))
    _expect(fs, empty, "reject a rename onto a folder", (b"mine", []), (_read(fs, source), _names(fs, empty)))
    fs.delete(target)
    fs.rename(source, target)
    _expect(fs, target, "rename a file", (b"mine", None), (_read(fs, target), fs.status(source)))
    _expect(fs, source, "reject the rename of a missing file", _MISSING, _result(fs.rename, source, f"{folder}/c"))


def _lets_one_win(fs: FileSystem, folder: str) -> None:
    for turn in range(_TURNS):
        below = f"{folder}/{turn}"
        fs.make_folder(below)
        sources = [f"{below}/{number}" for number in range(_AT_ONCE)]
        _at_once(partial(_write_own_name, fs), sources)
        target = f"{below}/renamed"
        results = _at_once(partial(_rename_result, fs, target), sources)
        _expect(fs, target, "one winner of concurrent renames to a name", _ONE_WINS, dict(Counter(results)))
        _expect(fs, target, "give the winner the name", sources[results.index(_DONE)].encode(), _read(fs, target))
        names = sorted(["renamed", *(str(n) for n in range(_AT_ONCE) if results[n] != _DONE)])
        _expect(fs, below, "leave the losers' files", names, _names(fs, below))
        created = f"{below}/made"
        results = _at_once(partial(_create_result, fs, created), sources)
        _expect(fs, created, "one winner of concurrent creates of a name", _ONE_WINS, dict(Counter(results)))
        _expect(fs, created, "store the winner's bytes", sources[results.index(_DONE)].encode(), _read(fs, created))


def _keeps_names(fs: FileSystem, folder: str) -> None:
    for name in (*_KEPT_NAMES, *_ODD_NAMES):
        path = f"{folder}/{name}"
        result = _result(_write, fs, path, b"x")
        expected = [name] if name in _KEPT_NAMES or result == _DONE else []
        _expect(fs, path, "store names unchanged", expected, _names(fs, folder))
        if expected:
            fs.delete(path)
    for name in ("A", "a"):
        _result(_write, fs, f"{folder}/{name}", name.encode())
    files = {name: _read(fs, f"{folder}/{name}") for name in _names(fs, folder)}
    _expect(fs, folder, "distinguish names by case", {"A": b"A", "a": b"a"}, files)


def _shows_others(fs: FileSystem, folder: str) -> None:
    other: FileSystem = pickle.loads(_pickled(fs, fs))
    path, moved = f"{folder}/a", f"{folder}/b"
    _look(other, folder, path)  # gives it the chance to cache that the name is free
    _write(fs, path, b"x")
    _expect(fs, path, "show a new file to other clients at once", (["a"], 1), _look(other, folder, path))
    fs.rename(path, moved)
    _expect(fs, path, "show a rename to other clients at once", (["b"], None), _look(other, folder, path))
    observed, result = _elsewhere(fs, folder, partial(_look_and_write, fs, folder, moved))
    _expect(fs, moved, "show files to other processes at once", (["b"], 1), observed)
    _expect(fs, moved, "exclusive create of a name taken by another process", _TAKEN, result)


def _expect(fs: FileSystem, path: str, capability: str, expected: object, actual: object) -> None:
    if actual != expected:
        raise _refusal(fs, path, capability, shortened(expected), shortened(actual))


def _refusal(fs: FileSystem, path: str, capability: str, expected: str, actual: str) -> ConfigurationError:
    return ConfigurationError(
        f"the {fs.scheme} file system lacks a capability that exactly-once needs: {capability}",
        id="FILE_SYSTEM_UNSUPPORTED",
        path=path,
        expected=expected,
        found=actual,
        todo="choose another file system for the job's folders, or correct its settings",
    )


def _result(act: Callable[..., object], *arguments: Any) -> str:
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return _DONE


def _read(fs: FileSystem, path: str) -> bytes | str:
    try:
        return fs.read(path)
    except OSError as error:
        return type(error).__name__


def _write(fs: FileSystem, path: str, data: bytes) -> None:
    writer = fs.create(path)
    writer.write(data)
    writer.close_file(sync=True)


def _write_own_name(fs: FileSystem, path: str) -> None:
    _write(fs, path, path.encode())


def _rename_result(fs: FileSystem, target: str, source: str) -> str:
    return _result(fs.rename, source, target)


def _create_result(fs: FileSystem, path: str, text: str) -> str:
    return _result(_write, fs, path, text.encode())


def _names(fs: FileSystem, folder: str) -> list[str]:
    return sorted(entry.name for entry in fs.list_folder(folder))


def _look(fs: FileSystem, folder: str, path: str) -> tuple[list[str], int | None]:
    status = fs.status(path)
    return _names(fs, folder), None if status is None else status.size_bytes


def _look_and_write(fs: FileSystem, folder: str, path: str) -> tuple[object, str]:
    return _look(fs, folder, path), _result(_write, fs, path, b"another's")


def _at_once(act: Callable[[str], Result], items: Sequence[str]) -> list[Result]:
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(act, items))


def _elsewhere(fs: FileSystem, folder: str, call: Callable[[], Result]) -> Result:
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE],
        input=_pickled(fs, call),
        capture_output=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise _refusal(fs, folder, "access from another process", "a result", errors[-1] if errors else "no output")
    result: Result = pickle.loads(done.stdout)
    return result


def _pickled(fs: FileSystem, value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise _refusal(fs, "", "access from executors", "a class that can be imported", str(error)) from error
