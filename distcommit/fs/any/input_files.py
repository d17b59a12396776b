"""Folders of files that are only read: any file system of fsspec. Nothing is asked of it but listings with sizes and
times, and reading; options are those of fsspec's own configuration (`FSSPEC_<SCHEME>_<OPTION>`, ~/.config/fsspec)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, BinaryIO

from msgspec import Struct

from distcommit.core.errors import ConfigurationError, SourceError

_TIMES = ("mtime", "LastModified", "last_modified", "modified", "modification_time", "updated", "modify")
"""Under which names implementations tell when a file was changed."""
_TAGS = ("ETag", "etag", "md5", "checksum", "generation")
_LISTINGS = 10
_OF_FTP = re.compile(r"\d{14}")
_MILLISECONDS = "modification_time"


class InputFile(Struct, frozen=True):
    """A file as a listing shows it. `etag`: what the file system itself tells its contents by; empty if nothing."""

    size_bytes: int
    mtime_ns: int
    etag: str = ""


class InputFolder:
    """A folder, as a path of this machine or a URL. Connects at the first call, in each process anew; picklable.

    Paths are relative to it, without a slash at either end; it is itself the empty path.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __reduce__(self) -> tuple[type[InputFolder], tuple[str]]:
        return InputFolder, (self.url,)

    def name_of(self, path: str) -> str:
        """The path or URL of a file."""
        return f"{self.url.rstrip('/')}/{path}"

    def refresh(self) -> None:
        """Forgets what was listed before: some implementations keep it."""
        self._connected[0].invalidate_cache()

    def entries(self, path: str) -> list[tuple[str, InputFile | None]]:
        """What is in a folder, by name; None for a folder. What is neither folder nor file is left out.

        Raises:
            FileNotFoundError: if there is no such folder.
        """
        fs, root = self._connected
        found: list[tuple[str, InputFile | None]] = []
        for info in _listed(fs, _below(root, path)):
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if info["type"] == "directory":
                found.append((name, None))
            elif info["type"] == "file" and name:
                found.append((name, self._file(info)))
        return found

    def status(self, path: str) -> InputFile | None:
        """The file as it is now; None if it is gone."""
        fs, root = self._connected
        self.refresh()
        try:
            info = fs.info(_below(root, path))
        except FileNotFoundError:
            return None
        return self._file(info) if info["type"] == "file" else None

    def open(self, path: str) -> BinaryIO:
        """The file, for reading. Raises FileNotFoundError if it is gone."""
        fs, root = self._connected
        opened: BinaryIO = fs.open(_below(root, path), "rb")
        return opened

    def _file(self, info: dict[str, Any]) -> InputFile:
        tag = next((str(info[name]) for name in _TAGS if info.get(name)), "")
        return InputFile(int(info["size"]), self._mtime_ns(info), tag)

    def _mtime_ns(self, info: dict[str, Any]) -> int:
        """Nanoseconds since 1970, as exact as each call tells it alike: to the microsecond."""
        name = next((name for name in _TIMES if info.get(name) is not None), "")
        try:
            found = info[name] if name else self._connected[0].modified(info["name"])
        except NotImplementedError:
            found = None
        match found:
            case datetime():
                aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
                return round(aware.timestamp() * 1_000_000) * 1000
            case str() if _OF_FTP.match(found):  # what FTP's MLSD lists, in UTC
                return round(_of_digits(found).timestamp()) * 1_000_000_000
            case int() | float():
                return round(found * (1000 if name == _MILLISECONDS else 1_000_000)) * 1000
        raise SourceError(
            "the file system does not tell when its files were changed",
            path=info["name"],
            expected="a time of modification",
            found=", ".join(info),
            todo="read these files by another protocol",
        )

    @cached_property
    def _connected(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

            fs, root = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                "there is no file system for this URL",
                path=self.url,
                expected="a path of this machine, or a URL that fsspec knows",
                found=str(error),
                todo="correct it, or install distcommit[fsspec] and the package for it, also where the executors run",
            ) from error
        return fs, str(root).rstrip("/")


def _of_digits(text: str) -> datetime:
    return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _listed(fs: Any, folder: str) -> list[dict[str, Any]]:
    """What `ls` tells of a folder, also if a file goes while it looks at it."""
    for _ in range(_LISTINGS):
        try:
            found: list[dict[str, Any]] = fs.ls(folder, detail=True)
            return found
        except FileNotFoundError:
            if not fs.isdir(folder):
                raise
    raise OSError(f"files come and go faster than {folder} can be listed")


def _below(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root or "/"
