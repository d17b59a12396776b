"""Read-only folders of input files, on fsspec, in Azure and in Google Cloud Storage.

Options come from fsspec's configuration (`FSSPEC_<SCHEME>_<OPTION>`, ~/.config/fsspec), for Azure and Google from the
environment.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, BinaryIO

from msgspec import Struct

from distcommit.core.errors import ConfigurationError, SourceError
from distcommit.fs.object_stores.object_operations import BLOB_SCHEMES

_TIMES = ("mtime", "LastModified", "last_modified", "modified", "modification_time", "updated", "modify")
_TAGS = ("ETag", "etag", "md5", "checksum", "generation")
_LISTINGS = 10
_FTP_TIME = re.compile(r"\d{14}")
_MILLISECONDS = "modification_time"


class InputFile(Struct, frozen=True):
    """A file's state in a listing.

    Attributes:
        size_bytes: size of the file in bytes.
        mtime_ns: modification time, nanoseconds since 1970, rounded to the microsecond.
        etag: the file system's identifier of the contents; empty if it has none.
    """

    size_bytes: int
    mtime_ns: int
    etag: str = ""


class InputFolder:
    """Folder at a local path or URL. Picklable; connects at the first call in each process.

    Paths are relative to the folder, without outer slashes. The empty path is the folder itself.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def __reduce__(self) -> tuple[type[InputFolder], tuple[str]]:
        return InputFolder, (self.url,)

    def name_of(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"

    def refresh(self) -> None:
        self._connected[0].invalidate_cache()

    def entries(self, path: str) -> list[tuple[str, InputFile | None]]:
        """Return the name and state of each file, and the name and None of each folder. Links and devices are omitted.

        Raises:
            FileNotFoundError: if the folder does not exist.
        """
        fs, root = self._connected
        entries: list[tuple[str, InputFile | None]] = []
        for info in _listed(fs, _below(root, path)):
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if info["type"] == "directory":
                entries.append((name, None))
            elif info["type"] == "file" and name:
                entries.append((name, self._file(info)))
        return entries

    def status(self, path: str) -> InputFile | None:
        """Return a file's state, or None if there is no file."""
        fs, root = self._connected
        self.refresh()
        try:
            info = fs.info(_below(root, path))
        except FileNotFoundError:
            return None
        return self._file(info) if info["type"] == "file" else None

    def open(self, path: str) -> BinaryIO:
        """Open a file. Raises FileNotFoundError if it does not exist."""
        fs, root = self._connected
        opened: BinaryIO = fs.open(_below(root, path), "rb")
        return opened

    def _file(self, info: dict[str, Any]) -> InputFile:
        tag = next((str(info[name]) for name in _TAGS if info.get(name)), "")
        return InputFile(int(info["size"]), self._mtime_ns(info), tag)

    def _mtime_ns(self, info: dict[str, Any]) -> int:
        """Return the modification time, rounded to the microsecond because finer digits may differ between calls. If
        the file system reports none, raise SourceError."""
        name = next((name for name in _TIMES if info.get(name) is not None), "")
        try:
            modified = info[name] if name else self._connected[0].modified(info["name"])
        except NotImplementedError:
            modified = None
        match modified:
            case datetime():
                aware = modified if modified.tzinfo is not None else modified.replace(tzinfo=UTC)
                return round(aware.timestamp() * 1_000_000) * 1000
            case str() if _FTP_TIME.match(modified):  # from FTP's MLSD, in UTC
                return round(_of_digits(modified).timestamp()) * 1_000_000_000
            case int() | float():
                return round(modified * (1000 if name == _MILLISECONDS else 1_000_000)) * 1000
        raise SourceError(
            "the file system does not report when a file was modified",
            id="SOURCE_FILE_UNREADABLE",
            path=info["name"],
            expected="a time of modification",
            found=", ".join(info),
            todo="read these files through another protocol",
        )

    @cached_property
    def _connected(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - other sources do not need it

            scheme, _, place = self.url.partition("://")
            if scheme in BLOB_SCHEMES:
                from distcommit.fs.object_stores.blob_input_files import InputBlobs  # noqa: PLC0415 - an extra

                authority, _, folder = place.partition("/")
                return InputBlobs(f"{scheme}://{authority}"), folder.strip("/")
            fs, root = url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ConfigurationError(
                "fsspec has no file system for this URL",
                id="FILE_SYSTEM_UNSUPPORTED",
                path=self.url,
                expected="a local path, or a URL that fsspec knows",
                found=str(error),
                todo="correct it, or install fsspec's package for this URL on the driver and the executors",
            ) from error
        return fs, str(root).rstrip("/")


def _of_digits(text: str) -> datetime:
    return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _listed(fs: Any, folder: str) -> list[dict[str, Any]]:
    """List a folder. Repeat the call if a file is deleted meanwhile."""
    for _ in range(_LISTINGS):
        try:
            infos: list[dict[str, Any]] = fs.ls(folder, detail=True)
            return infos
        except FileNotFoundError:
            if not fs.isdir(folder):
                raise
    raise OSError(f"{folder} could not be listed: its files changed during each of {_LISTINGS} listings")


def _below(root: str, path: str) -> str:
    return f"{root}/{path}" if path else root or "/"
