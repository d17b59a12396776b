"""Detection of database and Kafka errors that mean rejected credentials, not a stopped server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.core.errors import ConfigurationError, DistcommitError, plain_text

CREDENTIALS_REJECTED = "CREDENTIALS_REJECTED"
_REJECTED = re.compile(
    r"authentication failed|no password supplied|^\(1045,|FATAL: +role .* does not exist"
    r"|SASL authentication error|Unsupported SASL mechanism"
)
"""Error texts of PostgreSQL (SQLSTATE 28P01 and 28000), libpq, MariaDB and MySQL (code 1045), and librdkafka.
psycopg reports no SQLSTATE if it cannot connect."""


@contextmanager
def checking_credentials() -> Iterator[None]:
    """Raise ConfigurationError if the server rejects user or password. A job's check adds setting and remedy."""
    try:
        yield
    except Exception as error:
        text = plain_text(error.found if isinstance(error, DistcommitError) else error, 1000)
        if not _REJECTED.search(text):
            raise
        failure = "the server rejects the user or the password"
        raise ConfigurationError(failure, id=CREDENTIALS_REJECTED, found=text) from error
