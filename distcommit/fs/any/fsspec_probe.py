"""What a file system is asked before a job's folders are made on it, where nobody has tried its kind.

`FileSystemContract` asks the same and more of a file system in tests; this asks the one that is there. What happens
between calls at the same instant is tried by many at once, several times: a race that is seldom lost is not found.
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
from distcommit.core.ports import FileSystem

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
    """Tries a file system with folders, all of it below a folder that is made for it, and that the caller removes.

    Raises:
        ConfigurationError: naming what was asked, what is expected and what came out.
        OSError: if it can't be written at all.
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
    _expect(fs, path, "exclusive create of a name that is taken", _TAKEN, _told(_write, fs, path, b"second"))
    _expect(fs, path, "leave the file alone that has the name", _LARGE, _read(fs, path))
    path = f"{folder}/b"
    writer = fs.create(path)
    writer.write(b"first")
    second = _told(_write, fs, path, b"second")
    first = _told(partial(writer.close_file, sync=True))
    expected = (_DONE, _TAKEN, b"first") if first == _DONE else (_TAKEN, _DONE, b"second")
    found = (first, second, _read(fs, path))
    _expect(fs, path, "exclusive create of a name that is being written", expected, found)


def _has_folders(fs: FileSystem, folder: str) -> None:
    below, missing = f"{folder}/a", f"{folder}/missing"
    _expect(fs, below, "make a folder once", (True, False), (fs.make_folder(below), fs.make_folder(below)))
    file = f"{below}/file"
    _write(fs, file, b"x")
    refusals = {
        "a file in a folder that is missing": _told(_write, fs, f"{missing}/file", b"x"),
        "a rename into a folder that is missing": _told(fs.rename, file, f"{missing}/file"),
        "a folder in a folder that is missing": _told(fs.make_folder, f"{missing}/below"),
    }
    for asked, told in refusals.items():
        _expect(fs, missing, f"refuse {asked}", _MISSING, told)
    _expect(fs, below, "leave a folder that is not empty", (False, b"x"), (fs.delete_folder(below), _read(fs, file)))
    _expect(fs, file, "delete a file once", (True, False), (fs.delete(file), fs.delete(file)))
    _expect(fs, below, "show at once that a file is deleted", ([], None), _look(fs, below, file))
    _expect(fs, below, "delete a folder that is empty", (True, None), (fs.delete_folder(below), fs.status(below)))
    deep = f"{folder}/{_DEEP}"
    kept = _told(fs.make_folders, deep), _told(_write, fs, f"{deep}/a", b"x"), _names(fs, deep)
    _expect(fs, deep, "keep a file far below", (_DONE, _DONE, ["a"]), kept)


def _renames(fs: FileSystem, folder: str) -> None:
    source, target, empty = f"{folder}/a", f"{folder}/b", f"{folder}/empty"
    _write(fs, source, b"mine")
    _write(fs, target, b"theirs")
    _expect(fs, target, "rename without replacing a file", _TAKEN, _told(fs.rename, source, target))
    _expect(
        fs, target, "leave both files of such a rename", (b"mine", b"theirs"), (_read(fs, source), _read(fs, target))
    )
    fs.make_folder(empty)
    _expect(fs, empty, "rename without replacing a folder", _TAKEN, _told(fs.rename, source, empty))
    _expect(fs, empty, "rename without going into a folder", (b"mine", []), (_read(fs, source), _names(fs, empty)))
    fs.delete(target)
    fs.rename(source, target)
    _expect(fs, target, "rename a file", (b"mine", None), (_read(fs, target), fs.status(source)))
    _expect(fs, source, "refuse to rename what is gone", _MISSING, _told(fs.rename, source, f"{folder}/c"))


def _lets_one_win(fs: FileSystem, folder: str) -> None:
    """Of many that want one name at once one gets it, and only that one is told so."""
    for turn in range(_TURNS):
        below = f"{folder}/{turn}"
        fs.make_folder(below)
        sources = [f"{below}/{number}" for number in range(_AT_ONCE)]
        _at_once(partial(_write_own_name, fs), sources)
        target = f"{below}/renamed"
        told = _at_once(partial(_told_of_rename, fs, target), sources)
        _expect(fs, target, "let one win of many that rename to a name", _ONE_WINS, dict(Counter(told)))
        _expect(fs, target, "give the name to the winner", sources[told.index(_DONE)].encode(), _read(fs, target))
        left = sorted(["renamed", *(str(n) for n in range(_AT_ONCE) if told[n] != _DONE)])
        _expect(fs, below, "leave the files that were not renamed", left, _names(fs, below))
        made = f"{below}/made"
        told = _at_once(partial(_told_of_making, fs, made), sources)
        _expect(fs, made, "let one win of many that create a name", _ONE_WINS, dict(Counter(told)))
        _expect(fs, made, "keep the bytes of the winner", sources[told.index(_DONE)].encode(), _read(fs, made))


