"""The S3 file system fulfills the object store contract, on an S3 server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest

from distcommit.app.checks.folder_check import check_folder
from distcommit.core.errors import ConfigurationError, LostError, TransientError
from distcommit.core.interfaces.commit_step import Lost, StepContext, Verdict
from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.fs.object_stores.s3_file_system import S3FileSystem
from distcommit.fs.object_stores.s3_requests import S3Requests
from distcommit.fs.object_stores.s3_stream import S3Stream, discard_stream
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.state.job_store import Roots, open_store
from distcommit.testing.contracts import ObjectStoreContract
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.s3 import S3Server

MIB = 1 << 20


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server.make_bucket()


class TestS3FileSystem(ObjectStoreContract):
    @pytest.fixture(autouse=True)
    def server(self, bucket: str) -> None:
        self._bucket = bucket

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return S3FileSystem(S3Requests(self._bucket)), f"/contract/{uuid.uuid4().hex}"


@pytest.fixture
def fs(bucket: str) -> S3FileSystem:
    return S3FileSystem(S3Requests(bucket))


def _stage(fs: FileSystem, data: bytes, path: str = "/staging/a", target: str = "/output/a") -> FileStatus:
    writer = fs.create(path, target)
    writer.write(data)
    return writer.close_file(sync=True)


def _step(fs: FileSystem) -> FsRenameCommitStep:
    return FsRenameCommitStep(StepContext(fs, "/staging", "/output"), "a", "a")


def _uploads(bucket: str) -> list[dict[str, Any]]:
    return list(boto3.client("s3").list_multipart_uploads(Bucket=bucket).get("Uploads", ()))


def test_object_of_many_parts_equals_the_staged_file(fs: S3FileSystem, bucket: str) -> None:
    data = bytes(range(251)) * 100_000  # 24 MiB
    writer = fs.create("/staging/a", "/output/a")
    for start in range(0, len(data), 5_000_000):
        writer.write(data[start : start + 5_000_000])
    closed = writer.close_file(sync=True)
    assert fs.status("/staging/a") == closed
    fs.rename("/staging/a", "/output/a")
    assert fs.status("/output/a") == closed
    assert fs.checksum("/output/a") == writer.checksum
    assert closed.file_id
    assert _uploads(bucket) == []


def test_swept_file_leaves_no_upload(fs: S3FileSystem, bucket: str) -> None:
    _stage(fs, b"x")
    fs.create("/staging/b", "/output/b").write(b"never closed")
    assert len(_uploads(bucket)) == 2
    assert fs.delete("/staging/a")
    assert fs.delete("/staging/b")
    assert _uploads(bucket) == []


def test_existing_name_leaves_no_upload(fs: S3FileSystem, bucket: str) -> None:
    fs.put_if_absent("/staging/a", b"")
    with pytest.raises(FileExistsError):
        fs.create("/staging/a", "/output/a")
    assert _uploads(bucket) == []


@pytest.mark.parametrize("heard", ["retry is completed again", "retry is told the key is taken", "no answer at all"])
def test_step_with_a_lost_answer_is_done_once(fs: S3FileSystem, bucket: str, heard: str) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    deaf = _step(S3FileSystem(LosesAnswers(bucket, heard)))
    if heard == "no answer at all":
        with pytest.raises(TransientError):
            deaf.execute()
    else:
        deaf.execute()
        assert fs.list_folder("/staging") == []
    assert step.verify() is Verdict.DONE
    step.execute()
    assert fs.read("/output/a") == b"x"


class LosesAnswers(S3Requests):
    """Requests that complete an upload and return a result that is possible if the answer is lost."""

    def __init__(self, bucket: str, heard: str) -> None:
        super().__init__(bucket)
        self._heard = heard

    def complete_upload(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        super().complete_upload(key, upload_id, etags)
        if self._heard == "no answer at all":
            raise OSError(5, "ReadTimeoutError", key)
        if self._heard == "retry is told the key is taken":
            raise FileExistsError(17, "PreconditionFailed", key)
        super().complete_upload(key, upload_id, etags)


@pytest.mark.parametrize(
    ("request_", "act"),
    [
        (rb"^mine\Z", "put"),  # bodies are sent separately: the client first waits for the server's answer
        (b"POST /.{,80}/output/a\\?uploadId=", "rename"),
        (b"POST /.{,80}/output/b\\?uploads", "create"),
        (rb"^yz\Z", "create"),
        (b"DELETE /.{,80}/staging/a ", "delete"),
    ],
)
def test_request_with_a_truncated_answer_is_repeated(
    fs: S3FileSystem, bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request_: bytes, act: str
) -> None:
    before = _stage(fs, b"x")
    with LossyProxy(int(s3_server.endpoint_url.rpartition(":")[2])) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        cut = S3FileSystem(S3Requests(bucket))
        proxy.lose_answer_to(request_)
        match act:
            case "put":
                assert cut.put_if_absent("/log/1", b"mine")
                assert not cut.put_if_absent("/log/1", b"mine")
            case "rename":
                cut.rename("/staging/a", "/output/a")
                assert fs.status("/output/a") == before
            case "create":
                staged = _stage(cut, b"yz", "/staging/b", "/output/b")
                fs.rename("/staging/b", "/output/b")
                assert fs.status("/output/b") == staged
            case "delete":
                assert cut.delete("/staging/a")
                assert fs.status("/staging/a") is None
        assert proxy.wait_for_loss()


def test_upload_aborted_by_another_client_is_lost(fs: S3FileSystem, bucket: str) -> None:
    """A lifecycle rule shorter than an outage does so."""
    _stage(fs, b"x")
    step = _step(fs)
    assert step.verify() is Verdict.PENDING
    boto3.client("s3").abort_multipart_upload(Bucket=bucket, Key="output/a", UploadId=_uploads(bucket)[0]["UploadId"])
    assert isinstance(step.verify(), Lost)
    with pytest.raises(LostError, match="no file at either path"):
        step.execute()
    assert fs.delete("/staging/a")


def test_upload_with_additional_parts_is_lost(fs: S3FileSystem, bucket: str) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    upload_id = _uploads(bucket)[0]["UploadId"]
    boto3.client("s3").upload_part(Bucket=bucket, Key="output/a", UploadId=upload_id, PartNumber=1, Body=b"y")
    assert isinstance(step.verify(), Lost)


def test_foreign_object_at_the_key_is_lost_and_kept(fs: S3FileSystem) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    fs.put_if_absent("/output/a", b"y")
    assert isinstance(step.verify(), Lost)
    with pytest.raises(LostError, match="other bytes"):
        step.execute()
    assert fs.read("/output/a") == b"y"
    step.withdraw()
    step.undo()
    assert fs.read("/output/a") == b"y"


def test_withdrawn_step_can_not_be_executed_and_leaves_nothing(fs: S3FileSystem, bucket: str) -> None:
    _stage(fs, b"x")
    zombie, step = _step(fs), _step(fs)
    step.withdraw()
    with pytest.raises(LostError):
        zombie.execute()
    step.undo()
    assert fs.list_folder("/output") == fs.list_folder("/staging") == []
    assert _uploads(bucket) == []


def test_folder_check_of_an_empty_bucket_finds_it_writable(fs: S3FileSystem) -> None:
    assert fs.status("/") is None
    assert check_folder(fs, "/jobs/clicks/output", is_used=False) == "/jobs/clicks/output will be created"
    assert fs.list_folder("/") == []


def test_object_with_an_unusable_etag_is_recognized_by_its_checksum(fs: S3FileSystem, bucket: str) -> None:
    """Objects encrypted with keys of a key management service have such etags."""
    _stage(fs, b"x")
    step = _step(fs)
    boto3.client("s3").put_object(Bucket=bucket, Key="output/a", Body=b"x")
    assert step.verify() is Verdict.PENDING
    step.execute()
    assert step.verify() is Verdict.DONE
    assert _uploads(bucket) == []


def test_store_on_s3_is_probed_and_contains_nothing_else(fs: S3FileSystem, bucket: str) -> None:
    roots = Roots("/job/store", "/job/staging", "/job/output")
    open_store(fs, roots, "clicks", 2, create=True)
    assert open_store(fs, roots, "clicks", 2, create=False).buckets == 2
    assert [entry.name for entry in fs.list_folder("/job")] == ["store"]
    assert _uploads(bucket) == []


class IgnoresConditions(S3Requests):
    """Requests of a store that ignores conditions, or supports them for single PUTs only."""

    def __init__(self, bucket: str, puts: bool) -> None:
        super().__init__(bucket)
        self._puts = puts

    def put(self, key: str, data: bytes, metadata: Any, *, if_absent: bool) -> str:
        return super().put(key, data, metadata, if_absent=if_absent and self._puts)

    def complete_upload(self, key: str, upload_id: str, etags: Sequence[str]) -> None:
        self.delete(key)
        super().complete_upload(key, upload_id, etags)


@pytest.mark.parametrize(("puts", "why"), [(False, "put-if-absent"), (True, "rename without replacing")])
def test_store_without_conditional_requests_is_rejected(bucket: str, puts: bool, why: str) -> None:
    roots = Roots("/job/store", "/job/staging", "/job/output")
    with pytest.raises(
        ConfigurationError, match=rf"this s3 file system lacks an ability that exactly-once needs: .*{why}"
    ):
        open_store(S3FileSystem(IgnoresConditions(bucket, puts)), roots, "clicks", 2, create=True)


def test_empty_bucket_has_no_root_folder(fs: S3FileSystem) -> None:
    assert fs.status("/") is None
    fs.put_if_absent("/a", b"")
    assert fs.status("/") == FileStatus(0, 0, 0, is_folder=True)


def test_missing_bucket_is_named(bucket: str) -> None:
    missing = S3FileSystem(S3Requests("nobody-has-this"))
    for ask in (missing.read, missing.status, missing.list_folder, lambda path: missing.put_if_absent(path, b"")):
        with pytest.raises(
            ConfigurationError,
            match=r"STORAGE_ADDRESS_INVALID: the bucket does not exist .*bucket=nobody-has-this.*endpoint=http://127",
        ):
            ask("/a")


def test_missing_credentials_are_named(bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"can't be accessed .*credentials"):
        S3FileSystem(S3Requests(bucket)).read("/a")


def test_unreachable_server_is_an_outage(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(OSError, match="Could not connect"):
        S3FileSystem(S3Requests(bucket)).read("/a")


@pytest.mark.parametrize("size_bytes", [0, 10, 20 << 20])
def test_closed_stream_is_an_object_and_replaces_none(bucket: str, size_bytes: int) -> None:
    requests, data = S3Requests(bucket), os.urandom(size_bytes)
    stream = S3Stream(requests, "a/b")
    for begin in range(0, size_bytes, 3_000_000):
        stream.write(data[begin : begin + 3_000_000])
    assert stream.tell() == size_bytes
    assert requests.head("a/b") is None
    stream.close()
    assert requests.get("a/b")[1] == data
    assert requests.uploads_to("a/b") == []
    second = S3Stream(requests, "a/b")
    second.write(data)
    with pytest.raises(FileExistsError):
        second.close()
    assert requests.get("a/b")[1] == data


def test_upload_of_a_dead_stream_is_aborted_alone(bucket: str) -> None:
    requests = S3Requests(bucket)
    dead, other = S3Stream(requests, "a/b"), S3Stream(requests, "a/bc")
    for stream in (dead, other):
        stream.write(bytes(9 << 20))
    assert len(requests.uploads_to("a/b")) == 1
    discard_stream(requests, "a/b")
    assert requests.uploads_to("a/b") == []
    other.close()
    assert requests.head("a/bc") is not None
    discard_stream(requests, "a/b")  # a second call does nothing
