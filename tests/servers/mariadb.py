"""A MariaDB server, with one database in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pymysql
from pymysql.cursors import Cursor

from tests.servers.process import Server, ServerProcess, ServerUnavailableError, free_ports

_TRIES = 20
_DATABASE, _USER, _PASSWORD = "shop", "reader", "a-test's-p@ssword"
_SETTINGS = (
    "--bind-address=127.0.0.1",
    "--default-time-zone=-05:00",
    "--character-set-server=utf8mb4",
    "--skip-log-bin",
    "--innodb-flush-method=nosync",
    "--skip-sync-frm",
    "--innodb-buffer-pool-size=32M",
    "--performance-schema=off",
)


class MariadbServer(Server):
    """MariaDB server with one user and password, who has all rights on any database. `settings`: more server
    options."""

    password = _PASSWORD

    def __init__(self, *settings: str) -> None:
        super().__init__()
        self._more = settings

    @property
    def url(self) -> str:
        """Return the URL of the database `shop`, without the password."""
        return f"mysql://{_USER}@127.0.0.1:{self.port}/{_DATABASE}"

    def connect(self, database: str = _DATABASE) -> pymysql.Connection[Cursor]:
        """Return a connection in autocommit mode unless set otherwise; its times are UTC."""
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=_USER,
            password=_PASSWORD,
            database=database,
            autocommit=True,
            ssl_disabled=True,  # the needed imports take longer than all else
            init_command="SET time_zone = '+00:00'",
        )

    def kill(self) -> None:
        """Kill the server by SIGKILL."""
        self._process.kill()

    def restart(self) -> None:
        """Kill the server, and start it again on its port and folder."""
        self.kill()
        for _ in range(_TRIES - 1):
            try:
                return self._launch()
            except ServerUnavailableError:  # the killed process still holds its files
                time.sleep(0.2)
        return self._launch()

    def _start(self, stack: contextlib.ExitStack) -> None:
        server, installer = shutil.which("mariadbd"), shutil.which("mariadb-install-db")
        if server is None or installer is None:
            raise ServerUnavailableError(
                "MariaDB's mariadbd and mariadb-install-db are not on PATH (Debian: apt-get install mariadb-server)"
            )
        self._program = server
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mariadb-")))
        self.port = free_ports(1)[0]
        self._as_user = ["--user=root"] if os.geteuid() == 0 else []
        options = ["--no-defaults", f"--datadir={self._folder / 'data'}", "--auth-root-authentication-method=normal"]
        command = [installer, *options, *self._as_user, "--skip-test-db"]
        installation = subprocess.run(command, capture_output=True, text=True, check=False)
        if installation.returncode:
            raise ServerUnavailableError(
                f"mariadb-install-db can't make a database: {installation.stderr or installation.stdout}"
            )
        (self._folder / "init.sql").write_text(
            f"CREATE DATABASE IF NOT EXISTS {_DATABASE};\n"
            f'CREATE USER IF NOT EXISTS {_USER}@127.0.0.1 IDENTIFIED BY "{_PASSWORD}";\n'
            f"GRANT ALL ON *.* TO {_USER}@127.0.0.1 WITH GRANT OPTION;\n"
        )
        stack.callback(self.kill)
        self._launch()

    def _launch(self) -> None:
        files = {"datadir": "data", "socket": "socket", "pid-file": "pid", "init-file": "init.sql"}
        folders = [f"--{name}={self._folder / file}" for name, file in files.items()]
        where = [*folders, f"--port={self.port}"]
        command = [self._program, "--no-defaults", *where, *_SETTINGS, *self._more, *self._as_user]
        self._process = ServerProcess("mariadbd", command, self._folder / "log")
        self._process.wait_until(self._answers)

    def _answers(self) -> bool:
        with self.connect():
            return True


def prepared_at(server: MariadbServer) -> list[tuple[str, str]]:
    """Return the prepared transactions by the two parts of their ids."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("XA RECOVER")
        prepared = [(begin, data.decode()) for _, begin, _, data in cursor.fetchall()]
        return [(data[:begin], data[begin:]) for begin, data in prepared]


def roll_back(server: MariadbServer, begin: str, end: str) -> None:
    """Roll back a transaction prepared by a session that has ended, or is about to."""
    for _ in range(_TRIES * 10):
        with server.connect() as connection, connection.cursor() as cursor:
            try:
                cursor.execute("XA ROLLBACK %s, %s", (begin, end))
            except pymysql.err.MySQLError:
                if (begin, end) not in prepared_at(server):
                    raise
                time.sleep(0.02)
            else:
                return
    raise TimeoutError(f"{begin} {end} is prepared by a session that does not end")
