"""HDFS over HTTP, by the package `hdfs`: for places that only the web port of the NameNode can be reached from.

What differs from the native RPC, read from Hadoop 3.4 and tried on it:

- A DataNode syncs what it wrote for WebHDFS only if its `dfs.datanode.synconclose` is set, and the protocol has no way
  to ask for it. So a job whose commits have to survive a power loss is refused here.
- Folders above a new one are made as well; whether they are there can only be looked at before.
- It gives file ids, which renames keep.
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
from distcommit.core.ports import FileStatus, FolderEntry
from distcommit.fs.hadoop.hdfs import hdfs_error

_TIMEOUT_S = 120
_IN_MEMORY_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_CONNECTIONS = 32
_MARKER = "#LATEST"  # the package would put the newest name in its place


class WebHdfs:
    """The requests, to the web port of one NameNode or of several. Connects at the first one; picklable.

    With Kerberos if core-site.xml in HADOOP_CONF_DIR says so, else as HADOOP_USER_NAME or the user of the process.

    Args:
        authority: host and port; with several NameNodes, all of them separated by semicolons.
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
        """Looks whether the name is free and the folder is there; who makes it first is told when it is closed."""
        if self._has(path):
            raise FileExistsError(errno.EEXIST, "the name is taken", path)
        self._check_above(path)
        return WebHdfsWriter(self, path)

    def write_new(self, path: str, data: Any) -> None:
        """Makes a file of what an open binary file holds; FileExistsError if the name is taken meanwhile."""
        with _errors_of(path):
            location = self._client._create(_checked(path), overwrite=False, createparent=False).headers["location"]
            answer = self._client._request("PUT", location, data=data)
            if answer.status_code != requests.codes.created:
                found = answer.json()["RemoteException"]
                raise HdfsError(found["message"], exception=found["exception"])

    def pieces(self, path: str) -> Iterator[bytes]:
        with _errors_of(path), self._client._open(_checked(path)) as answer:
            yield from answer.iter_content(_PIECE_BYTES)

    def status(self, path: str) -> FileStatus:
        with _errors_of(path):
            found = self._client._get_file_status(_checked(path)).json()["FileStatus"]
        mtime_ns = found["modificationTime"] * 1_000_000
        return FileStatus(found["length"], mtime_ns, found["fileId"], found["type"] == "DIRECTORY")

    def list_folder(self, path: str) -> list[FolderEntry]:
        with _errors_of(path):
            found = self._client._list_status(_checked(path)).json()["FileStatuses"]["FileStatus"]
        if [each["pathSuffix"] for each in found] == [""]:
            raise NotADirectoryError(errno.ENOTDIR, "a file is no folder", path)
        return [FolderEntry(each["pathSuffix"], each["type"] == "DIRECTORY", each["fileId"]) for each in found]

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
        with _errors_of(target):  # with an option, even this one, it is `rename2`
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
                self._connected = _connect(";".join(f"http://{each}" for each in self._authority.split(";")))
            return self._connected


class WebHdfsWriter:
    """Keeps what is written, on the local disk if it is much, and sends it when it is closed."""

    def __init__(self, calls: WebHdfs, path: str) -> None:
        self._calls, self._path = calls, path
        self._kept = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - until `close`

    def write(self, data: memoryview) -> None:
        self._kept.write(data)

    def close(self) -> None:
        with self._kept as kept:
            kept.seek(0)
            self._calls.write_new(self._path, kept)


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
            found=str(error),
            todo="pip install 'hdfs[kerberos]', also where the executors run",
        ) from error
    return KerberosClient(url, timeout=_TIMEOUT_S, session=session)


def _is_kerberized() -> bool:
    core_site = Path(os.environ.get("HADOOP_CONF_DIR", "")) / "core-site.xml"
    if not core_site.is_file():
        return False
    settings = {each.findtext("name"): each.findtext("value") for each in ET.parse(core_site).iter("property")}
    return settings.get("hadoop.security.authentication") == "kerberos"


def _checked(path: str) -> str:
    if _MARKER in path:
        raise OSError(errno.EINVAL, f"Invalid path: the package hdfs gives {_MARKER} a meaning", path)
    return path


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except HdfsError as error:
        raise hdfs_error(error.exception or "HdfsError", str(error), path) from None
    except requests.RequestException as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", path) from None
