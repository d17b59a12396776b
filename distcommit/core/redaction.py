"""Redaction of secret setting values in texts.

Errors of clients, drivers and custom classes may quote a setting's value. Every error text that is stored or shown
passes `redacted`. The driver registers each value when it reads the job file or a secret's file. Executors receive the
values with the task flow. Once a process has a value, its log records are redacted at creation, so that no handler
prints the value. Values of fewer than six characters are not redacted, because they may occur in a text by chance.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
_SHORTEST = 6
"""Shorter values may occur in a text by chance."""
_PROTOCOLS = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_MECHANISMS = frozenset({"plain", "scram-sha-256", "scram-sha-512", "gssapi", "oauthbearer"})
_PUBLIC = {"security.protocol": _PROTOCOLS, "sasl.mechanism": _MECHANISMS, "sasl.mechanisms": _MECHANISMS}
_values: set[str] = set()


class Redaction:
    """The values to redact. A process that unpickles this object redacts them from then on."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = frozenset(values)
        redact(self._values)

    @classmethod
    def current_values(cls) -> Redaction:
        """Return the values that are redacted in this process now."""
        return cls(_values)

    def __reduce__(self) -> tuple[type[Redaction], tuple[frozenset[str]]]:
        return Redaction, (self._values,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Redaction) and self._values == other._values

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"Redaction({len(self._values)} values)"


def is_public(key: str, value: str) -> bool:
    """Return whether a Kafka client setting is a protocol or SASL mechanism name, which error texts may contain."""
    return value.lower() in _PUBLIC.get(key, ())


def redact(values: Iterable[str]) -> None:
    """Redact these values in this process from now on, also in their URL, JSON and `repr` forms."""
    _values.update(form for value in values for form in _forms(value) if len(form) >= _SHORTEST)
    if _values and not isinstance(logging.getLogRecordFactory(), _RedactingRecords):
        logging.setLogRecordFactory(_RedactingRecords(logging.getLogRecordFactory()))


def redacted(text: str) -> str:
    """Return the text with `***` in place of each secret value."""
    for value in sorted(_values, key=len, reverse=True) if _values else ():
        text = text.replace(value, HIDDEN)
    return text


def _forms(value: str) -> Iterator[str]:
    yield from (value, value.strip(), quote(value, safe=""), unquote(value), repr(value)[1:-1], json.dumps(value)[1:-1])


class _RedactingRecords:
    def __init__(self, before: Any) -> None:
        self._before = before

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self._before(*args, **kwargs)
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - the arguments do not fit: the handlers report it
            return record
        if (shown := redacted(text)) != text:
            record.msg, record.args = shown, None
        if record.exc_info:
            trace = _FORMATTER.formatException(record.exc_info)
            if (shown := redacted(trace)) != trace:
                record.exc_text = shown  # formatters use it instead of exc_info
        return record


_FORMATTER = logging.Formatter()
