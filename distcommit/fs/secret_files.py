"""Secrets in files: a setting names the file, which is read on the machine and at the time where a client is
created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distcommit.core.errors import ConfigurationError
from distcommit.core.redaction import redact

SECRET_FILE = re.compile(r"\$\{file:([^}]*)\}")


def check_absolute(text: str, key: str) -> None:
    """Check that secret files are named by absolute paths.

    Args:
        text: the value of a setting.
        key: the setting's name.

    Raises:
        ConfigurationError: if a path is relative.
    """
    for path in SECRET_FILE.findall(text):
        if not path.startswith("/"):
            raise ConfigurationError(
                "a secret's file must be named by an absolute path",
                id="SECRET_FILE_UNREADABLE",
                key=key,
                found=f"${{file:{path}}}",
            )


def with_secret_files(text: str) -> str:
    """Return `text` with each `${file:PATH}` replaced by the file's content, without trailing line ends.

    Raises:
        ConfigurationError: if a file can't be read or is empty. The error never contains the file's content.
    """
    return SECRET_FILE.sub(lambda match: _read(match[1]), text)


def with_secret_files_in(value: Any) -> Any:
    """Return a tree of settings with `with_secret_files` applied to each text."""
    if isinstance(value, Mapping):
        return {key: with_secret_files_in(below) for key, below in value.items()}
    if isinstance(value, list):
        return [with_secret_files_in(below) for below in value]
    return with_secret_files(value) if isinstance(value, str) else value


def _read(path: str) -> str:
    try:
        secret, found = Path(path).read_text(encoding="utf-8").rstrip("\r\n"), "an empty file"
    except OSError as error:
        secret, found = "", error.strerror or type(error).__name__
    except UnicodeDecodeError:
        secret, found = "", "bytes that are not UTF-8"
    if secret:
        redact([secret])
        return secret
    raise ConfigurationError(
        "a secret's file can't be read",
        id="SECRET_FILE_UNREADABLE",
        path=path,
        expected="text that the job's user can read on the driver and each executor",
        found=found,
        todo="create the file, or correct the job file",
    )
