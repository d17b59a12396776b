"""HDFS over HTTP, with the package `hdfs`, for clients that can only reach the NameNode's web port.

Differences from the native RPC (Hadoop 3.4):

- Data is synced only if the DataNodes' `dfs.datanode.synconclose` is set. A job whose commits must survive a power loss
  is rejected.
- Creating a folder also creates its missing parents, so their existence is checked beforehand.
- File ids are available, and renames keep them.
"""

from __future__ import annotations

import errno
import getpass
import os
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from hdfs import InsecureClient
from hdfs.client import Client
from hdfs.util import HdfsError
from requests.adapters import HTTPAdapter

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.core.support.install_command import pip_install
from distcommit.fs.hadoop.hdfs_file_system import hdfs_error

_TIMEOUT_S = 120
_IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_CONNECTIONS = 32
_MARKER = "#LATEST"  # the package replaces it by the newest name in the folder


class WebHdfs:
    """Requests to web ports of NameNodes. Picklable; connects at the first request.

    Uses Kerberos if core-site.xml in HADOOP_CONF_DIR enables it. Otherwise the user is HADOOP_USER_NAME or the
    process's user.

    Args:
        authority: hosts and ports, separated by semicolons.
    """

    scheme = "webhdfs"
    has_file_ids = True

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._connected: Client | None = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[WebHdfs], tuple[str]]:
        return WebHdfs, (self._authority,)

    def open_new(self, path: str) -> WebHdfsWriter:
        """Return a writer that creates the file when it is closed. Raises FileExistsError if the name is taken already,
        and FileNotFoundError if the folder is missing."""
        if self._has(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._check_above(path)
        return WebHdfsWriter(self, path)

    def write_new(self, path: str, data: Any) -> None:
        """Create a file with an open file's content. Raises FileExistsError if the name is taken."""
        with _errors_of(path):
            location = self._client._create(_checked(path), overwrite=False, createparent=False).headers["location"]
            answer = self._client._request("PUT", location, data=data)
            if answer.status_code != requests.codes.created:
                remote = answer.json()["RemoteException"]
                raise HdfsError(remote["message"], exception=remote["exception"])

    def read_chunks(self, path: str) -> Iterator[bytes]:
        with _errors_of(path), self._client._open(_checked(path)) as answer:
            yield from answer.iter_content(_PIECE_BYTES)

    def status(self, path: str) -> FileStatus:
        with _errors_of(path):
            status = self._client._get_file_status(_checked(path)).json()["FileStatus"]
        mtime_ns = status["modificationTime"] * 1_000_000
        return FileStatus(status["length"], mtime_ns, status["fileId"], status["type"] == "DIRECTORY")

    def list_folder(self, path: str) -> list[FolderEntry]:
        with _errors_of(path):
            statuses = self._client._list_status(_checked(path)).json()["FileStatuses"]["FileStatus"]
        if [status["pathSuffix"] for status in statuses] == [""]:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return [
            FolderEntry(status["pathSuffix"], status["type"] == "DIRECTORY", status["fileId"]) for status in statuses
        ]

    def make_folder(self, path: str) -> None:
        self._check_above(path)
        self.make_folders(path)

    def make_folders(self, path: str) -> None:
        with _errors_of(path):
            self._client._mkdirs(_checked(path))

    def set_mode(self, path: str, mode: int) -> None:
        with _errors_of(path):
            self._client.set_permission(_checked(path), f"{mode:o}")

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        with _errors_of(path):
            self._client.set_owner(_checked(path), owner, group)

    def rename(self, source: str, target: str) -> None:
        with _errors_of(target):  # any option selects `rename2`
            self._client._rename(_checked(source), destination=_checked(target), renameoptions="NONE")

    def delete(self, path: str) -> bool:
        with _errors_of(path):
            return bool(self._client._delete(_checked(path), recursive=False).json()["boolean"])

    def _has(self, path: str) -> bool:
        try:
            self.status(path)
        except FileNotFoundError:
            return False
        return True

    def _check_above(self, path: str) -> None:
        self.status(path.rpartition("/")[0] or "/")

    @property
    def _client(self) -> Client:
        with self._connecting:
            if self._connected is None:
                self._connected = _connect(";".join(f"http://{host}" for host in self._authority.split(";")))
            return self._connected


class WebHdfsWriter:
    """Writer that buffers a file, on disk above 8 MiB, until `close`."""

    def __init__(self, calls: WebHdfs, path: str) -> None:
        self._calls, self._path = calls, path
        self._buffer = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by `close`

    def write(self, data: memoryview) -> None:
        self._buffer.write(data)

    def close(self) -> None:
        with self._buffer as buffer:
            buffer.seek(0)
            self._calls.write_new(self._path, buffer)


def _connect(url: str) -> Client:
    session = requests.Session()
    session.mount("http://", HTTPAdapter(pool_maxsize=_CONNECTIONS))
    if not _is_kerberized():
        user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
        return InsecureClient(url, user=user, timeout=_TIMEOUT_S, session=session)
    try:
        from hdfs.ext.kerberos import KerberosClient  # noqa: PLC0415 - an extra of the package
    except ImportError as error:
        raise ConfigurationError(
            "WebHDFS with Kerberos needs another package",
            id="PACKAGE_MISSING",
            found=str(error),
            todo=f"run `{pip_install('hdfs[kerberos]')}` on the driver and on all executors",
        ) from error
    return KerberosClient(url, timeout=_TIMEOUT_S, session=session)


def _is_kerberized() -> bool:
    core_site = Path(os.environ.get("HADOOP_CONF_DIR", "")) / "core-site.xml"
    if not core_site.is_file():
        return False
    settings = {entry.findtext("name"): entry.findtext("value") for entry in ET.parse(core_site).iter("property")}
    return settings.get("hadoop.security.authentication") == "kerberos"


def _checked(path: str) -> str:
    if _MARKER in path:
        raise OSError(
            errno.EINVAL, f"Invalid path: it must not contain {_MARKER}, which the package hdfs replaces", path
        )
    return path


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except HdfsError as error:
        raise hdfs_error(error.exception or "HdfsError", str(error), path) from None
    except requests.RequestException as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from None
