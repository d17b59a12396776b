"""A PostgreSQL server, with one database in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_DEBIAN = Path("/usr/lib/postgresql")
_NOBODY = "postgres"
_TRIES = 20
_USER, _PASSWORD = "reader", "a-test's-p@ssword"
_SETTINGS = ("listen_addresses=127.0.0.1", "fsync=off", "log_min_messages=warning", "timezone=America/New_York")


class PostgresServer(Server):
    """PostgreSQL server with one user and password.

    As root it runs as Debian's user `postgres`, since PostgreSQL refuses root. `settings`: more server settings, as
    `name=value`.
    """

    password = _PASSWORD

    def __init__(self, *settings: str) -> None:
        super().__init__()
        self._more = settings

    @property
    def url(self) -> str:
        """Return the URL of the database, without the password."""
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres"

    def connect(self) -> psycopg.Connection:
        """Return a connection in autocommit mode unless set otherwise."""
        where = {"host": "127.0.0.1", "port": self.port, "user": _USER, "password": _PASSWORD, "dbname": "postgres"}
        return psycopg.connect(**where, autocommit=True)  # type: ignore[arg-type]

    def kill(self) -> None:
        """Kill the server and its connection processes, which are not a process group, by SIGKILL."""
        self._process.kill()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cwd").readlink() == self.folder / "data":
                    os.kill(int(process.name), signal.SIGKILL)

    def restart(self) -> None:
        """Kill the server, and start it again on its port and folder once all its processes are gone."""
        self.kill()
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)  # its process may be left as a zombie
        for _ in range(_TRIES - 1):
            try:
                return self._launch()
            except ServerUnavailableError:
                self.kill()
                time.sleep(0.2)
        return self._launch()

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._programs = _programs()
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postgres-")))
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            if shutil.which("setpriv") is None or not _has_user():
                raise ServerUnavailableError("PostgreSQL refuses root, and setpriv or the user postgres is missing")
            self._as_user = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
            shutil.chown(self.folder, _NOBODY, _NOBODY)
        self.port = free_ports(1)[0]
        secret = self.folder / "password"
        secret.write_text(_PASSWORD)
        secret.chmod(0o644)
        options = ["--auth=scram-sha-256", f"--username={_USER}", f"--pwfile={secret}", "--encoding=UTF8", "--no-sync"]
        command = [*self._as_user, str(self._programs / "initdb"), *options, "--locale=C.UTF-8"]
        installation = subprocess.run(
            [*command, str(self.folder / "data")], capture_output=True, text=True, check=False
        )
        if installation.returncode:
            raise ServerUnavailableError(f"initdb can't make a database: {installation.stderr or installation.stdout}")
        self._launch()
        stack.callback(self.kill)

    def _launch(self) -> None:
        settings = [part for setting in (*_SETTINGS, *self._more) for part in ("-c", setting)]
        folders = ["-D", str(self.folder / "data"), "-k", str(self.folder), "-p", str(self.port)]
        command = [*self._as_user, str(self._programs / "postgres"), *folders, *settings]
        self._process = ServerProcess("postgres", command, self.folder / "log")
        self._process.wait_until(self._answers)

    def _answers(self) -> bool:
        with self.connect():
            return True


def _programs() -> Path:
    """Return the folder of the programs of the newest server that Debian's `pg_ctlcluster` starts, or of those on PATH.

    Raises:
        ServerUnavailableError: if there are none.
    """
    if shutil.which("pg_ctlcluster"):  # Debian has the servers' own programs in folders that are not on PATH
        programs = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
        if programs:
            return programs[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise ServerUnavailableError(
            "neither initdb of PostgreSQL nor pg_ctlcluster is on PATH (Debian: apt-get install postgresql)"
        )
    return Path(on_path).resolve().parent


def _has_user() -> bool:
    try:
        pwd.getpwnam(_NOBODY)
    except KeyError:
        return False
    return True
