"""Base class of the settings of sinks that write to a database server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.committer import CommitterContext, releasing
from distcommit.core.interfaces.sink import Abilities, AttemptIdentity, Origin, SinkWriter, StagingArea
from distcommit.core.support.settings_model import SettingError, checks, errors_of, rule
from distcommit.fs.database_credentials import checking_credentials
from distcommit.fs.database_tls import Tls, check_no_password, check_url_options
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.secret_files import check_secret_files, with_secret_files
from distcommit.sinks.base.target_connections import committing_by, needing_client
from distcommit.sinks.databases.connection_pool import Address, Client, Lease, lease
from distcommit.sinks.databases.table_committer import TableCommitter
from distcommit.sinks.databases.table_sink import TableSink
from distcommit.sinks.databases.two_phase_commit.prepared_row_writer import PreparedRows
from distcommit.sinks.databases.two_phase_commit.prepared_transactions import TwoPhaseCommitter

LOCK_TIMEOUT_S = 10
"""Longest wait of a statement for a lock, in seconds; a later call repeats the statement."""
IDLE_TIMEOUT_S = 60
"""Seconds without a statement after which the server ends a session and its locks."""


class ServerSink(TableSink):
    """Tables of a database server. The ledger is in the same database.

    Attributes:
        url: the database as `TYPE://USER@HOST:PORT/DATABASE`, with the driver's options behind `?`; without a password.
        password: the user's password. `${file:/path}` is replaced by the content of that file on each machine.
        tls: `verify` requires a valid certificate with the host's name from a remote server, and from any server if the
            URL has a TLS option. `insecure` accepts any certificate, and servers without TLS.
        two_phase: whether writers insert the rows in prepared transactions, which the commit only has to commit. Each
            work unit has its own transaction, so readers may see a part of a commit. Requires mode `append`.
        max_connections: the most connections that one process uses at a time. A Python worker of an executor uses one,
            or two with `two_phase`; an audit uses one.
    """

    schemes: ClassVar[tuple[str, ...]]
    requires_host: ClassVar[bool] = False
    """Whether the URL must name a host; otherwise the driver has a default."""

    url: str
    password: SecretStr = Field(default=SecretStr(""))
    tls: Tls = "verify"
    two_phase: bool = False
    max_connections: int = Field(default=32, ge=2)

    @checks("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        check_no_password(url, "sink")
        if parts.port == 0 or not parts.path.strip("/"):
            raise SettingError("must name a database, as TYPE://USER@HOST:PORT/DATABASE")
        if parts.scheme not in cls.schemes or (cls.requires_host and not parts.hostname):
            raise SettingError(f"must begin with {' or '.join(f'{scheme}://' for scheme in cls.schemes)} and a host")
        return url

    _check_files = field_validator("password")(check_secret_files)

    @rule
    def _url_options_are_valid(self) -> Iterator[SettingError]:
        yield from errors_of(partial(check_url_options, self.url, self.tls), "url")

    @rule
    def _can_be_prepared(self) -> Iterator[SettingError]:
        if self.two_phase and self.mode != "append":
            yield SettingError(
                f"must not be true with mode: {self.mode}, because a prepared transaction holds locks until it is"
                " committed: work units that change the same rows would wait for each other",
                "two_phase",
            )
        if self.two_phase and self.evolve != "none":
            yield SettingError(
                "must be none with two_phase: true, because a table cannot be altered while a transaction is prepared",
                "evolve",
            )

    @property
    def server(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def password_text(self) -> str:
        return with_secret_files(self.password.get_secret_value())

    @property
    def name(self) -> str:
        return self.name_of(f"{self.type}-two-phase:{self.table}") if self.two_phase else super().name

    @property
    def writes_to(self) -> str:
        return f"tables {self.table} of {self.url}"

    @property
    def abilities(self) -> Abilities:
        return Abilities(audit=True, atomic=not self.two_phase)

    @property
    def prepares_at_target(self) -> bool:
        return self.two_phase

    @property
    def leaves_in_doubt(self) -> bool:
        return self.two_phase

    def open_writer(self, attempt: AttemptIdentity, area: StagingArea, origin: Origin) -> SinkWriter:
        """Open a writer. With `two_phase`, announce the run, and raise ConfigurationError if the server can't prepare
        transactions or the attempt has no `store_id`, and FencedError if a newer run writes."""
        if not self.two_phase:
            return super().open_writer(attempt, area, origin)
        if not attempt.store_id:
            raise ConfigurationError(
                "the attempt has no store_id, which two_phase requires",
                dataset=attempt.dataset_urn,
                attempt=attempt.attempt,
                todo="pass `store_id` to the task flow, or to the AttemptIdentity",
            )
        _begun(self, attempt.store_id, attempt.run_id, attempt.epoch)
        return PreparedRows(self.open_two_phase, attempt, area, origin, self.ledger_of(attempt), self.check_schema)

    @abstractmethod
    def driver(self) -> Driver: ...

    def open_committer(self, context: CommitterContext) -> TableCommitter:
        if self.two_phase:
            return self.open_two_phase(context)
        leased, create = self.lease(context), self._driver().committer
        return committing_by(leased, lambda leased: create(leased, self, context))

    def open_two_phase(self, context: CommitterContext) -> TwoPhaseCommitter:
        leased, create = self.lease(context), self._driver().two_phase
        return committing_by(leased, lambda leased: create(leased, self, context))

    def lease(self, context: CommitterContext) -> Lease:
        address = Address(self._driver().client, self.url, self.tls, self.max_connections)
        leased = lease(address, self.password_text)
        if leased.is_new:
            context.metrics.count("connections_opened")
        return leased

    def check_connection(self) -> str:
        driver = self._driver()
        with checking_credentials():
            connected = driver.client.connect(self.url, self.password_text, self.tls)
        with closing(connected) as connection:
            if self.two_phase and driver.require_prepared is not None:
                driver.require_prepared(connection)
            if not self.two_phase and driver.require_rights is not None:
                driver.require_rights(connection, self)
            return f"{self.server} accepts the user{self.version_warning}"

    def _driver(self) -> Driver:
        with needing_client(self.type):
            return self.driver()


class Driver(NamedTuple):
    """The parts of a sink that need the client library.

    Attributes:
        client: functions for connections.
        committer: opens a committer from lease, sink and context.
        two_phase: opens a committer of prepared transactions from lease, sink and context.
        require_prepared: raises ConfigurationError if the server does not allow prepared transactions; None if all do.
        require_rights: raises SinkUnavailableError if the user can't write the ledger; None if the server is not asked.
    """

    client: Client
    committer: Callable[[Lease, Any, CommitterContext], TableCommitter]
    two_phase: Callable[[Lease, Any, CommitterContext], TwoPhaseCommitter]
    require_prepared: Callable[[Any], None] | None = None
    require_rights: Callable[[Any, Any], None] | None = None


@lru_cache(maxsize=64)
def _begun(sink: ServerSink, store_id: str, run_id: str, epoch: int) -> None:
    with releasing(sink.open_two_phase(CommitterContext(LocalFileSystem(), "", "", store_id))) as preparing:
        preparing.begin(epoch)
