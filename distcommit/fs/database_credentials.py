"""Errors of database clients that mean a wrong or missing password, and not a stopped server."""

from __future__ import annotations

import re

from distcommit.core.errors import ConfigurationError, plain_text

CREDENTIALS_REJECTED = "CREDENTIALS_REJECTED"
_REJECTED = re.compile(r"authentication failed|no password supplied|^\(1045,|FATAL: +role .* does not exist")
"""Texts of libpq for SQLSTATE 28P01 and 28000, of libpq itself, and of MariaDB's and MySQL's code 1045. A failed
connection of psycopg has no SQLSTATE."""


def rejected_credentials(error: object) -> ConfigurationError | None:
    """Return the error of a connection whose user or password the server rejected; None for any other error.

    The check of a job adds the setting and the remedy.
    """
    text = plain_text(error, 1000)
    if not _REJECTED.search(text):
        return None
    return ConfigurationError("the database rejects the user or the password", id=CREDENTIALS_REJECTED, found=text)
