"""An fsspec file system fulfills the file system contract: SMB, on a real Samba server."""

from __future__ import annotations

import errno
import gc
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import fsspec.config
import pytest
from smbclient._io import SMBFileTransaction, SMBRawIO, set_info
from smbprotocol.file_info import FileRenameInformation
from smbprotocol.open import FilePipePrinterAccessMask

from distcommit.core.errors import ConfigurationError, TransientError
from distcommit.core.interfaces.commit_step import StepContext, Verdict
from distcommit.core.interfaces.file_system import FileAccess, FileSystem
from distcommit.fs.fsspec_based.fsspec_file_system import FsspecFileSystem, fsspec_class
from distcommit.steps.rename_step import FsRenameCommitStep
from distcommit.stores.state.job_store import Roots, open_store
from distcommit.testing.contracts import FileSystemContract
from tests.servers.lossy_proxy import LossyProxy
from tests.servers.smb import SmbServer, renaming_request


def smb(authority: str) -> FsspecFileSystem:
    return FsspecFileSystem(fsspec_class("smb"), "smb", authority)


class TestSmbFileSystem(FileSystemContract):
    REFUSED_NAMES = frozenset({"a b:c"})

    @pytest.fixture(autouse=True)
    def server(self, smb_server: SmbServer, monkeypatch: pytest.MonkeyPatch) -> None:
        smb_server.log_in(monkeypatch)
        self._authority = smb_server.authority

    def open_file_system(self, folder: Path) -> tuple[FileSystem, str]:
        fs = smb(self._authority)
        root = f"/data/contract/{uuid.uuid4().hex}"
        fs.make_folders(root)
        return fs, root

    def test_setting_access_keeps_the_identity_of_the_file(self, fs: FileSystem, root: str) -> None:
        """Access cannot be set."""
        self.write(fs, f"{root}/a", b"x")
        with pytest.raises(OSError, match="can't set owner"):
            fs.set_access(f"{root}/a", FileAccess(mode=0o640))

    def test_concurrent_renames_of_one_file_have_one_winner(self, fs: FileSystem, root: str) -> None:
        """Several clients that have it open may move it in turn: it ends where the last one has moved it."""
        self.write(fs, f"{root}/a", b"x")
        won = self.race(lambda number: fs.rename(f"{root}/a", f"{root}/{number}"), FileNotFoundError)
        assert fs.status(f"{root}/a") is None
        (remaining,) = fs.list_folder(root)
        assert won[int(remaining.name)]
        assert fs.read(f"{root}/{remaining.name}") == b"x"


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The client reports unclosed handles of a lost connection."""


@pytest.fixture
def fs(smb_server: SmbServer, monkeypatch: pytest.MonkeyPatch) -> FsspecFileSystem:
    smb_server.log_in(monkeypatch)
    return smb(smb_server.authority)


@pytest.fixture
def root(fs: FsspecFileSystem) -> str:
    folder = f"/data/tests/{uuid.uuid4().hex}"
    fs.make_folders(folder)
    return folder


@pytest.fixture
def lossy(smb_server: SmbServer, fs: FsspecFileSystem) -> Iterator[tuple[LossyProxy, FsspecFileSystem]]:
    """Return a proxy and the file system behind it."""
    with LossyProxy(smb_server.port) as proxy:
        yield proxy, smb(f"127.0.0.1:{proxy.port}")
    gc.collect()  # the client's warning is then raised here


def roots_in(folder: str) -> Roots:
    return Roots(*(f"{folder}/{name}" for name in ("store", "staging", "output")))


def steps_of(fs: FsspecFileSystem, root: str, many: int) -> list[FsRenameCommitStep]:
    context = StepContext(fs, f"{root}/staging", f"{root}/output")
    fs.make_folders(context.staging_root)
    fs.make_folders(context.output_root)
    for number in range(many):
        assert fs.put_if_absent(f"{context.staging_root}/{number}", b"%d" % number)
    return [FsRenameCommitStep(context, f"{number}", f"folder/{number}") for number in range(many)]


def test_store_is_created_where_names_are_kept_unchanged(fs: FsspecFileSystem, root: str) -> None:
    open_store(fs, roots_in(root), "job", 2, create=True)
    assert {entry.name for entry in fs.list_folder(f"{root}/store")} == {"log", "store.json"}
    assert fs.list_folder(f"{root}/staging") == fs.list_folder(f"{root}/output") == []


def test_samba_with_default_settings_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a server lists names that Windows does not allow under other names."""
    with SmbServer(as_installed=True) as server:
        server.log_in(monkeypatch)
        with pytest.raises(ConfigurationError, match=r"store names unchanged.*dot\..*or correct its settings"):
            smb(server.authority).probe("/data/probe")


def test_wrong_password_is_a_configuration_error(fs: FsspecFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fsspec.config.conf, "smb", {"username": "nobody-known", "password": "hush"})
    with pytest.raises(ConfigurationError, match=r"cannot be read.*LOGON_FAILURE") as caught:
        open_store(fs, roots_in("/data/refused"), "job", 2, create=True)
    assert "hush" not in str(caught.value)


