"""Where a job's folders may be, and what is said of places that can't be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distcommit.app.config import load_config
from distcommit.app.places import normal_place, open_file_system, path_of
from distcommit.fs.local import LocalFileSystem
from distcommit.model.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "place", "path"),
    [
        ("/a/./b//c", "/a/b/c", "/a/b/c"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a", "/a"),
        ("webhdfs://one:1;two:2/a/b", "webhdfs://one:1;two:2/a/b", "/a/b"),
        ("hdfs://service//a/./b/", "hdfs://service/a/b", "/a/b"),
        ("hdfs://service/ünï%20côde", "hdfs://service/ünï%20côde", "/ünï%20côde"),
        ("s3://bucket/a//b/", "s3://bucket/a/b", "/a/b"),
    ],
)
def test_a_place_has_one_form(text: str, place: str, path: str) -> None:
    assert normal_place(text, Path("/")) == place
    assert path_of(place) == path


def test_a_relative_path_starts_at_the_job_file(tmp_path: Path) -> None:
    assert normal_place("below", tmp_path) == str(tmp_path / "below")
    assert isinstance(open_file_system(str(tmp_path), durable=True), LocalFileSystem)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("s3a://bucket/a", "no file system for this URL .*s3a://bucket/a.*hdfs:// .*say s3://"),
        ("memory://a/b", "an fsspec file system promises none .*rename without replacing"),
        ("gs://bucket/b", "only the S3 protocol"),
        ("s3://bucket", "is not whole.*s3://BUCKET/prefix"),
        ("hdfs:///a", "is not whole.*name service"),
        ("hdfs://host", "is not whole"),
        ("hdfs://host/", "is not whole"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        normal_place(text, Path("/"))


def test_webhdfs_is_refused_where_commits_have_to_be_durable() -> None:
    with pytest.raises(ConfigurationError, match=r"no way to ask.*durability: none.*hdfs://.*synconclose"):
        open_file_system("webhdfs://host:9870/a", durable=True)
    assert open_file_system("webhdfs://host:9870/a", durable=False).scheme == "webhdfs"


@pytest.mark.parametrize(("scheme", "package"), [("hdfs", "hdfs_native"), ("webhdfs", "hdfs"), ("s3", "boto3")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str, package: str) -> None:
    loaded = ("distcommit.fs.hdfs_rpc", "distcommit.fs.webhdfs", "distcommit.fs.s3")
    for name in [name for name in sys.modules if name.startswith(loaded)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'distcommit\[{scheme}\]'"):
        open_file_system(f"{scheme}://host:1/a", durable=False)


@pytest.mark.parametrize(
    ("store", "staging", "output", "why"),
    [
        ("hdfs://a/store", "hdfs://b/staging", "hdfs://a/output", "different file systems.*hdfs://b/staging"),
        ("store", "hdfs://a/staging", "hdfs://a/output", "different file systems"),
        ("s3://a/store", "s3://b/staging", "s3://a/output", "different file systems.*s3://b/staging"),
        ("hdfs://a/job", "hdfs://a/job/staging", "hdfs://a/output", "lies in another.*paths.staging"),
        ("hdfs://a/job", "hdfs://a/./job", "hdfs://a/output", "lies in another"),
        ("store", "store/staging", "output", "lies in another"),
    ],
)
def test_folders_are_apart_and_on_one_file_system(
    tmp_path: Path, store: str, staging: str, output: str, why: str
) -> None:
    (tmp_path / "job.yaml").write_text(
        "job: x\n"
        "source: {type: kafka, brokers: b, topics: [a]}\n"
        f"paths: {{store: '{store}', staging: '{staging}', output: '{output}'}}\n"
    )
    with pytest.raises(ConfigurationError, match=why):
        load_config(tmp_path / "job.yaml")


def test_owner_and_mode_are_refused_where_objects_have_none(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "job: x\n"
        "source: {type: kafka, brokers: b, topics: [a]}\n"
        "sink: {access: {mode: '0640'}}\n"
        "paths: {store: 's3://a/store', staging: 's3://a/staging', output: 's3://a/output'}\n"
    )
    with pytest.raises(ConfigurationError, match=r"no owner and mode .*s3://a/output.*no sink\.access"):
        load_config(tmp_path / "job.yaml")
