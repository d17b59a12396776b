"""Locations of a job's folders, and the errors for unusable ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distcommit.app.job_file.folder_locations import normal_location, open_file_system, open_folders, path_of
from distcommit.app.job_file.load_job_file import load_config
from distcommit.core.errors import ConfigurationError
from distcommit.fs.fsspec_based.fsspec_file_system import FsspecFileSystem
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.separate_store import file_system_at


@pytest.mark.parametrize(
    ("text", "place", "path"),
    [
        ("/a/./b//c", "/a/b/c", "/a/b/c"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a", "/a"),
        ("webhdfs://one:1;two:2/a/b", "webhdfs://one:1;two:2/a/b", "/a/b"),
        ("hdfs://service//a/./b/", "hdfs://service/a/b", "/a/b"),
        ("hdfs://service/ünï%20côde", "hdfs://service/ünï%20côde", "/ünï%20côde"),
        ("s3://bucket/a//b/", "s3://bucket/a/b", "/a/b"),
        ("az://container/a//b/", "az://container/a/b", "/a/b"),
        ("gs://bucket/a//b/", "gs://bucket/a/b", "/a/b"),
        (
            "abfss://data@account.dfs.core.windows.net/a/b/",
            "abfss://data@account.dfs.core.windows.net/a/b",
            "/a/b",
        ),
        ("smb://me@host:445/share//a", "smb://me@host:445/share/a", "/share/a"),
    ],
)
def test_location_is_normalized(text: str, place: str, path: str) -> None:
    assert normal_location(text, Path("/")) == place
    assert path_of(place) == path


def test_relative_path_is_resolved_against_the_job_file(tmp_path: Path) -> None:
    assert normal_location("below", tmp_path) == str(tmp_path / "below")
    assert isinstance(open_file_system(str(tmp_path), durable=True), LocalFileSystem)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3a://bucket/a", "no file system for this URL .*s3a://bucket/a.*hdfs:// .*use s3://"),
        ("memory://a/b", "no file system for this URL .*those of one process.*rename without replacing"),
        ("adl://store/b", "copies and deletes.*of object stores only S3, Azure and Google"),
        ("gcs://bucket/b", "use gs://"),
        ("gs://bucket", "has no host or no path.*gs://BUCKET/prefix"),
        ("abfs://container@account/b", "use abfss://"),
        ("abfss://container@account", "has no host or no path.*abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/prefix"),
        ("az://container", "has no host or no path.*az://CONTAINER/prefix"),
        ("sftp://host/b", "replaces what is there"),
        ("local:///a", "a plain path is meant"),
        ("smb://host", "has no host or no path.*SCHEME://HOST:PORT/folder"),
        ("s3://bucket", "has no host or no path.*s3://BUCKET/prefix"),
        ("hdfs:///a", "has no host or no path.*name service"),
        ("hdfs://host", "has no host or no path"),
        ("hdfs://host/", "has no host or no path"),
    ],
)
def test_unusable_location_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        normal_location(text, Path("/"))


@pytest.mark.parametrize("scheme", ["smb", "hdfs"])
def test_location_with_a_password_is_refused_and_the_password_is_not_shown(scheme: str) -> None:
    message = rf"a folder's URL must not contain a password.*FSSPEC_{scheme.upper()}_PASSWORD"
    with pytest.raises(ConfigurationError, match=message) as e:
        normal_location(f"{scheme}://me:hush@host/share/a", Path("/"))
    assert e.value.ids == {"path": f"{scheme}://me:...@host/share/a"}
    assert "hush" not in str(e.value)


def test_durable_commits_are_refused_on_an_fsspec_file_system() -> None:
    with pytest.raises(ConfigurationError, match=r"fsspec has no way to ask.*durability: none.*a crash of the server"):
        open_file_system("smb://host/share/a", durable=True)
    fs = open_file_system("smb://host/share/a", durable=False)
    assert isinstance(fs, FsspecFileSystem)
    assert fs.scheme == "smb"


@pytest.mark.parametrize("durable", [False, True])
def test_scheme_unknown_to_fsspec_is_refused(durable: bool) -> None:
    with pytest.raises(
        ConfigurationError, match=r"fsspec has no file system for this URL.*Protocol not known: nowhere"
    ):
        open_file_system("nowhere://host/a", durable=durable)


def test_durable_commits_are_refused_on_webhdfs() -> None:
    with pytest.raises(ConfigurationError, match=r"no way to ask.*durability: none.*hdfs://.*synconclose"):
        open_file_system("webhdfs://host:9870/a", durable=True)
    assert open_file_system("webhdfs://host:9870/a", durable=False).scheme == "webhdfs"


@pytest.mark.parametrize(
    ("scheme", "package", "extra"),
    [
        ("hdfs", "hdfs_native", "hdfs"),
        ("webhdfs", "hdfs", "webhdfs"),
        ("s3", "boto3", "s3"),
        ("az", "obstore", "azure"),
        ("gs", "obstore", "google"),
        ("smb", "fsspec", "smb"),
    ],
)
def test_missing_package_of_a_file_system_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str, extra: str
) -> None:
    loaded = (
        "distcommit.fs.hadoop.hdfs_rpc",
        "distcommit.fs.hadoop.webhdfs",
        "distcommit.fs.object_stores.s3",
        "distcommit.fs.object_stores.blob",
        "distcommit.fs.fsspec_based.fsspec_file_system",
    )
    for name in [name for name in sys.modules if name.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install .*\[{extra}\]'"):
        open_file_system(f"{scheme}://host:1/a", durable=False)


@pytest.mark.parametrize(
    ("store", "staging", "output", "why"),
    [
        ("hdfs://a/store", "hdfs://b/staging", "hdfs://a/output", "different file systems.*hdfs://b/staging"),
        ("s3://a/store", "s3://b/staging", "s3://a/output", "different file systems.*s3://b/staging"),
        ("hdfs://a/store", "staging", "hdfs://a/output", "different file systems.*paths.output hdfs://a/output"),
        ("hdfs://a/job", "s3://b/staging", "s3://b/job", "two file systems have the same path.*hdfs://a/job"),
        ("hdfs://a/job", "s3://b/job/staging", "s3://b/output", "two file systems have the same path"),
        ("hdfs://a/out/store", "s3://b/staging", "s3://b/out", "two file systems have the same path"),
        ("hdfs://a/job", "hdfs://a/job/staging", "hdfs://a/output", "is inside another.*paths.staging"),
        ("hdfs://a/job", "hdfs://a/./job", "hdfs://a/output", "is inside another"),
        ("store", "store/staging", "output", "is inside another"),
    ],
)
def test_nested_folders_and_folders_on_different_file_systems_are_refused(
    tmp_path: Path, store: str, staging: str, output: str, why: str
) -> None:
    (tmp_path / "job.yaml").write_text(
        "job: x\n"
        "source: {type: kafka, brokers: b, topics: [a]}\n"
        f"paths: {{store: '{store}', staging: '{staging}', output: '{output}'}}\n"
    )
    with pytest.raises(ConfigurationError, match=why):
        load_config(tmp_path / "job.yaml")


def test_store_on_another_file_system_must_be_durable_like_the_output(tmp_path: Path) -> None:
    data = [str(tmp_path / name) for name in ("staging", "output")]
    with pytest.raises(ConfigurationError, match="WebHDFS has no way to ask for durable files") as caught:
        open_folders("webhdfs://host:1/store", data, durable=True)
    assert caught.value.id == "FILE_SYSTEM_UNSUPPORTED"
    fs = open_folders("webhdfs://host:1/store", data, durable=False)
    assert (fs.scheme, file_system_at(fs, "/store/log").scheme) == ("file", "webhdfs")
    assert file_system_at(fs, data[1]).scheme == "file"


@pytest.mark.parametrize("place", ["s3://a", "smb://a/share"])
def test_sink_access_is_refused_on_file_systems_without_owner_and_mode(tmp_path: Path, place: str) -> None:
    (tmp_path / "job.yaml").write_text(
        "job: x\n"
        "source: {type: kafka, brokers: b, topics: [a]}\n"
        "sink: {access: {mode: '0640'}}\n"
        f"paths: {{store: '{place}/store', staging: '{place}/staging', output: '{place}/output'}}\n"
    )
    with pytest.raises(
        ConfigurationError,
        match=rf"sink\.access must not be set, because files have no owner and mode at {place}/output",
    ):
        load_config(tmp_path / "job.yaml")
