"""HDFS by RPC fulfills the file system contract, on a NameNode and two DataNodes."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hdfs_native
import pytest

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.commit_step import StepContext, Verdict
from distcommit.core.interfaces.file_system import FileAccess, FileStatus, FileSystem
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem, hdfs_error
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc, HdfsRpcWriter
from distcommit.fs.hadoop.webhdfs import WebHdfs
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.testing.contracts import FileSystemContract
from tests.servers.hdfs import HdfsServer
from tests.servers.lossy_proxy import LossyProxy

MIB = 1 << 20


class TestHdfsFileSystem(FileSystemContract):
    REFUSED_NAMES = frozenset({"a b:c"})
    REPORTS_FOLDER_CREATION = False

    @pytest.fixture(autouse=True)
    def server(self, hdfs_server: HdfsServer) -> None:
        self._authority = hdfs_server.authority

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        fs = HdfsFileSystem(HdfsRpc(self._authority))
        root = f"/contract/{uuid.uuid4().hex}"
        fs.make_folders(root)
        return fs, root


class TestHdfsFileSystemOverHttp(FileSystemContract):
    REFUSED_NAMES = frozenset({"a b:c"})
    REPORTS_FOLDER_CREATION = False

    @pytest.fixture(autouse=True)
    def server(self, hdfs_server: HdfsServer) -> None:
        self._authority = hdfs_server.web_authority

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        fs = HdfsFileSystem(WebHdfs(self._authority))
        root = f"/contract/{uuid.uuid4().hex}"
        fs.make_folders(root)
        return fs, root


@pytest.fixture
def fs(hdfs_server: HdfsServer) -> HdfsFileSystem:
    return HdfsFileSystem(HdfsRpc(hdfs_server.authority))


@pytest.fixture
def root(fs: HdfsFileSystem) -> str:
    folder = f"/tests/{uuid.uuid4().hex}"
    fs.make_folders(folder)
    return folder


def _write(fs: FileSystem, path: str, data: bytes, *, sync: bool = True) -> FileStatus | None:
    writer = fs.create(path)
    writer.write(data)
    writer.close_file(sync=sync)
    return fs.status(path)


@pytest.mark.parametrize("over_http", [False, True])
def test_mode_owner_and_group_are_set_as_requested(
    fs: HdfsFileSystem, root: str, hdfs_server: HdfsServer, over_http: bool
) -> None:
    used = HdfsFileSystem(WebHdfs(hdfs_server.web_authority)) if over_http else fs
    _write(used, f"{root}/a", b"x")
    used.set_access(f"{root}/a", FileAccess(mode=0o640, owner="clicks"))
    used.set_access(f"{root}/a", FileAccess(group="analysts"))
    info = hdfs_native.Client(f"hdfs://{hdfs_server.authority}").get_file_info(f"{root}/a")
    assert (info.permission, info.owner, info.group) == (0o640, "clicks", "analysts")


def test_every_block_is_synced_on_every_data_node(fs: HdfsFileSystem, root: str, hdfs_server: HdfsServer) -> None:
    before = hdfs_server.blocks_synced()
    _write(fs, f"{root}/a", bytes(5 * MIB // 2), sync=False)  # three blocks
    _write(fs, f"{root}/b", bytes(2 * MIB))
    assert fs.put_if_absent(f"{root}/c", b"x")
    assert hdfs_server.blocks_synced() - before == (3 + 2 + 1) * 2
    assert fs.read(f"{root}/a") == bytes(5 * MIB // 2)


def test_acknowledged_changes_survive_the_death_of_all_nodes(
    fs: HdfsFileSystem, root: str, hdfs_server: HdfsServer
) -> None:
    fs.make_folders(f"{root}/deep/down")
    written = _write(fs, f"{root}/a", b"kept")
    fs.rename(f"{root}/a", f"{root}/deep/down/a")
    assert fs.put_if_absent(f"{root}/b", b"put")
    fs.make_folder(f"{root}/folder")
    assert fs.rename_folder(f"{root}/folder", f"{root}/renamed")
    hdfs_server.kill()
    hdfs_server.start_again()
    assert fs.status(f"{root}/deep/down/a") == written
    assert fs.read(f"{root}/deep/down/a") == b"kept"
    assert fs.read(f"{root}/b") == b"put"
    assert sorted(entry.name for entry in fs.list_folder(root)) == ["b", "deep", "renamed"]


@pytest.fixture
def proxy(hdfs_server: HdfsServer) -> Iterator[LossyProxy]:
    with LossyProxy(int(hdfs_server.authority.rpartition(":")[2])) as proxy:
        yield proxy


def test_put_with_a_lost_answer_is_complete_and_in_doubt(root: str, proxy: LossyProxy) -> None:
    fs = HdfsFileSystem(HdfsRpc(f"127.0.0.1:{proxy.port}"))
    proxy.lose_answer_to(b"rename2")
    with pytest.raises(OSError, match="disconnected"):
        fs.put_if_absent(f"{root}/a", b"mine")
    assert proxy.wait_for_loss()
    assert fs.read(f"{root}/a") == b"mine"
    assert not fs.put_if_absent(f"{root}/a", b"again")
    assert [entry.name for entry in fs.list_folder(root)] == ["a"]


class SendsAgain(HdfsRpc):
    """A client that receives no answer and repeats its request."""

    def rename(self, source: str, target: str) -> None:
        with suppress(FileExistsError):
            super().rename(source, target)
        super().rename(source, target)

    def open_new(self, path: str) -> HdfsRpcWriter:
        super().open_new(path).close()
        return super().open_new(path)


class RenamesAgain(SendsAgain):
    open_new = HdfsRpc.open_new


def test_repeated_put_is_recognized_by_its_bytes(root: str, hdfs_server: HdfsServer) -> None:
    fs = HdfsFileSystem(RenamesAgain(hdfs_server.authority))
    assert fs.put_if_absent(f"{root}/a", b"mine")
    assert not fs.put_if_absent(f"{root}/a", b"another's")
    assert fs.read(f"{root}/a") == b"mine"
    with pytest.raises(FileNotFoundError):
        fs.put_if_absent(f"{root}/missing/a", b"x")
    assert [entry.name for entry in fs.list_folder(root)] == ["a"]


def test_put_whose_write_fails_raises_and_leaves_nothing(root: str, hdfs_server: HdfsServer) -> None:
    fs = HdfsFileSystem(SendsAgain(hdfs_server.authority))
    with pytest.raises(OSError, match="lost"):
        fs.put_if_absent(f"{root}/a", b"x")
    assert fs.list_folder(root) == []


def _steps(fs: HdfsFileSystem, root: str, many: int) -> list[FsRenameCommitStep]:
    context = StepContext(fs, f"{root}/staging", f"{root}/output")
    fs.make_folders(context.staging_root)
    fs.make_folders(context.output_root)
    for number in range(many):
        _write(fs, f"{context.staging_root}/{number}", b"%d" % number)
    return [FsRenameCommitStep(context, f"{number}", f"folder/{number}") for number in range(many)]


def test_step_with_a_lost_answer_is_done_by_the_next_attempt(root: str, proxy: LossyProxy) -> None:
    steps = _steps(HdfsFileSystem(HdfsRpc(f"127.0.0.1:{proxy.port}")), root, 3)
    proxy.lose_answer_to(b"rename2")
    errors = FsRenameCommitStep.execute_all(steps)
    assert proxy.wait_for_loss()
    assert all(error is None or isinstance(error, TransientError) for error in errors)
    assert FsRenameCommitStep.execute_all(steps) == [None] * 3
    assert [step.verify() for step in steps] == [Verdict.DONE] * 3


def test_repeated_step_is_done(root: str, hdfs_server: HdfsServer) -> None:
    steps = _steps(HdfsFileSystem(RenamesAgain(hdfs_server.authority)), root, 3)
    assert FsRenameCommitStep.execute_all(steps) == [None] * 3
    assert [step.verify() for step in steps] == [Verdict.DONE] * 3


def test_name_service_continues_with_the_other_name_node(
    hdfs_pair: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_pair.conf_dir))
    fs = HdfsFileSystem(HdfsRpc(hdfs_pair.authority))
    fs.make_folders("/job/folder")
    written = _write(fs, "/job/a", b"x")
    hdfs_pair.kill_name_node(1)
    hdfs_pair.make_active(2)
    assert fs.status("/job/a") == written
    fs.rename("/job/a", "/job/folder/a")
    with pytest.raises(FileNotFoundError):
        fs.rename("/job/a", "/job/folder/b")
    assert fs.put_if_absent("/job/b", b"y")
    assert not fs.put_if_absent("/job/b", b"z")
    assert fs.read("/job/folder/a") == b"x"


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        ("org.apache.hadoop.security.AccessControlException", PermissionError),
        ("org.apache.hadoop.fs.ParentNotDirectoryException", NotADirectoryError),
        ("java.io.IOException", OSError),
    ],
)
def test_java_errors_become_the_built_in_ones(exception: str, kind: type[OSError]) -> None:
    error = hdfs_error(exception, "why\n\tat org.apache", "/a")
    assert type(error) is kind
    assert error.errno
    assert str(error).endswith(f"why ({exception.rpartition('.')[2]}): '/a'")


def test_missing_write_permission_is_reported(root: str, hdfs_server: HdfsServer, fs: HdfsFileSystem) -> None:
    assert fs.put_if_absent(f"{root}/a", b"x")
    program = f"""
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.hdfs_rpc import HdfsRpc, HdfsRpcWriter
try:
    HdfsFileSystem(HdfsRpc({hdfs_server.authority!r})).rename({root + "/a"!r}, {root + "/b"!r})
except PermissionError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HADOOP_USER_NAME": "stranger"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "user=stranger, access=WRITE" in done.stdout
    assert "\tat " not in done.stdout


def test_name_service_that_is_not_configured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    with pytest.raises(ConfigurationError, match=r"authority=nobody.*hdfs-site\.xml in the folder HADOOP_CONF_DIR"):
        HdfsFileSystem(HdfsRpc("nobody")).read("/a")