def test_put_with_a_lost_answer_is_complete_and_in_doubt(root: str, lossy: tuple[LossyProxy, FsspecFileSystem]) -> None:
    proxy, fs = lossy
    assert fs.put_if_absent(f"{root}/before", b"x")
    proxy.lose_answer_to(renaming_request("\\a"))
    with pytest.raises(OSError, match="Connection") as caught:
        fs.put_if_absent(f"{root}/a", b"mine")
    assert caught.value.errno == errno.EIO
    assert proxy.wait_for_loss()
    assert fs.read(f"{root}/a") == b"mine", "the client reconnects"
    assert not fs.put_if_absent(f"{root}/a", b"again")
    assert [entry.name for entry in fs.list_folder(root)] == ["a", "before"]


def test_step_with_a_lost_answer_is_done_by_the_next_attempt(
    root: str, lossy: tuple[LossyProxy, FsspecFileSystem]
) -> None:
    proxy, fs = lossy
    steps = steps_of(fs, root, 3)
    proxy.lose_answer_to(renaming_request("\\output\\"))
    errors = FsRenameCommitStep.execute_all(steps)
    assert proxy.wait_for_loss()
    assert [str(error) for error in errors if not (error is None or isinstance(error, TransientError))] == []
    assert FsRenameCommitStep.execute_all(steps) == [None] * 3
    assert [step.verify() for step in steps] == [Verdict.DONE] * 3


def test_client_reconnects_to_a_restarted_server(fs: FsspecFileSystem, root: str, smb_server: SmbServer) -> None:
    assert fs.put_if_absent(f"{root}/a", b"x")
    smb_server.restart()
    with suppress(OSError):
        fs.read(f"{root}/a")
    assert fs.read(f"{root}/a") == b"x"


class Paused:
    """A run that is paused in the middle of a rename: it has opened the file and not sent the new name yet."""

    def __init__(self, authority: str, path: str) -> None:
        host, _, port = authority.partition(":")
        self._raw = SMBRawIO(
            f"\\\\{host}{path}".replace("/", "\\"),
            mode="r",
            share_access="rwd",
            desired_access=FilePipePrinterAccessMask.DELETE,
            port=int(port),
        )
        self._raw.open()

    def finish_rename(self, target: str) -> None:
        """Send the new name and finish the rename."""
        with SMBFileTransaction(self._raw) as transaction:
            renamed = FileRenameInformation()
            renamed["replace_if_exists"] = False
            renamed["file_name"] = target.removeprefix("/data/").replace("/", "\\")
            set_info(transaction, renamed)

    def end(self) -> None:
        """Close the file, as the end of a killed run does."""
        self._raw.close()


def test_file_that_a_paused_run_can_still_rename_is_not_reported_deleted(
    fs: FsspecFileSystem, root: str, smb_server: SmbServer
) -> None:
    """Samba allows that rename and forgets the deletion. `delete` therefore checks whether the name is gone."""
    fs.put_if_absent(f"{root}/a", b"x")
    paused = Paused(smb_server.authority, f"{root}/a")
    with pytest.raises(OSError, match="busy"):
        fs.delete(f"{root}/a")
    paused.finish_rename(f"{root}/b")
    paused.end()
    assert [entry.name for entry in fs.list_folder(root)] == ["b"]
    paused = Paused(smb_server.authority, f"{root}/b")
    with pytest.raises(OSError, match="busy"):
        fs.delete(f"{root}/b")
    paused.end()
    assert fs.list_folder(root) == []


def test_sequence_is_not_abandoned_while_a_paused_run_can_publish_its_file(
    fs: FsspecFileSystem, root: str, smb_server: SmbServer
) -> None:
    (step,) = steps_of(fs, root, 1)
    fs.make_folder(f"{root}/output/folder")
    paused = Paused(smb_server.authority, step.source)
    with pytest.raises(TransientError, match="could not be removed"):
        step.withdraw()
    paused.finish_rename(step.target)
    paused.end()
    step.withdraw()
    step.undo()
    assert fs.status(step.source) is None
    assert fs.status(step.target) is None


def test_listings_are_correct_while_names_are_created_and_deleted(fs: FsspecFileSystem, root: str) -> None:
    fs.put_if_absent(f"{root}/stays", b"x")
    done = threading.Event()

    def create_and_delete(number: int) -> None:
        while not done.is_set():
            fs.put_if_absent(f"{root}/{number}", b"x")
            fs.delete(f"{root}/{number}")

    with ThreadPoolExecutor(2) as pool:
        coming = [pool.submit(create_and_delete, number) for number in range(2)]
        for _ in range(50):
            assert "stays" in {entry.name for entry in fs.list_folder(root)}
        done.set()
        for future in coming:
            future.result()
    assert [entry.name for entry in fs.list_folder(root)] == ["stays"]
