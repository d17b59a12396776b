"""Secrets that stay in files: settings name the file, and it is read when a client is made, on the machine it is on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distcommit.core.errors import ConfigurationError
from distcommit.core.redaction import redact

SECRET_FILE = re.compile(r"\$\{file:([^}]*)\}")


def check_absolute(text: str, key: str) -> None:
    """Raises:
    ConfigurationError: if a secret's file is named by a path that is not absolute; `key`: of which setting.
    """
    for path in SECRET_FILE.findall(text):
        if not path.startswith("/"):
            raise ConfigurationError(
                "a secret's file has to be named by an absolute path", key=key, found=f"${{file:{path}}}"
            )


def with_secret_files(text: str) -> str:
    """`text` with each `${file:PATH}` replaced by what the file holds, less the line ends after it.

    Raises:
        ConfigurationError: if a file can't be read or is empty. It names the file, never what is in it.
    """
    return SECRET_FILE.sub(lambda match: _read(match[1]), text)


def with_secret_files_in(value: Any) -> Any:
    """Return a tree of settings with `with_secret_files` applied to each text in it."""
    if isinstance(value, Mapping):
        return {key: with_secret_files_in(below) for key, below in value.items()}
    if isinstance(value, list):
        return [with_secret_files_in(below) for below in value]
    return with_secret_files(value) if isinstance(value, str) else value


def _read(path: str) -> str:
    try:
        secret, found = Path(path).read_text(encoding="utf-8").rstrip("\r\n"), "nothing in it"
    except OSError as error:
        secret, found = "", error.strerror or type(error).__name__
    except UnicodeDecodeError:
        secret, found = "", "bytes that are not UTF-8"
    if secret:
        redact([secret])
        return secret
    raise ConfigurationError(
        "a secret's file can't be read",
        path=path,
        expected="text, readable for the job's user on the driver's machine and on each executor's",
        found=found,
        todo="put it there, or correct the job file",
    )
