"""A server with a certificate of any kind that asks its clients for their secrets, and records what they send.

It speaks as much of each protocol as a client needs before it sends its password. Tests require that a client which
must verify the certificate sends no secret. As a control, a client without verification must send it.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

Protocol = Callable[["Conversation"], None]
_SILENCE_S = 5.0


class Authority:
    """A certificate authority. `file` holds its certificate, for clients that trust it.

    Args:
        folder: for its files.
        name: of its files.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = generate_private_key(SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} authority")])
        builder = _builder(self._subject, self._subject, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self.file = folder / f"{name}.ca.pem"
        self.file.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def certificate(self, *hosts: str) -> Path:
        """Return a file with a certificate for these hosts, and its key."""
        key, path = generate_private_key(SECP256R1()), self._folder / f"{self._name}.{hosts[0]}.pem"
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        builder = _builder(subject, self._subject, key)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(of_authority, critical=False)
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            + builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        )
        return path


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now, day = datetime.now(UTC), timedelta(days=1)
    return x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)


@dataclass
class Impostor:
    """A running server. `received`: all bytes from clients, outside of TLS and inside."""

    port: int
    received: bytearray = field(default_factory=bytearray)
    connections: int = 0


class Conversation:
    """One connection of a client."""

    def __init__(self, server: Impostor, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        self._server, self._connection, self._context = server, connection, context

    @property
    def has_tls(self) -> bool:
        """Return whether the server offers TLS."""
        return self._context is not None

    def receive(self, size: int = 1 << 16) -> bytes:
        """Return the next bytes from the client; empty if it has gone."""
        got = self._connection.recv(size)
        self._server.received += got
        return got

    def send(self, data: bytes) -> None:
        """Send an answer."""
        self._connection.sendall(data)

    def start_tls(self) -> None:
        """Switch to TLS, if the server has it."""
        if self._context is not None:
            self._connection = self._context.wrap_socket(self._connection, server_side=True)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def impostor(protocol: Protocol, certificate: Path | None) -> Iterator[Impostor]:
    """Serve on all addresses of this machine, without TLS if there is no certificate."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listening = socket.create_server(("0.0.0.0", 0))
    server = Impostor(listening.getsockname()[1])
    serving: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        connection.settimeout(_SILENCE_S)
        conversation = Conversation(server, connection, context)
        with suppress(OSError, struct.error, IndexError):
            protocol(conversation)
        conversation.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            server.connections += 1
            serving.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            serving[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for thread in serving:
            thread.join(_SILENCE_S)


def http(talk: Conversation) -> None:
    """Speak HTTPS: take one request and refuse it."""
    talk.start_tls()
    head = b""
    while b"\r\n\r\n" not in head and (got := talk.receive()):
        head += got
    talk.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def smtp(talk: Conversation) -> None:
    """Speak SMTP with STARTTLS, and take a password."""
    talk.send(b"220 here\r\n")
    while got := talk.receive():
        if got.upper().startswith(b"EHLO"):
            talk.send(b"250-here\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN\r\n")
        elif got.upper().startswith(b"STARTTLS"):
            talk.send(b"220 go\r\n")
            talk.start_tls()
        elif got.upper().startswith(b"AUTH"):
            talk.send(b"535 no\r\n")
        else:
            talk.send(b"221 bye\r\n")


def smtps(talk: Conversation) -> None:
    """Speak SMTP over TLS from the first byte on."""
    talk.start_tls()
    smtp(talk)


def mysql(talk: Conversation) -> None:
    """Speak MySQL's protocol, and ask for the password in clear text."""
    capabilities = 0x0000_0001 | 0x0000_0008 | 0x0000_0200 | 0x0000_8000 | 0x0008_0000  # with plugins of authentication
    capabilities |= 0x0000_0800 if talk.has_tls else 0
    native = b"mysql_native_password\0"
    greeting = b"\x0a8.0.40\0" + struct.pack("<I", 1) + b"saltsalt\0" + struct.pack("<H", capabilities & 0xFFFF)
    greeting += struct.pack("<BHH", 45, 2, capabilities >> 16) + bytes([21]) + bytes(10) + b"saltsaltsalt\0" + native
    talk.send(_mysql_packet(0, greeting))
    asked = talk.receive(36)
    if asked[0] == 32 and talk.has_tls:  # the request for TLS
        talk.start_tls()
        asked = talk.receive(36)
    talk.receive()
    talk.send(_mysql_packet(asked[3] + 1, b"\xfemysql_clear_password\0"))
    talk.receive()


def _mysql_packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def postgresql(talk: Conversation) -> None:
    """Speak PostgreSQL's protocol, and ask for the password in clear text."""
    begun = talk.receive(8)
    while begun[4:8] in (struct.pack(">I", 80877103), struct.pack(">I", 80877104)):  # TLS, GSSAPI
        if begun[4:8] == struct.pack(">I", 80877103) and talk.has_tls:
            talk.send(b"S")
            talk.start_tls()
        else:
            talk.send(b"N")
        begun = talk.receive(8)
    talk.receive()
    talk.send(b"R" + struct.pack(">II", 8, 3))
    talk.receive()


def kafka(talk: Conversation) -> None:
    """Switch to TLS, and take one request: the next one would have the password."""
    talk.start_tls()
    talk.receive()
