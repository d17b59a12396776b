"""Where a job file may contain secrets, and how they are hidden.

`${file:PATH}` is allowed in the same places whose values neither records of runs nor printed commands show. Errors,
logs and alerts hide `secret_values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from distcommit.app.job_file.yaml_without_duplicate_keys import load_yaml
from distcommit.core.redaction import HIDDEN, is_public

PLACES = {
    "*.client.KEY": "settings of a source's, a sink's or a registry's client",
    "*.headers.KEY": "headers of a REST source or of an alert",
    "*.password": "a password of a source, a sink or an alert",
    "*.options.KEY": "options of a custom class",
    "sink.catalog.KEY": "settings of an Iceberg catalog",
    "alerts.webhooks.N.url": "the URL of an alert",
    "spark.conf.KEY": "settings of Spark",
}
"""Where `${file:PATH}` is allowed: `*` is any section, KEY any name in it, N a number in a list."""
_SECTIONS = frozenset({"client", "headers", "options", "catalog", "conf"})
_SECRET = re.compile(r"pass|secret|token|credential|jaas|auth|private|signature|(^|[._-])(api|access)?[._-]?key$", re.I)
_HANDED_ON = frozenset({"alerts", "client", "headers", "options", "params", "properties", "conf", "env", "catalog"})
"""Sections whose values are passed to other software: any of them may be secret."""
_SECRET_SECTIONS = frozenset({"headers", "webhooks"})
"""Sections of which all values are secret: the URL of a web hook suffices to post there."""
_PLAIN = frozenset({"type", "uri", "warehouse", "name", "tls"})
"""Keys that identify a catalog."""
_REFERENCE = re.compile(r"\$\{(\w+|file:[^}]*)\}")
"""A reference to a secret, which does not reveal it."""
_DEFAULT = re.compile(r"(\$\{\w+:-)[^}]*\}")
_USER_INFO = re.compile(r"(\w+://)\S*@")
_NAMES_A_FILE = re.compile(r"(location|file|path|dir|folder)$", re.I)
_HARMLESS_VALUE = re.compile(
    r"[A-Za-z]*|[-+]?[\d.,:_T-]+ ?[A-Za-z]{0,2}"  # a word, as of an enumeration; a number, a time, a duration, a size
    r"|([a-z][\w.+-]*:/)?(/[\w.-]{0,40})+/?(\{\w+\}[\w./-]*)*"  # a path or a URL without user and query
    r"|([A-Za-z_]\w{0,30}\.)+[A-Za-z_]\w{0,30}(:[A-Za-z_]\w*)?"  # a class of Java or Python
)
"""Values that are not hidden, because they reveal nothing and errors need them: words, numbers, paths, classes."""
_PASSWORD = re.compile(r"\w+://[^/@\s:]*:([^/@\s]+)@")
_QUERY_VALUE = re.compile(r"[?&;]([^=&;\s]*)=([^&;\s{}]+)")
_QUERY = re.compile(r"([?&;][^=&;\s]*=)[^&;\s]+")


def takes_secret_file(keys: Sequence[str]) -> bool:
    if keys[-1] == "password" or keys[:2] == ("alerts", "webhooks"):
        return True
    return any(key in _SECTIONS for key in keys[:-1])


def secret_values(tree: Mapping[str, Any]) -> set[str]:
    """Return the texts in a job file's tree that may be secret, and are hidden in errors, logs and alerts.

    These are values whose name sounds secret or that are below `headers`; passwords and queries of URLs; and values
    passed to clients, classes, Spark and hooks, unless they reveal nothing (a word, a number, a path, a class), or the
    job file shows them elsewhere.
    """
    locations = [*_texts(tree, "", _Section.SHOWN)]
    shown = " ".join(text for location, text in locations if location is _Section.SHOWN)
    values = {text for location, text in locations if location is _Section.SECRET}
    values |= {text for location, text in locations if location is _Section.HANDED_ON and _may_be_secret(text, shown)}
    for _, text in locations:
        values.update(_PASSWORD.findall(text))
        for name, value in _QUERY_VALUE.findall(text) if "://" in text else ():
            if (_SECRET.search(name) and not value.startswith("/")) or _may_be_secret(value, ""):
                values.add(value)
    return values


class _Section(Enum):
    SHOWN, HANDED_ON, SECRET = range(3)


def _texts(tree: Any, key: str, location: _Section) -> Iterator[tuple[_Section, str]]:
    if key in _SECRET_SECTIONS or _SECRET.search(key):
        location = _Section.SECRET
    elif _is_handed_on(key, tree) and location is _Section.SHOWN:
        location = _Section.HANDED_ON
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            is_plain = key == "catalog" and name in _PLAIN
            yield from _texts(below, str(name), _Section.SHOWN if is_plain else location)
    elif isinstance(tree, list | tuple):
        for below in tree:
            yield from _texts(below, "", location)
    elif isinstance(tree, str) and not _REFERENCE.fullmatch(tree):
        names_a_file = location is _Section.SECRET and _NAMES_A_FILE.search(key)
        yield (_Section.SHOWN if is_public(key, tree) else _Section.HANDED_ON if names_a_file else location), tree
    elif location is _Section.SECRET and isinstance(tree, int | float) and not isinstance(tree, bool):
        yield location, str(tree)


def _is_handed_on(key: str, tree: Any) -> bool:
    """Return whether a section is passed to other software, such as options of a Spark reader."""
    return key in _HANDED_ON or (key in ("datasets", "tables") and isinstance(tree, Mapping))


def _may_be_secret(text: str, shown: str) -> bool:
    return text not in shown and not _HARMLESS_VALUE.fullmatch(text)


def without_secrets(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job file's tree with secrets hidden: values whose name suggests a secret, values passed to clients,
    classes and hooks, and users, passwords and queries of URLs. References such as `${PASSWORD}` stay.
    """
    return {str(key): _shown(value, str(key), hidden=False) for key, value in tree.items()}


def shown_override(text: str) -> str:
    """Return an override for printing: the value of a setting that may be secret is hidden."""
    key, _, value = text.partition("=")
    try:
        parsed: Any = load_yaml(value)
    except Exception:  # noqa: BLE001 - whatever it is, it is not a value that can be looked at
        return f"{key}={HIDDEN}"
    tree: Any = parsed
    for part in reversed(key.split(".")):
        tree = {part: tree}
    shown: Any = without_secrets(tree)
    for part in key.split("."):
        shown = shown[part]
    return text if shown == parsed else f"{key}={HIDDEN}"


def _shown(value: Any, key: str, *, hidden: bool) -> Any:
    hidden = hidden or _is_handed_on(key, value) or _SECRET.search(key) is not None
    if isinstance(value, Mapping):
        plain = _PLAIN if key == "catalog" else frozenset[str]()
        return {
            str(name): _shown(below, str(name), hidden=hidden and name not in plain) for name, below in value.items()
        }
    if isinstance(value, list):
        return [_shown(below, "", hidden=hidden) for below in value]
    if value is None or isinstance(value, bool):
        return value
    if hidden:
        return value if isinstance(value, str) and _REFERENCE.fullmatch(value) else HIDDEN
    if not isinstance(value, str):
        return value if isinstance(value, int | float) else str(value)
    text = _DEFAULT.sub(rf"\1{HIDDEN}}}", value)
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "://" in text else text
