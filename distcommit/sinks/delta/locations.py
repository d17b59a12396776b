"""The location of Delta tables: a local folder or an S3 prefix.

On S3, deltalake writes the log, and distcommit's client writes data files, because it can delete unfinished uploads.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from distcommit.core.errors import ConfigurationError, SinkUnavailableError
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.protocol.path_checks import check_relative
from distcommit.protocol.paths.temporary_and_probes import table_probe_name
from distcommit.sinks.table_formats.data_files import PROBE_BYTES, probe_folder
from distcommit.sinks.table_formats.s3_data_files import delete_data_file, requests_to


class Location(Protocol):
    """A location of tables, to which paths are relative."""

    options: dict[str, str]
    parallel_calls: int

    def uri(self, path: str) -> str:
        """Return a path's URI for deltalake."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; empty if it does not exist."""

    def size_of(self, path: str) -> int:
        """Return a file's size in bytes; -1 if it does not exist."""

    def columns_of(self, path: str) -> pa.Schema: ...

    def create(self, path: str) -> pa.NativeFile:
        """Create a file. On S3 it exists once it is closed."""

    def delete(self, path: str) -> None:
        """Delete a file if it exists, and parts of its unfinished upload."""

    def check(self) -> None:
        """Raise SinkUnavailableError unless the location is usable."""

    def probe(self) -> None: ...


def opened(location: str) -> Location:
    """Open a location. A process keeps the last eight open."""
    return _opened(location, os.getpid(), os.environ.get("AWS_ENDPOINT_URL", ""))


@lru_cache(maxsize=8)
def _opened(location: str, process: int, endpoint: str) -> Location:
    return InBucket(location, endpoint) if location.startswith("s3://") else InFolder(location)


class InFolder:
    """A local folder. A missing folder is not created, because its disk may not be mounted."""

    parallel_calls = 1

    def __init__(self, location: str) -> None:
        self._location, self._fs = location, fs.LocalFileSystem()
        self.options: dict[str, str] = {}

    def uri(self, path: str) -> str:
        return f"{self._location.rstrip('/')}/{path}"

    def names(self, path: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return os.listdir(self.uri(path))
        return []

    def size_of(self, path: str) -> int:
        try:
            return os.stat(self.uri(path)).st_size
        except FileNotFoundError:
            return -1

    def columns_of(self, path: str) -> pa.Schema:
        return pq.read_schema(self.uri(path))

    def create(self, path: str) -> pa.NativeFile:
        return self._fs.open_output_stream(self.uri(path))

    def delete(self, path: str) -> None:
        check_relative(path)
        with contextlib.suppress(FileNotFoundError):
            RealPosixCalls((self._location.rstrip("/"),)).unlink(self.uri(path))

    def check(self) -> None:
        try:
            os.listdir(self._location)
            fine = os.access(self._location, os.W_OK)
            actual = "no permission to write"
        except OSError as error:
            fine, actual = False, str(error)
        if not fine:
            raise _unavailable(self._location, actual, "create it, or mount its disk")

    def probe(self) -> None:
        self.check()
        try:
            probe_folder(self._location)
        except OSError as error:
            raise _unavailable(self._location, str(error), "repair the disk (space, quota, permissions)") from error


class InBucket:
    parallel_calls = 32

    def __init__(self, location: str, endpoint: str) -> None:
        parts = urlsplit(location)
        self._location, self._bucket, self._prefix = location, parts.netloc, parts.path.strip("/")
        self._requests = requests_to(parts.netloc, "delta")
        self.options = {"aws_conditional_put": "etag"}
        if endpoint.startswith("http://"):
            self.options["allow_http"] = "true"

    def uri(self, path: str) -> str:
        return f"{self._location}/{path}"

    def names(self, path: str) -> list[str]:
        return [entry.name for entry in self._requests.list_folder(f"{self._key(path)}/" if path else self._folder)]

    def size_of(self, path: str) -> int:
        head = self._requests.head(self._key(path))
        return -1 if head is None else head.size_bytes

    def columns_of(self, path: str) -> pa.Schema:
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - reads ranges of a file

        with fs.PyFileSystem(DeltaStorageHandler(self._location, self.options)).open_input_file(path) as file:
            return pq.read_schema(file)

    def create(self, path: str) -> pa.NativeFile:
        from distcommit.fs.object_stores.s3_stream import S3Stream  # noqa: PLC0415 - an extra

        return pa.PythonFile(S3Stream(self._requests, self._key(path)), mode="w")

    def delete(self, path: str) -> None:
        check_relative(path)
        delete_data_file(self._requests, self._key(path))

    def check(self) -> None:
        with self._raising():
            self._requests.list_folder(self._folder)

    def probe(self) -> None:
        key = self._key(table_probe_name(uuid.uuid4().hex))
        with self._raising():
            self._requests.list_folder(self._folder)
            self._requests.put(key, os.urandom(PROBE_BYTES), {}, if_absent=True)
            self._requests.delete(key)

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        try:
            yield
        except (ConfigurationError, OSError) as error:
            raise _unavailable(
                self._location, str(error), "create the bucket, or permit to list it and to write to it"
            ) from error

    @property
    def _folder(self) -> str:
        return f"{self._prefix}/" if self._prefix else ""

    def _key(self, path: str) -> str:
        return f"{self._folder}{path}"


def _unavailable(location: str, actual: str, todo: str) -> SinkUnavailableError:
    return SinkUnavailableError(
        "the location of the Delta tables does not exist or is unavailable", path=location, found=actual, todo=todo
    )
