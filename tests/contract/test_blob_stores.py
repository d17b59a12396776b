"""The file system of Azure Blob Storage and Google Cloud Storage fulfills the object store contract, on Azurite and on
a server of these tests."""

from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from distcommit.core.errors import ConfigurationError, LostError, StorageRefusedError, TransientError
from distcommit.core.interfaces.commit_step import Lost, StepContext, Verdict
from distcommit.core.interfaces.file_system import FileStatus, FileSystem
from distcommit.fs.object_stores.blob_file_system import BlobFileSystem
from distcommit.fs.object_stores.blob_requests import BlobRequests
from distcommit.fs.object_stores.object_operations import ObjectHead
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.state.job_store import Roots, open_store
from distcommit.testing.contracts import ObjectStoreContract
from tests.servers.azure import AzureServer
from tests.servers.google_storage import GoogleStorageServer
from tests.servers.lossy_proxy import LossyProxy

ROOTS = Roots("/job/store", "/job/staging", "/job/output")


@pytest.fixture
def azure_container(azure_server: AzureServer, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in azure_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"az://{azure_server.make_container()}"


@pytest.fixture
def google_bucket(google_storage_server: GoogleStorageServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in google_storage_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = google_storage_server.make_bucket()
    yield f"gs://{bucket}"
    assert google_storage_server.uploads(bucket) == 0


@pytest.fixture(params=["azure_container", "google_bucket"])
def container(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def endpoint(container: str) -> str:
    """The variable with the server's address."""
    return "GOOGLE_BASE_URL" if container.startswith("gs") else "AZURE_STORAGE_ENDPOINT"


class TestBlobFileSystem(ObjectStoreContract):
    @pytest.fixture(autouse=True)
    def server(self, azure_container: str) -> None:
        self._container = azure_container

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        return open_container(self._container), f"/contract/{uuid.uuid4().hex}"


class TestGoogleFileSystem(TestBlobFileSystem):
    @pytest.fixture(autouse=True)
    def server(self, google_bucket: str) -> None:
        self._container = google_bucket


def open_container(url: str) -> BlobFileSystem:
    return BlobFileSystem(BlobRequests(url), url.partition(":")[0])


@pytest.fixture
def fs(container: str) -> BlobFileSystem:
    return open_container(container)


def _stage(fs: FileSystem, data: bytes, path: str = "/staging/a", target: str = "/output/a") -> FileStatus:
    writer = fs.create(path, target)
    writer.write(data)
    return writer.close_file(sync=True)


def _step(fs: FileSystem) -> FsRenameCommitStep:
    return FsRenameCommitStep(StepContext(fs, "/staging", "/output"), "a", "a")


@pytest.mark.parametrize("size_bytes", [0, 1, 24 << 20])
def test_published_blob_equals_the_staged_file(fs: BlobFileSystem, size_bytes: int) -> None:
    data = (bytes(range(251)) * (size_bytes // 251 + 1))[:size_bytes]
    writer = fs.create("/staging/ä a", "/output/ä a")
    for start in range(0, len(data), 5_000_000):
        writer.write(data[start : start + 5_000_000])
    closed = writer.close_file(sync=True)
    assert fs.status("/staging/ä a") == closed
    fs.rename("/staging/ä a", "/output/ä a")
    assert fs.status("/output/ä a") == closed
    assert fs.checksum("/output/ä a") == writer.checksum
    assert fs.status("/staging/ä a") is None


def test_file_that_is_still_written_can_not_be_published(fs: BlobFileSystem) -> None:
    writer = fs.create("/staging/a", "/output/a")
    writer.write(b"x")
    with pytest.raises(OSError, match="only a closed staged file can be published"):
        fs.rename("/staging/a", "/output/a")
    assert fs.status("/staging/a") == FileStatus(0, 0, 0)
    assert fs.delete("/staging/a")
    with pytest.raises(FileExistsError):  # its reservation is gone
        writer.close_file(sync=True)
    assert fs.list_folder("/staging") == []


@pytest.mark.parametrize("heard", ["retry is completed again", "retry is told the name is taken", "no answer at all"])
def test_step_with_a_lost_answer_is_done_once(fs: BlobFileSystem, container: str, heard: str) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    deaf = _step(BlobFileSystem(LosesAnswers(container, heard), "az"))
    if heard == "no answer at all":
        with pytest.raises(TransientError):
            deaf.execute()
    else:
        deaf.execute()
        assert fs.list_folder("/staging") == []
    step.execute()
    assert step.verify() is Verdict.DONE
    assert fs.read("/output/a") == b"x"
    assert fs.list_folder("/staging") == []


class LosesAnswers(BlobRequests):
    """Requests that copy a blob and return a result that is possible if the answer is lost."""

    def __init__(self, url: str, heard: str) -> None:
        super().__init__(url)
        self._heard = heard

    def copy(self, source: str, target: str) -> None:
        super().copy(source, target)
        if self._heard == "no answer at all":
            raise OSError(5, "error sending request", target)
        if self._heard == "retry is told the name is taken":
            raise FileExistsError(17, "BlobAlreadyExists", target)
        super().copy(source, target)


@pytest.mark.parametrize(
    ("request_", "act"),
    [
        (b"PUT /.{,80}/log(/|%2F)1 ", "put"),
        (b"PUT /.{,80}/output(/|%2F)a ", "rename"),
        (b"PUT /.{,80}/staging(/|%2F)b ", "create"),
        (b"yz", "create"),
        (b"POST /.{,80}comp=batch|DELETE /", "delete"),
    ],
)
def test_request_with_a_truncated_answer_is_repeated(
    fs: BlobFileSystem,
    container: str,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    request_: bytes,
    act: str,
) -> None:
    before = _stage(fs, b"x")
    address = urlsplit(os.environ[endpoint])
    with LossyProxy(address.port or 0) as proxy:
        monkeypatch.setenv(endpoint, address._replace(netloc=f"127.0.0.1:{proxy.port}").geturl())
        cut = open_container(container)
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
                cut.delete("/staging/a")
                assert fs.status("/staging/a") is None
        assert proxy.wait_for_loss()


class CompletesCopiesLater(BlobRequests):
    """Requests to a store whose copies are empty for the first two requests after the copy."""

    pending = 0

    def copy(self, source: str, target: str) -> None:
        super().copy(source, target)
        self.pending = 2

    def head(self, key: str) -> ObjectHead | None:
        head = super().head(key)
        if self.pending and key.startswith("output/") and head is not None:
            self.pending -= 1
            return ObjectHead(0, head.etag, head.metadata)
        return head


def test_staged_file_is_kept_until_its_copy_is_complete(container: str) -> None:
    requests = CompletesCopiesLater(container)
    fs = BlobFileSystem(requests, "az")
    staged = _stage(fs, b"x")
    requests.copy("staging/a", "output/a")
    assert fs.status("/output/a") is None
    assert _step(fs).verify() is Verdict.PENDING
    requests.pending = 2
    fs.rename("/staging/a", "/output/a")
    assert (fs.status("/staging/a"), fs.status("/output/a")) == (None, staged)


def test_copy_that_is_not_completed_keeps_the_staged_file(container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distcommit.fs.object_stores.blob_file_system._COPY_LIMIT_S", 0.0)
    fs = BlobFileSystem(CompletesCopiesLater(container), "az")
    staged = _stage(fs, b"x")
    with pytest.raises(BlockingIOError, match="has not completed the copy"):
        fs.rename("/staging/a", "/output/a")
    assert fs.status("/staging/a") == staged


def test_foreign_blob_at_the_name_is_lost_and_kept(fs: BlobFileSystem) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    fs.put_if_absent("/output/a", b"y")
    assert isinstance(step.verify(), Lost)
    with pytest.raises(LostError, match="other bytes"):
        step.execute()
    step.withdraw()
    step.undo()
    assert fs.read("/output/a") == b"y"


def test_withdrawn_step_can_not_be_executed_and_leaves_nothing(fs: BlobFileSystem) -> None:
    _stage(fs, b"x")
    zombie, step = _step(fs), _step(fs)
    step.withdraw()
    with pytest.raises(LostError):
        zombie.execute()
    step.undo()
    assert fs.list_folder("/output") == fs.list_folder("/staging") == []


def test_store_is_probed_and_contains_nothing_else(fs: BlobFileSystem) -> None:
    open_store(fs, ROOTS, "clicks", 2, create=True)
    assert open_store(fs, ROOTS, "clicks", 2, create=False).buckets == 2
    assert [entry.name for entry in fs.list_folder("/job")] == ["store"]


class IgnoresConditions(BlobRequests):
    """Requests of a store that ignores conditions, or supports them for PUTs only."""

    def __init__(self, url: str, puts: bool) -> None:
        super().__init__(url)
        self._puts = puts

    def put(
        self, key: str, data: bytes, metadata: Mapping[str, str], *, replaced: ObjectHead | None = None
    ) -> ObjectHead | None:
        if not self._puts and replaced is None:
            self.delete(key)
        return super().put(key, data, metadata, replaced=replaced)

    def copy(self, source: str, target: str) -> None:
        self.delete(target)
        super().copy(source, target)


@pytest.mark.parametrize(("puts", "why"), [(False, "put-if-absent"), (True, "rename without replacing")])
def test_store_without_conditional_requests_is_rejected(container: str, puts: bool, why: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"this (az|gs) file system lacks an ability that exactly-once needs: .*{why}"
    ):
        open_store(BlobFileSystem(IgnoresConditions(container, puts), container[:2]), ROOTS, "clicks", 2, create=True)


def test_empty_container_has_no_root_folder(fs: BlobFileSystem) -> None:
    assert fs.status("/") is None
    fs.put_if_absent("/a", b"")
    assert fs.status("/") == FileStatus(0, 0, 0, is_folder=True)


def test_missing_container_is_named(container: str) -> None:
    url = f"{container[:2]}://nobody-has-this"
    missing = open_container(url)
    for ask in (missing.read, missing.status, missing.list_folder, lambda path: missing.put_if_absent(path, b"")):
        with pytest.raises(ConfigurationError, match=rf"the (container|bucket) does not exist .*{url}"):
            ask("/a")


def test_missing_account_is_named(azure_container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    with pytest.raises(ConfigurationError, match=r"can't be accessed .*[Aa]ccount must be specified"):
        open_container(azure_container).read("/a")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("GOOGLE_SERVICE_ACCOUNT_KEY", "{}", "missing field"),
        ("GOOGLE_SERVICE_ACCOUNT", "/missing.json", "/missing.json"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/missing.json", "/missing.json"),
    ],
)
def test_unusable_key_file_is_named(
    google_bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT_KEY")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=rf"the bucket can't be accessed .*{problem}.*correct .*credentials"):
        open_container(google_bucket).read("/a")


@pytest.mark.parametrize("variable", ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS"])
def test_key_file_of_a_service_account_gives_access(
    google_bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    key_file = tmp_path / "key.json"
    key_file.write_text(os.environ["GOOGLE_SERVICE_ACCOUNT_KEY"])
    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT_KEY")
    monkeypatch.setenv(variable, str(key_file))
    assert open_container(google_bucket).put_if_absent("/a", b"x")


def test_token_of_the_machine_is_renewed(
    google_storage_server: GoogleStorageServer, google_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_SERVICE_ACCOUNT_KEY")
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{google_storage_server.port}")
    monkeypatch.setattr(google_storage_server, "token_lifetime_s", 1.0)
    fs = open_container(google_bucket)
    assert fs.put_if_absent("/a", b"x")
    time.sleep(1.1)
    assert fs.read("/a") == b"x"
    assert len(google_storage_server.tokens) > 1


def test_write_limit_of_one_name_only_delays_a_staged_file(
    google_storage_server: GoogleStorageServer, google_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_storage_server, "is_rate_limited", True)
    fs = open_container(google_bucket)
    staged = _stage(fs, b"x")
    fs.rename("/staging/a", "/output/a")
    assert fs.status("/output/a") == staged


def test_folder_with_more_names_than_a_page_is_listed(google_bucket: str) -> None:
    requests = BlobRequests(google_bucket)
    for number in range(1001):
        requests.put(f"a/{number}", b"", {})
    assert len(requests.list_folder("a/")) == 1001


def test_revoked_key_refuses_the_commit_and_loses_nothing(
    fs: BlobFileSystem,
    container: str,
    google_storage_server: GoogleStorageServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    staged = _stage(fs, b"x")
    step = _step(fs)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "cmV2b2tlZA==")
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", google_storage_server.revoked_key())
    revoked = FsRenameCommitStep.of(StepContext(open_container(container), "/staging", "/output"), step.file)
    with pytest.raises(StorageRefusedError, match=r"AuthorizationFailure|EACCES"):
        revoked.execute()
    assert fs.status("/staging/a") == staged


def test_bucket_without_permission_to_delete_refuses_the_step_until_it_is_granted(
    google_storage_server: GoogleStorageServer, google_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = open_container(google_bucket)
    _stage(fs, b"x")
    step = _step(fs)
    with monkeypatch.context() as denied:
        denied.setattr(google_storage_server, "forbidden", {"DELETE"})
        with pytest.raises(StorageRefusedError, match="AccessDenied"):
            step.execute()
    step.execute()
    assert step.verify() is Verdict.DONE


class DeletesNothing(BlobRequests):
    """Requests of an identity without permission to delete."""

    def delete(self, key: str) -> bool:
        raise PermissionError(13, "AuthorizationPermissionMismatch", key)


def test_without_permission_to_delete_the_step_is_refused_and_done_later(fs: BlobFileSystem, container: str) -> None:
    _stage(fs, b"x")
    step = _step(fs)
    with pytest.raises(StorageRefusedError, match="EACCES"):
        _step(BlobFileSystem(DeletesNothing(container), "az")).execute()
    assert fs.read("/output/a") == b"x"
    assert step.verify() is Verdict.PENDING
    step.execute()
    assert step.verify() is Verdict.DONE
    assert fs.list_folder("/staging") == []


class Throttles(BaseHTTPRequestHandler):
    """Answers that the server is busy."""

    def do_PUT(self) -> None:
        body = b"<?xml version='1.0'?><Error><Code>ServerBusy</Code><Message>The server is busy.</Message></Error>"
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT  # noqa: N815
    do_HEAD = do_PUT  # noqa: N815
    do_POST = do_PUT  # noqa: N815
    do_DELETE = do_PUT  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def test_throttling_is_an_outage(container: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distcommit.fs.object_stores.blob_requests._RETRIES", 1)
    with HTTPServer(("127.0.0.1", 0), Throttles) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        monkeypatch.setenv(endpoint, f"http://127.0.0.1:{server.server_port}/account")
        busy = open_container(container)
        for ask in (busy.status, busy.list_folder, busy.delete, lambda path: busy.put_if_absent(path, b"")):
            with pytest.raises(OSError, match=r"503|ServerBusy") as raised:
                ask("/a")
            assert raised.value.errno == errno.EBUSY
        server.shutdown()


def test_unreachable_server_is_an_outage(container: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distcommit.fs.object_stores.blob_requests._RETRIES", 0)
    monkeypatch.setenv(endpoint, "http://127.0.0.1:1/account")
    with pytest.raises(OSError, match="error sending request") as raised:
        open_container(container).read("/a")
    assert raised.value.errno == 5
