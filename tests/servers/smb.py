"""An SMB server: Samba's smbd, with one share in a temporary folder, for the user of this process."""

from __future__ import annotations

import contextlib
import getpass
import re
import shutil
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import fsspec.config
import pytest

from distcommit.core.support.install_command import install_command
from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_PASSWORD = "a-test's-password"
_SETTINGS = """
[global]
  server role = standalone server
  smb ports = {port}
  interfaces = 127.0.0.1
  bind interfaces only = yes
  disable netbios = yes
  load printers = no
  disable spoolss = yes
  passdb backend = tdbsam:{folder}/state/passdb.tdb
  private dir = {folder}/state
  state directory = {folder}/state
  cache directory = {folder}/state
  lock directory = {folder}/state
  pid directory = {folder}/state
  ncalrpc dir = {folder}/state/ncalrpc
  {names}
[data]
  path = {folder}/data
  read only = no
  strict sync = yes
"""
_NAMES_AS_THEY_ARE = "case sensitive = yes\n  mangled names = no"


def renaming_request(name: str) -> bytes:
    """Return a regular expression for the request that renames a file to a path that contains this one."""
    return rb"\xfeSMB.{8}\x11\x00.*" + re.escape(name.encode("utf-16-le"))


class SmbServer(Server):
    """SMB server for the user of this process, with a password of its own.

    Args:
        as_installed: whether Samba keeps its default name handling: names are not case-sensitive, and names that
            Windows does not allow are replaced.
    """

    def __init__(self, *, as_installed: bool = False) -> None:
        super().__init__()
        self._names = "" if as_installed else _NAMES_AS_THEY_ARE

    @property
    def authority(self) -> str:
        """Return host and port."""
        return f"127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for fsspec."""
        return {"FSSPEC_SMB_USERNAME": getpass.getuser(), "FSSPEC_SMB_PASSWORD": _PASSWORD}

    def log_in(self, patch: pytest.MonkeyPatch) -> None:
        """Let this process, in which fsspec has already read its environment, and its children connect."""
        for name, value in self.environment.items():
            patch.setenv(name, value)
        patch.setitem(fsspec.config.conf, "smb", {"username": getpass.getuser(), "password": _PASSWORD})

    def restart(self) -> None:
        """Kill all processes of the server by SIGKILL, and start it again on its port and folder."""
        self._kill()
        with contextlib.suppress(OSError):
            while self._answers():  # a process that is being killed may still listen
                time.sleep(0.01)
        self._launch()

    def _start(self, stack: contextlib.ExitStack) -> None:
        smbd, pdbedit = (shutil.which(name) for name in ("smbd", "pdbedit"))
        try:
            import smbclient
        except ImportError as error:
            reason = f"the SMB server needs its client ({error}); run: {install_command('dev')}"
            raise ServerUnavailableError(reason) from None
        if smbd is None or pdbedit is None:
            raise ServerUnavailableError(
                "the SMB server is Samba's smbd, which is not on PATH (Debian: apt-get install samba, in /usr/sbin)"
            )
        self._smbd = smbd
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smb-")))
        self.port = free_ports(1)[0]
        for name in ("state", "data"):
            (self._folder / name).mkdir()
        text = _SETTINGS.format(port=self.port, folder=self._folder, names=self._names)
        (self._folder / "smb.conf").write_text(text)
        command = [pdbedit, "-s", str(self._folder / "smb.conf"), "-a", "-t", "-u", getpass.getuser()]
        registration = subprocess.run(command, input=f"{_PASSWORD}\n" * 2, capture_output=True, text=True, check=False)
        if registration.returncode:
            raise ServerUnavailableError(f"pdbedit can't make a user: {registration.stderr or registration.stdout}")
        self._launch()
        stack.callback(self._kill)
        stack.callback(partial(smbclient.reset_connection_cache, fail_on_error=False))

    def _kill(self) -> None:
        self._process.kill()

    def _launch(self) -> None:
        command = [self._smbd, "--foreground", "--no-process-group", "--debug-stdout"]
        configuration = ["--configfile", str(self._folder / "smb.conf")]
        self._process = ServerProcess("smbd", [*command, *configuration], self._folder / "log")
        self._process.wait_until(self._answers)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
