"""The locations of a job's folders: paths of this machine, or URLs. The store may be on another file system."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.interfaces.source import Source
from distcommit.core.interfaces.target_identity import Target
from distcommit.core.support.install_command import install_command, pip_install
from distcommit.core.support.request_counts import counting_calls
from distcommit.fs.hadoop.hdfs_file_system import HdfsCalls, HdfsFileSystem
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.local_disk.posix_calls import RealPosixCalls
from distcommit.fs.object_stores.object_operations import BLOB_SCHEMES
from distcommit.fs.separate_store import TwoFileSystems

_REMOTE = {
    "hdfs": "hdfs://NAMENODE:PORT/folder, or a name service of the Hadoop configuration as host",
    "webhdfs": "webhdfs://NAMENODE:PORT/folder, or a name service of the Hadoop configuration as host",
    "s3": "s3://BUCKET/prefix, for S3 and what speaks its protocol",
    "az": "az://CONTAINER/prefix, for the account of AZURE_STORAGE_ACCOUNT_NAME",
    "abfss": "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/prefix",
    "gs": "gs://BUCKET/prefix",
}
"""The form of a folder's URL by scheme. Other schemes are fsspec's."""

_FSSPEC_PLACE = "SCHEME://HOST:PORT/folder, as fsspec takes it"
_COPIES = (
    "its rename copies and deletes: a paused run could put a file back;"
    " of object stores only S3, Azure and Google are supported"
)
_REPLACES = "its rename replaces what is there"
_WHY_NOT = {
    "s3a": "Hadoop's name for it: use s3://",
    "s3n": "Hadoop's name for it: use s3://",
    "abfs": "use abfss://",
    "gcs": "use gs://",
    "adl": _COPIES,
    **dict.fromkeys(("sftp", "ssh"), _REPLACES),
    **dict.fromkeys(("file", "local"), "a URL where a plain path is meant"),
    "memory": "its files are those of one process",
}
"""Why a scheme is not supported, by scheme."""

_DURABLE = {"hdfs", "s3", *BLOB_SCHEMES}
_WEBHDFS_IS_DURABLE_IF = (
    "use hdfs://; or set commit.durability to none, and dfs.datanode.synconclose on the "
    "DataNodes, which then sync by themselves"
)
_FSSPEC_IS_DURABLE_IF = (
    "set commit.durability to none: then a crash of the job loses nothing, and a crash of the "
    "server only what is not on its disk"
)

_WITH_ACCESS = {"", "hdfs", "webhdfs"}
"""Schemes of file systems on which files have an owner and a mode; empty: a path of this machine."""


def normal_location(text: str, folder: Path) -> str:
    """Return a location in normal form: an absolute local path without symbolic links, or a URL without dots and double
    slashes.

    Args:
        folder: folder that relative paths start at.

    Raises:
        ConfigurationError: if the URL is incomplete, contains a password, or has a scheme that is known to be
            unsuitable.
    """
    scheme, separator, remainder = text.partition("://")
    if not separator:
        return os.path.realpath(os.path.join(folder, text))
    authority, _, path = remainder.partition("/")
    user, _, host = authority.rpartition("@")
    if ":" in user:
        raise ConfigurationError(
            "a folder's URL must not contain a password",
            id="JOB_FOLDERS_INVALID",
            path=f"{scheme}://{user.partition(':')[0]}:...@{host}/{path}",
            expected="a URL without",
            todo=f"leave it out, and set FSSPEC_{scheme.upper()}_PASSWORD where the job runs",
        )
    if scheme in _WHY_NOT:
        raise ConfigurationError(
            "there is no file system for this URL",
            id="FILE_SYSTEM_UNSUPPORTED",
            path=text,
            expected=f"a path of this machine, a URL that begins with {' or '.join(f'{s}://' for s in _REMOTE)},"
            " or one of a file system of fsspec that renames in one step",
            found=_WHY_NOT[scheme],
            todo=(
                "the file system of a job's folders must rename without replacing, or complete a file under "
                "an unused name: mount it, if it does, or choose another"
            ),
        )
    if not authority or not path.strip("/"):
        raise ConfigurationError(
            "the URL of a folder has no host or no path",
            id="JOB_FOLDERS_INVALID",
            path=text,
            expected=_REMOTE.get(scheme, _FSSPEC_PLACE),
            todo="complete the URL in section paths",
        )
    return f"{scheme}://{authority}{posixpath.normpath('/' + path.strip('/'))}"


def check_locations(locations: Mapping[str, str]) -> None:
    """Check that staging and output are on one file system, and that no folder of the job contains another.

    Raises:
        ConfigurationError: naming two folders that break the rule.
    """
    staging, output = locations["staging"], locations["output"]
    if _file_system_of(staging) != _file_system_of(output):
        raise ConfigurationError(
            "staging and output are on different file systems",
            id="JOB_FOLDERS_INVALID",
            expected="paths.staging and paths.output on one, because a commit renames files from one to the other",
            found=f"paths.staging {staging} and paths.output {output}",
        )
    for name, location in locations.items():
        for other, other_place in locations.items():
            if name == other or not f"{path_of(location)}/".startswith(f"{path_of(other_place)}/"):
                continue
            if _file_system_of(location) != _file_system_of(other_place):
                raise ConfigurationError(
                    "folders of the job on two file systems have the same path, or one inside the other",
                    id="JOB_FOLDERS_INVALID",
                    expected="a path of paths.store that is neither equal to, inside nor above the path of another"
                    " folder, without regard to servers and buckets",
                    found=f"paths.{name} {location} and paths.{other} {other_place}",
                    todo="change the last folder of paths.store, for example to store-of-NAME",
                )
            raise ConfigurationError(
                "one of the job's folders is inside another",
                id="JOB_FOLDERS_INVALID",
                expected="paths.store, paths.staging and paths.output apart from each other",
                found=f"paths.{name} {location} in paths.{other} {other_place}",
            )


def open_folders(store: str, data: Sequence[str], *, durable: bool) -> FileSystem:
    """Return the file system of a job's folders: `TwoFileSystems` if the store is on another one than the others.
    Raises ConfigurationError if a file system can't be opened, see `open_file_system`.

    Args:
        store: location of the store, in normal form.
        data: locations of staging and output, on one file system.
        durable: whether published files must survive a crash of the machines that store them.
    """
    store_path, paths = path_of(store), [path_of(location) for location in data]
    if _file_system_of(store) == _file_system_of(data[0]):
        return open_file_system(store, durable=durable, roots=(store_path, *paths))
    of_store = open_file_system(store, durable=durable, roots=(store_path,))
    return TwoFileSystems(of_store, open_file_system(data[0], durable=durable, roots=paths), store_path)


def open_file_system(location: str, *, durable: bool, roots: Sequence[str] = ()) -> FileSystem:
    """Return the file system of a location in normal form. Writes to an object store are always durable.

    Args:
        durable: whether published files must survive a crash of the machines that store them.
        roots: the job's folders, as paths. A deletion below a root never reaches outside of the root.

    Raises:
        ConfigurationError: if the file system's package is not installed, the file system cannot write durably although
            `durable` is set, or fsspec's file system lacks a required capability.
    """
    scheme, authority = _file_system_of(location)
    if not scheme:
        return LocalFileSystem(counting_calls(RealPosixCalls(roots)), durable=durable)
    try:
        fs = _remote(scheme, authority)
    except ImportError as error:
        extra = {"az": "azure", "abfss": "azure", "gs": "google"}.get(scheme, scheme)
        command = install_command(extra) if scheme in _REMOTE else pip_install(f"fsspec[{scheme}]")
        raise ConfigurationError(
            "the package for this file system is not installed",
            id="PACKAGE_MISSING",
            path=location,
            found=str(error),
            todo=f"run `{command}` on the driver and on all executors",
        ) from error
    if durable and scheme not in _DURABLE:
        web = scheme == "webhdfs"
        raise ConfigurationError(
            f"{'WebHDFS' if web else 'fsspec'} has no way to ask for durable files",
            id="FILE_SYSTEM_UNSUPPORTED",
            path=location,
            expected="commit.durability: none",
            found="commit.durability: fsync",
            todo=_WEBHDFS_IS_DURABLE_IF if web else _FSSPEC_IS_DURABLE_IF,
        )
    return fs


def keeps_access(location: str) -> bool:
    """Return whether files at a normal location have an owner and a mode."""
    return _file_system_of(location)[0] in _WITH_ACCESS


def _remote(scheme: str, authority: str) -> FileSystem:
    if scheme == "s3":
        return _object_store(authority)
    if scheme in BLOB_SCHEMES:
        return _blob_container(scheme, authority)
    if scheme in _REMOTE:
        return HdfsFileSystem(counting_calls(_hdfs_calls(scheme, authority)))
    from distcommit.fs.fsspec_based.fsspec_file_system import FsspecFileSystem, fsspec_class  # noqa: PLC0415 - an extra

    return FsspecFileSystem(fsspec_class(scheme), scheme, authority)


def _hdfs_calls(scheme: str, authority: str) -> HdfsCalls:
    if scheme == "hdfs":
        from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc  # noqa: PLC0415 - an extra

        return HdfsRpc(authority)
    from distcommit.fs.hadoop.webhdfs import WebHdfs  # noqa: PLC0415 - an extra

    return WebHdfs(authority)


def _object_store(bucket: str) -> FileSystem:
    from distcommit.fs.object_stores.s3_file_system import S3FileSystem  # noqa: PLC0415 - an extra
    from distcommit.fs.object_stores.s3_requests import S3Requests  # noqa: PLC0415 - an extra

    return S3FileSystem(counting_calls(S3Requests(bucket)))


def _blob_container(scheme: str, authority: str) -> FileSystem:
    from distcommit.fs.object_stores.blob_file_system import BlobFileSystem  # noqa: PLC0415 - an extra
    from distcommit.fs.object_stores.blob_requests import BlobRequests  # noqa: PLC0415 - an extra

    return BlobFileSystem(counting_calls(BlobRequests(f"{scheme}://{authority}")), scheme)


def path_of(location: str) -> str:
    """Return the path of a location on its file system: without scheme and authority."""
    scheme, authority = _file_system_of(location)
    return location.removeprefix(f"{scheme}://{authority}") if scheme else location


def _file_system_of(location: str) -> tuple[str, str]:
    scheme, separator, remainder = location.partition("://")
    return (scheme, remainder.partition("/")[0]) if separator else ("", "")


def require_separate(source: Source, locations: Mapping[str, str]) -> None:
    """Check that a source does not read the job's own folders.

    Args:
        source: the job's source. A custom class is imported.
        locations: the store, staging and output folder, by the names of the settings below `paths`.

    Raises:
        ConfigurationError: if the source reads a folder of the job, or a custom source can't be created.
    """
    for name, location in locations.items():
        if source.reads(Target("root", location)):
            raise ConfigurationError(
                "the source reads the job's own folders",
                id="JOB_FOLDERS_INVALID",
                expected=f"a source whose files are not in paths.{name}, and the other way round",
                found=location,
                todo="give the job folders apart from what it reads",
            )