def _keeps_names(fs: FileSystem, folder: str) -> None:
    """A name is kept as it is or refused; nothing is ever kept under another one."""
    for name in (*_KEPT_NAMES, *_ODD_NAMES):
        path = f"{folder}/{name}"
        told = _told(_write, fs, path, b"x")
        kept = [name] if name in _KEPT_NAMES or told == _DONE else []
        _expect(fs, path, "keep names as they are", kept, _names(fs, folder))
        if kept:
            fs.delete(path)
    for name in ("A", "a"):
        _told(_write, fs, f"{folder}/{name}", name.encode())
    found = {name: _read(fs, f"{folder}/{name}") for name in _names(fs, folder)}
    _expect(fs, folder, "keep names apart that differ in case only", {"A": b"A", "a": b"a"}, found)


def _shows_others(fs: FileSystem, folder: str) -> None:
    """What was done is seen at once: in this process, and in another, which has nothing but what an executor gets."""
    other: FileSystem = pickle.loads(_sent(fs, fs))
    path, moved = f"{folder}/a", f"{folder}/b"
    _look(other, folder, path)  # so that it could remember that nothing is there
    _write(fs, path, b"x")
    _expect(fs, path, "show others at once what was written", (["a"], 1), _look(other, folder, path))
    fs.rename(path, moved)
    _expect(fs, path, "show others at once what was renamed", (["b"], None), _look(other, folder, path))
    seen, told = _elsewhere(fs, folder, partial(_look_and_write, fs, folder, moved))
    _expect(fs, moved, "show other processes at once what is there", (["b"], 1), seen)
    _expect(fs, moved, "exclusive create of a name that another process has taken", _TAKEN, told)


def _expect(fs: FileSystem, path: str, asked: str, expected: object, found: object) -> None:
    if found != expected:
        raise _refusal(fs, path, asked, shortened(expected), shortened(found))


def _refusal(fs: FileSystem, path: str, asked: str, expected: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"this {fs.scheme} file system can't do what exactly-once needs: {asked}",
        path=path,
        expected=expected,
        found=found,
        todo="choose another file system for the job's folders, or its settings",
    )


def _told(act: Callable[..., object], *arguments: Any) -> str:
    """What a caller is told: that it is done, or the name of the error."""
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return _DONE


def _read(fs: FileSystem, path: str) -> bytes | str:
    """The bytes, or the name of the error."""
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


def _told_of_rename(fs: FileSystem, target: str, source: str) -> str:
    return _told(fs.rename, source, target)


def _told_of_making(fs: FileSystem, path: str, text: str) -> str:
    return _told(_write, fs, path, text.encode())


def _names(fs: FileSystem, folder: str) -> list[str]:
    return sorted(entry.name for entry in fs.list_folder(folder))


def _look(fs: FileSystem, folder: str, path: str) -> tuple[list[str], int | None]:
    """The names in a folder, and the size of a file; None if there is none."""
    status = fs.status(path)
    return _names(fs, folder), None if status is None else status.size_bytes


def _look_and_write(fs: FileSystem, folder: str, path: str) -> tuple[object, str]:
    return _look(fs, folder, path), _told(_write, fs, path, b"another's")


def _at_once(act: Callable[[str], Result], items: Sequence[str]) -> list[Result]:
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(act, items))


def _elsewhere(fs: FileSystem, folder: str, call: Callable[[], Result]) -> Result:
    """What a call returns in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE],
        input=_sent(fs, call),
        capture_output=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise _refusal(fs, folder, "be used by another process", "an answer", said[-1] if said else "no word")
    answer: Result = pickle.loads(done.stdout)
    return answer


def _sent(fs: FileSystem, what: object) -> bytes:
    try:
        return pickle.dumps(what)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise _refusal(fs, "", "be sent to executors", "a class that can be imported", str(error)) from error
