"""No client sends its secret to a server with a wrong certificate: each client against each kind of wrong
certificate."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from distcommit.app.job_file.sections.alert_settings import EmailHook, WebHook
from distcommit.app.running.alert_delivery import Alert, send_alert
from distcommit.constructs.registry.registry_client import Registry, RegistrySettings
from distcommit.core.errors import DistcommitError, SourceError
from distcommit.core.interfaces.committer import CommitterContext
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.fs.object_stores.s3_requests import S3Requests
from distcommit.sinks.mariadb.sink import MariadbSink
from distcommit.sinks.postgresql.sink import PostgresqlSink
from distcommit.sources.kafka.client import ClientLog, KafkaConnection
from distcommit.sources.rest.client import RestClient
from distcommit.sources.rest.paging import Request
from distcommit.sources.sql.source import SqlSource
from tests.servers import impostor as speaking
from tests.servers.impostor import Authority, Impostor, Protocol, impostor

SECRET = "hunter2-hunter2-hunter2"
REMOTE, LOCAL = "0.0.0.0", "localhost"
NOWHERE = CommitterContext(LocalFileSystem(), "", "", "store")
ALERT = Alert("j", "quarantine", "t", 1, "r", "FAILED", "x", 1, [], 0, "h", "s", [])


@dataclass(frozen=True)
class Client:
    """Client of the product.

    `host`: the host that it is configured with. `connect`: connects there and sends the secret; it trusts the given
    authority file, which this machine trusts too.
    """

    protocol: Protocol
    host: str
    connect: Callable[[str, Path], object]


def mariadb(options: str = "", scheme: str = "mariadb", **settings: str) -> Callable[[str, Path], object]:
    def connect(place: str, trusted: Path) -> object:
        url = f"{scheme}://loader@{place}/shop{options.format(ca=trusted)}"
        section = {"type": "mariadb", "url": url, "password": SECRET, **settings}
        return MariadbSink.model_validate(section).open_committer(NOWHERE)

    return connect


def postgresql(options: str = "", **settings: str) -> Callable[[str, Path], object]:
    def connect(place: str, trusted: Path) -> object:
        url = f"postgresql://loader@{place}/shop{options.format(ca=trusted)}"
        section = {"type": "postgresql", "url": url, "password": SECRET, **settings}
        return PostgresqlSink.model_validate(section).open_committer(NOWHERE)

    return connect


def sql_source(scheme: str, options: str = "", **settings: str) -> Callable[[str, Path], object]:
    def connect(place: str, trusted: Path) -> object:
        url = f"{scheme}://loader@{place}/shop{options.format(ca=trusted)}"
        rules = {"tables": ["t"], "watermark": "id", "lookback": 0, "password": SECRET}
        database = SqlSource.model_validate({"type": "sql", "url": url, **rules, **settings})._database()
        with closing(database), database.reading() as connection:
            return connection.exec_driver_sql("SELECT 1")

    return connect


def kafka(place: str, trusted: Path) -> object:
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "loader",
        "sasl.password": SECRET,
        "ssl.ca.location": str(trusted),
    }
    connection = KafkaConnection(place, client, 1)
    notes = ClientLog(connection)
    return connection.metadata(connection.admin(notes), notes, SourceError)


def registry(place: str, trusted: Path) -> object:
    client = {"basic.auth.user.info": f"loader:{SECRET}", "ssl.ca.location": str(trusted), "max.retries": 0.0}
    settings = RegistrySettings.model_validate({"url": f"https://{place}", "client": client})
    return Registry(settings).schema(1)


def rest(place: str, trusted: Path) -> object:
    with closing(RestClient({"Authorization": f"Bearer {SECRET}"}, None, 5, 60, 0)) as client:
        return client.get(Request(url=f"https://{place}/list"), "orders")


def s3(place: str, trusted: Path) -> object:
    options = {"endpoint_url": f"https://{place}", "region_name": "us-east-1", "aws_access_key_id": SECRET}
    return S3Requests("bucket", (*options.items(), ("aws_secret_access_key", "x" * 20))).head("key")


def web_hook(place: str, trusted: Path) -> object:
    return send_alert([WebHook(url=f"https://{place}/{SECRET}", headers={"X-Key": SECRET})], ALERT)


def mail(tls: str) -> Callable[[str, Path], object]:
    def connect(place: str, trusted: Path) -> object:
        host, _, port = place.partition(":")
        hook = {"host": host, "port": port, "tls": tls, "username": "loader", "password": SECRET}
        return send_alert([EmailHook.model_validate({**hook, "sender": "a@b.org", "recipients": ["c@b.org"]})], ALERT)

    return connect


CLIENTS: Mapping[str, Client] = {
    "mariadb, no option": Client(speaking.mysql, REMOTE, mariadb()),
    "mariadb, ssl_ca": Client(speaking.mysql, REMOTE, mariadb("?ssl_ca={ca}")),
    "mariadb, ssl_ca, this machine": Client(speaking.mysql, LOCAL, mariadb("?ssl_ca={ca}")),
    "mariadb, ssl_verify_identity=on": Client(speaking.mysql, LOCAL, mariadb("?ssl_ca={ca}&ssl_verify_identity=on")),
    "mariadb, ssl_verify_cert=true": Client(speaking.mysql, LOCAL, mariadb("?ssl_ca={ca}&ssl_verify_cert=true")),
    "mysql, no option": Client(speaking.mysql, REMOTE, mariadb(scheme="mysql")),
    "source of mysql, no option": Client(speaking.mysql, REMOTE, sql_source("mysql")),
    "source of mysql, ssl_ca": Client(speaking.mysql, LOCAL, sql_source("mysql", "?ssl_ca={ca}")),
    "source of mysql, ssl_verify_identity=true": Client(
        speaking.mysql, LOCAL, sql_source("mysql", "?ssl_ca={ca}&ssl_verify_identity=true")
    ),
    "postgresql, no option": Client(speaking.postgresql, REMOTE, postgresql()),
    "postgresql, sslrootcert": Client(speaking.postgresql, LOCAL, postgresql("?sslrootcert={ca}")),
    "postgresql, verify-full": Client(speaking.postgresql, LOCAL, postgresql("?sslmode=verify-full&sslrootcert={ca}")),
    "source of postgresql, no option": Client(speaking.postgresql, REMOTE, sql_source("postgresql")),
    "source of postgresql, sslrootcert": Client(
        speaking.postgresql, LOCAL, sql_source("postgresql", "?sslrootcert={ca}")
    ),
    "kafka": Client(speaking.kafka, LOCAL, kafka),
    "registry": Client(speaking.http, LOCAL, registry),
    "rest": Client(speaking.http, LOCAL, rest),
    "s3": Client(speaking.http, LOCAL, s3),
    "web hook": Client(speaking.http, LOCAL, web_hook),
    "smtp with starttls": Client(speaking.smtp, LOCAL, mail("starttls")),
    "smtp over tls": Client(speaking.smtps, LOCAL, mail("tls")),
}
WITHOUT_TLS = [name for name in CLIENTS if CLIENTS[name].protocol in (speaking.mysql, speaking.postgresql)]
INSECURE: Mapping[str, Client] = {
    "mariadb": Client(speaking.mysql, REMOTE, mariadb(tls="insecure")),
    "source of mysql": Client(speaking.mysql, REMOTE, sql_source("mysql", tls="insecure")),
    "postgresql": Client(speaking.postgresql, REMOTE, postgresql(tls="insecure")),
    "postgresql, require": Client(speaking.postgresql, REMOTE, postgresql("?sslmode=require", tls="insecure")),
    "source of postgresql": Client(speaking.postgresql, REMOTE, sql_source("postgresql", tls="insecure")),
}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    """Return the authority that clients trust, and a foreign one."""
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder, "trusted"), Authority(folder, "stranger")


@pytest.fixture(autouse=True)
def _trusted_here(authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine trust the first authority, for clients that use the system's trust store."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(authorities[0].file))


def received(client: Client, certificate: Path | None, trusted: Path) -> Impostor:
    with impostor(client.protocol, certificate) as server, suppress(DistcommitError, OSError, Exception):
        client.connect(f"{client.host}:{server.port}", trusted)
    return server


def has_secret(client: Client, server: Impostor) -> bool:
    """Return whether the server received the secret; of Kafka, any request over TLS, as the secret is in the third."""
    got = bytes(server.received)
    encoded = [b64encode(prefix + SECRET.encode()) for prefix in (b"loader:", b"\0loader\0", b"")]
    return any(text in got for text in (SECRET.encode(), *encoded)) or (bool(got) and client.protocol is speaking.kafka)


@pytest.mark.parametrize("name", CLIENTS)
class TestServers:
    def test_a_certificate_of_another_host_gets_no_secret(
        self, name: str, authorities: tuple[Authority, Authority]
    ) -> None:
        trusted, _ = authorities
        server = received(CLIENTS[name], trusted.certificate("elsewhere.example"), trusted.file)
        assert server.connections
        assert not has_secret(CLIENTS[name], server)

    def test_a_certificate_of_an_unknown_authority_gets_no_secret(
        self, name: str, authorities: tuple[Authority, Authority]
    ) -> None:
        trusted, stranger = authorities
        server = received(CLIENTS[name], stranger.certificate(LOCAL, REMOTE), trusted.file)
        assert server.connections
        assert not has_secret(CLIENTS[name], server)

    def test_the_right_certificate_gets_the_secret(self, name: str, authorities: tuple[Authority, Authority]) -> None:
        trusted, _ = authorities
        server = received(CLIENTS[name], trusted.certificate(LOCAL, REMOTE), trusted.file)
        assert has_secret(CLIENTS[name], server)


@pytest.mark.parametrize("name", WITHOUT_TLS)
def test_a_database_server_without_tls_gets_no_secret(name: str, authorities: tuple[Authority, Authority]) -> None:
    server = received(CLIENTS[name], None, authorities[0].file)
    assert server.connections
    assert not has_secret(CLIENTS[name], server)


@pytest.mark.parametrize("name", INSECURE)
def test_tls_insecure_accepts_any_certificate(name: str, authorities: tuple[Authority, Authority]) -> None:
    trusted, stranger = authorities
    server = received(INSECURE[name], stranger.certificate("elsewhere.example"), trusted.file)
    assert has_secret(INSECURE[name], server)
