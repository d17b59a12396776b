"""HDFS over its native RPC, with `hdfs-native`.

core-site.xml and hdfs-site.xml in HADOOP_CONF_DIR define name services and Kerberos. The protocol has no file ids.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import hdfs_native

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileStatus, FolderEntry
from distcommit.fs.hadoop.hdfs_file_system import hdfs_error

_JAVA_ERROR = re.compile(r'RPCError\("([\w.$]+)", "(.*?)(?:\\n|"\)$)', re.DOTALL)
_ACTIVE_ONLY_PROVIDER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"


class HdfsRpc:
    """Requests to a NameNode or name service. Picklable; connects at the first request.

    Reads go to the active NameNode, because observers may lag. Connecting is retried `dfs.client.failover.max.attempts`
    times: by default 15, for three minutes.

    Args:
        authority: host and port, or a name service of the Hadoop configuration.

    Raises:
        ConfigurationError: at the first request, if the name service is unknown.
    """

    scheme = "hdfs"
    has_file_ids = False

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._connected: hdfs_native.Client | None = None
        self._connecting = threading.Lock()

    def __reduce__(self) -> tuple[type[HdfsRpc], tuple[str]]:
        return HdfsRpc, (self._authority,)

    def open_new(self, path: str) -> HdfsRpcWriter:
        options = hdfs_native.WriteOptions(overwrite=False, create_parent=False)
        with _errors_of(path):
            return HdfsRpcWriter(self._client.create(path, options), path)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        with _errors_of(path):
            yield from self._client.read(path)

    def status(self, path: str) -> FileStatus:
        with _errors_of(path):
            info = self._client.get_file_info(path)
        return FileStatus(info.length, info.modification_time * 1_000_000, 0, info.isdir)

    def list_folder(self, path: str) -> list[FolderEntry]:
        with _errors_of(path):
            entries = [(info.path, info.isdir) for info in self._client.list_status(path)]
        if [(path, False)] == entries:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return [FolderEntry(posixpath.basename(name), is_folder) for name, is_folder in entries]

    def make_folder(self, path: str) -> None:
        with _errors_of(path):
            self._client.mkdirs(path, create_parent=False)

    def make_folders(self, path: str) -> None:
        with _errors_of(path):
            self._client.mkdirs(path, create_parent=True)

    def set_mode(self, path: str, mode: int) -> None:
        with _errors_of(path):
            self._client.set_permission(path, mode)

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        with _errors_of(path):
            self._client.set_owner(path, owner, group)

    def rename(self, source: str, target: str) -> None:
        with _errors_of(target):
            self._client.rename(source, target, overwrite=False)

    def delete(self, path: str) -> bool:
        with _errors_of(path):
            return self._client.delete(path, recursive=False)

    @property
    def _client(self) -> hdfs_native.Client:
        with self._connecting:
            if self._connected is None:
                self._connected = self._connect()
            return self._connected

    def _connect(self) -> hdfs_native.Client:
        provider = f"dfs.client.failover.proxy.provider.{self._authority}"
        try:
            return hdfs_native.Client(f"hdfs://{self._authority}", {provider: _ACTIVE_ONLY_PROVIDER})
        except (OSError, RuntimeError) as error:
            raise ConfigurationError(
                "the NameNode or name service is unusable",
                id="STORAGE_ADDRESS_INVALID",
                authority=self._authority,
                expected="host:port, or a name service of hdfs-site.xml in the folder HADOOP_CONF_DIR",
                found=f"HADOOP_CONF_DIR={os.environ.get('HADOOP_CONF_DIR', '')}, and {error}",
                todo="correct paths, or set HADOOP_CONF_DIR on the driver and the executors",
            ) from error


class HdfsRpcWriter:
    """Writer that renews its lease, and syncs each block at the block's end."""

    def __init__(self, writer: hdfs_native.FileWriter, path: str) -> None:
        self._writer, self._path = writer, path

    def write(self, data: memoryview) -> None:
        with _errors_of(self._path):
            self._writer.write(data)

    def close(self) -> None:
        with _errors_of(self._path):
            self._writer.close()


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise hdfs_error("FileNotFoundException", str(error), path) from None
    except FileExistsError as error:
        raise hdfs_error("FileAlreadyExistsException", str(error), path) from None
    except (OSError, RuntimeError, NotImplementedError) as error:
        java = _JAVA_ERROR.search(str(error))
        kind, message = (java[1], java[2]) if java else (type(error).__name__, str(error))
        raise hdfs_error(kind, message, path) from None
