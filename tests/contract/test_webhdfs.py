"""Special cases of HDFS over HTTP: lost answers, durability, names and Kerberos."""

from __future__ import annotations

import json
import sys
import uuid
from getpass import getuser
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.fs.hadoop.hdfs_file_system import HdfsFileSystem
from distcommit.fs.hadoop.webhdfs import WebHdfs
from tests.servers.hdfs import HdfsServer
from tests.servers.lossy_proxy import LossyProxy


@pytest.fixture
def fs(hdfs_server: HdfsServer) -> HdfsFileSystem:
    return HdfsFileSystem(WebHdfs(hdfs_server.web_authority))


@pytest.fixture
def root(fs: HdfsFileSystem) -> str:
    folder = f"/tests/{uuid.uuid4().hex}"
    fs.make_folders(folder)
    return folder


def test_put_with_a_lost_answer_is_complete_and_in_doubt(root: str, hdfs_server: HdfsServer) -> None:
    with LossyProxy(int(hdfs_server.web_authority.rpartition(":")[2])) as proxy:
        fs = HdfsFileSystem(WebHdfs(f"127.0.0.1:{proxy.port}"))
        proxy.lose_answer_to(b"op=RENAME")
        with pytest.raises(OSError, match="ConnectionError"):
            fs.put_if_absent(f"{root}/a", b"mine")
        assert proxy.wait_for_loss()
        assert fs.read(f"{root}/a") == b"mine"
        assert not fs.put_if_absent(f"{root}/a", b"again")
        assert [entry.name for entry in fs.list_folder(root)] == ["a"]


def test_data_nodes_do_not_sync_files_written_over_http(fs: HdfsFileSystem, root: str, hdfs_server: HdfsServer) -> None:
    """HDFS over HTTP is therefore rejected where commits must be durable. If Hadoop starts to sync, this test fails."""
    before = hdfs_server.blocks_synced()
    assert fs.put_if_absent(f"{root}/a", b"x")
    assert hdfs_server.blocks_synced() == before


def test_first_writer_to_close_keeps_the_name(fs: HdfsFileSystem, root: str) -> None:
    """If two writers find the name free, closing the second one raises."""
    first, second = fs.create(f"{root}/a"), fs.create(f"{root}/a")
    first.write(b"first")
    second.write(b"second")
    first.close_file(sync=True)
    with pytest.raises(FileExistsError):
        second.close_file(sync=True)
    assert fs.read(f"{root}/a") == b"first"


def test_old_rename_moves_into_an_existing_folder(fs: HdfsFileSystem, root: str, hdfs_server: HdfsServer) -> None:
    """The newer rename operation is used because it raises instead."""
    fs.put_if_absent(f"{root}/a", b"x")
    fs.make_folder(f"{root}/there")
    with pytest.raises(FileExistsError):
        fs.rename(f"{root}/a", f"{root}/there")
    old = f"http://{hdfs_server.web_authority}/webhdfs/v1{root}/a?op=RENAME&destination={root}/there"
    with urlopen(Request(f"{old}&user.name={getuser()}", method="PUT"), timeout=20) as answer:
        assert json.load(answer) == {"boolean": True}
    assert [entry.name for entry in fs.list_folder(f"{root}/there")] == ["a"], "although the requested name was `there`"


def test_name_that_the_package_would_expand_is_rejected(fs: HdfsFileSystem, root: str) -> None:
    fs.put_if_absent(f"{root}/a", b"x")
    for call in (fs.read, fs.status, fs.delete, fs.list_folder, fs.make_folders):
        with pytest.raises(OSError, match="Invalid path"):
            call(f"{root}/#LATEST")
    assert fs.read(f"{root}/a") == b"x"


def test_unreachable_server_is_a_connection_error() -> None:
    with pytest.raises(OSError, match="Connection") as error:
        HdfsFileSystem(WebHdfs("127.0.0.1:9")).read("/a")
    assert error.value.errno


def test_kerberos_is_read_from_the_hadoop_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>hadoop.security.authentication</name><value>kerberos</value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "requests_kerberos", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'hdfs\[kerberos\]'"):
        HdfsFileSystem(WebHdfs("127.0.0.1:9")).read("/a")
