"""TLS settings and time limits of database connections.

Certificate and host name are verified if the server is remote or the URL has a TLS option, unless `tls: insecure`.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlencode, urlsplit

from distcommit.core.support.settings_model import SettingError

Tls = Literal["verify", "insecure"]

CONNECT_TIMEOUT_S = 10
LIBPQ_TIME_LIMITS: Mapping[str, int] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Options of libpq that detect an unresponsive server within a minute."""

_FILES = ("ssl_ca", "ssl_cert", "ssl_key")
_SWITCHES = ("ssl_verify_cert", "ssl_verify_identity")
_DRIVER = ("charset", "connect_timeout", "read_timeout", "unix_socket", "write_timeout")
MYSQL_OPTIONS = (*_FILES, *_SWITCHES, *_DRIVER)
_MOST_SECONDS = 31_536_000  # the limit of pymysql
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_ON, _OFF = ("1", "on", "true", "yes"), ("0", "off", "false", "no")
_PORT = re.compile(r":\d*$")


def is_remote(host: str) -> bool:
    """Return whether a host may be another machine; an empty name or a path is a Unix socket."""
    name = host.strip("[]").lower()
    if not name or name.startswith(("/", "@")) or name == "localhost":
        return False
    try:
        return not ip_address(name).is_loopback
    except ValueError:
        return True


def check_no_password(url: str, section: str) -> None:
    """Raise SettingError if a URL has a password, or an option other than `passfile` with `pass` in its name. The
    remedy names `section` of the job file."""
    parts = urlsplit(url)
    names = parse_qs(parts.query).keys() - {"passfile"}
    if parts.password is not None or any("pass" in name.lower() for name in names):
        raise SettingError("must not contain a password", remedy=f"set {section}.password instead")


def check_url_options(url: str, tls: Tls) -> None:
    """Check the options of a MariaDB, MySQL or PostgreSQL URL. Accept URLs of other schemes unchecked.

    Raises:
        ValueError: if an option or its value is unknown, or contradicts `tls`.
    """
    match urlsplit(url).scheme:
        case "mysql" | "mariadb":
            check_mysql_url(url, tls)
        case "postgresql":
            check_postgresql_url(url, tls)


def check_mysql_url(url: str, tls: Tls) -> None:
    """Check the options of a MariaDB or MySQL URL, and their values for time limits and TLS.

    Raises:
        ValueError: if an option is unknown, invalid or repeated, or contradicts `tls`.
    """
    options = _options(urlsplit(url), MYSQL_OPTIONS)
    for name, value in options.items():
        is_seconds = value.isascii() and value.isdecimal() and 0 < int(value) <= _MOST_SECONDS
        if name.endswith("_timeout") and not is_seconds:
            raise ValueError(f"option {name} must be a number of seconds from 1 to {_MOST_SECONDS}, but is {value!r}")
    for name in _SWITCHES:
        value = options.get(name, "").lower()
        if name in options and value not in _ON + _OFF:
            raise ValueError(f"option {name} must be true or false, but is {options[name]!r}")
        if value in _OFF and tls == "verify":
            raise ValueError(f"option {name} must not be false; set tls: insecure to accept any certificate")
        if value in _ON and tls == "insecure":
            raise ValueError(f"option {name} contradicts tls: insecure; remove one of them")
    if tls == "insecure" and "ssl_ca" in options:
        raise ValueError("option ssl_ca contradicts tls: insecure; remove one of them")
    if empty := [name for name in _FILES if options.get(name) == ""]:
        raise ValueError(f"option {empty[0]} must name a file")
    if "ssl_key" in options and "ssl_cert" not in options:
        raise ValueError("option ssl_key must be set together with ssl_cert")


