"""Secrets in files, read when and where a client is created."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SecretStr

from distcommit.core.errors import ConfigurationError
from distcommit.core.redaction import redact
from distcommit.core.support.settings_model import UNSET_VARIABLE, SettingError, raise_all

Value = TypeVar("Value")

SECRET_FILE = re.compile(r"\$\{file:([^}]*)\}")


def check_secret_files(value: Value) -> Value:
    """Return the settings. Raises ValidationError if a secret file's path is not absolute."""
    texts = value.items() if isinstance(value, Mapping) else [(None, value)]
    raise_all(
        SettingError("must name a secret's file by an absolute path", *([] if key is None else [key]), actual=path)
        for key, text in texts
        for path in SECRET_FILE.findall(text.get_secret_value() if isinstance(text, SecretStr) else str(text))
        if not path.startswith("/")
    )
    return value


def with_secret_files(text: str) -> str:
    """Replace each `${file:PATH}` of a text by the file's content, without trailing line ends.

    Environment variables must have been replaced before.

    Raises:
        ConfigurationError: if a file is unreadable, empty or not UTF-8, or if a `${NAME}` is left because that variable
            is not set. The error never contains the file's content.
    """
    if unset := UNSET_VARIABLE.search(text):
        raise ConfigurationError(
            "the job file names an environment variable that is not set",
            id="JOB_FILE_INVALID",
            expected=f"a value of {unset[1]}",
            todo="set the variable; this command uses the setting that names it",
        )
    return SECRET_FILE.sub(lambda match: _read(match[1]), text)


def with_secret_files_in(value: Any) -> Any:
    """Apply `with_secret_files` to the texts in mappings and lists."""
    if isinstance(value, Mapping):
        return {key: with_secret_files_in(below) for key, below in value.items()}
    if isinstance(value, list):
        return [with_secret_files_in(below) for below in value]
    return with_secret_files(value) if isinstance(value, str) else value


def _read(path: str) -> str:
    try:
        secret, actual = Path(path).read_text(encoding="utf-8").rstrip("\r\n"), "an empty file"
    except OSError as error:
        secret, actual = "", error.strerror or type(error).__name__
    except UnicodeDecodeError:
        secret, actual = "", "bytes that are not UTF-8"
    if secret:
        redact([secret])
        return secret
    raise ConfigurationError(
        "a secret's file can't be read",
        id="SECRET_FILE_UNREADABLE",
        path=path,
        expected="text that the job's user can read on the driver and each executor",
        found=actual,
        todo="create the file, or correct the job file",
    )