def mysql_arguments(url: str, tls: Tls) -> dict[str, Any]:
    """Return pymysql's arguments for a checked URL. Reads the certificate files."""
    parts = urlsplit(url)
    options = _options(parts, MYSQL_OPTIONS)
    supplied = {name: value for name, value in options.items() if name in _DRIVER}
    arguments: dict[str, Any] = {n: int(v) if n.endswith("_timeout") else v for n, v in supplied.items()}
    has_options = any(name.startswith("ssl_") for name in options)
    if tls == "insecure" and "ssl_cert" not in options:
        return arguments  # pymysql encrypts without verifying if the server offers it
    if has_options or (is_remote(parts.hostname or "") and "unix_socket" not in options):
        arguments["ssl"] = _context(options, tls)
    return arguments


def check_postgresql_url(url: str, tls: Tls) -> None:
    """Check the TLS options of a PostgreSQL URL. libpq checks the others when it connects.

    Raises:
        ValueError: if `sslmode` is unknown or contradicts `tls`, or a TLS option is repeated.
    """
    options = _options(urlsplit(url))
    mode = options.get("sslmode")
    if mode is None:
        return
    if mode not in _SSL_MODES:
        raise ValueError(f"option sslmode must be one of {', '.join(_SSL_MODES)}, but is {mode!r}")
    if tls == "verify" and mode != "verify-full":
        raise ValueError(
            f"option sslmode={mode} does not verify certificate and host name; set it to verify-full, or set"
            " tls: insecure to accept that"
        )
    if tls == "insecure" and mode == "verify-full":
        raise ValueError("option sslmode=verify-full contradicts tls: insecure; remove one of them")


def postgresql_arguments(url: str, tls: Tls, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the TLS arguments that libpq needs in addition to a checked URL."""
    parts = urlsplit(url)
    options = _options(parts)
    has_options = any(name.startswith("ssl") for name in options)
    if tls == "insecure" or not (has_options or _is_remote_postgresql(parts, options, environment)):
        return {}
    arguments = {"sslmode": "verify-full"}
    usual = Path.home() / ".postgresql" / "root.crt"
    if "sslrootcert" not in options and not environment.get("PGSSLROOTCERT") and not usual.exists():
        arguments["sslrootcert"] = ssl.get_default_verify_paths().cafile or "system"
    return arguments


def uri_with_tls(uri: str, tls: Tls) -> str:
    """Add `postgresql_arguments` to a URI."""
    parts, arguments = urlsplit(uri), postgresql_arguments(uri, tls)
    options = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in arguments]
    return parts._replace(query=urlencode([*options, *arguments.items()], safe="/")).geturl()


def _is_remote_postgresql(parts: SplitResult, options: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Return whether a host may be remote, by URL and variables; True with a service file. PGHOSTADDR overrides the
    URL's host."""
    hosts = [_PORT.sub("", unquote(host)) for host in parts.netloc.rpartition("@")[2].split(",")]
    hosts += [_PORT.sub("", host) for host in options.get("host", "").split(",")]
    addresses = options.get("hostaddr") or environment.get("PGHOSTADDR", "")
    hosts += addresses.split(",")
    if not any(hosts):
        hosts = environment.get("PGHOST", "").split(",")
    return "service" in options or bool(environment.get("PGSERVICE")) or any(map(is_remote, hosts))


def _options(parts: SplitResult, existing: tuple[str, ...] = ()) -> dict[str, str]:
    """Return a URL's options. Values of a repeated option are joined by commas. Raises ValueError if a TLS option
    repeats; with `existing`, if any option repeats or is not in it."""
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if existing and name not in existing:
            raise ValueError(f"option {name!r} is unknown; it must be one of {', '.join(sorted(existing))}")
        if name in options and (existing or name.startswith("ssl")):
            raise ValueError(f"option {name} must not be repeated")
        options[name] = f"{options[name]},{value}" if name in options else value
    return options


def _context(options: Mapping[str, str], tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # certificates that MySQL makes lack extensions
    if tls == "insecure":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if "ssl_cert" in options:
        context.load_cert_chain(options["ssl_cert"], options.get("ssl_key"))
    return context
