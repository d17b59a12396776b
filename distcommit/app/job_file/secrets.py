"""Where a secret may stand in a job file, and what may be shown of one.

One list is for all of it: `${file:PATH}` may stand in these places, and neither records of runs nor printed commands
show what is there. What is secret by its name is redacted from errors too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from distcommit.app.job_file.one_of_each import load_yaml
from distcommit.model.redaction import HIDDEN

PLACES = {
    "*.client.KEY": "settings of a source's, a sink's or a registry's client",
    "*.headers.KEY": "headers of a REST source or of an alert",
    "*.password": "a password of a source, a sink or an alert",
    "*.options.KEY": "options of a custom class",
    "sink.catalog.KEY": "settings of an Iceberg catalog",
    "alerts.webhooks.N.url": "the URL of an alert",
    "spark.conf.KEY": "settings of Spark",
}
"""Where `${file:PATH}` may stand: `*` is any section, KEY any name in it, N a number in a list."""
_SECTIONS = frozenset({"client", "headers", "options", "catalog", "conf"})
_SECRET = re.compile(r"pass|secret|token|credential|jaas|auth|private|signature|(^|[._-])(api|access)?[._-]?key$", re.I)
_HANDED_ON = frozenset({"alerts", "client", "headers", "options", "params", "properties", "conf", "env", "catalog"})
"""Sections of which all values are handed on to others: any of them may be secret."""
_PLAIN = frozenset({"type", "uri", "warehouse", "name", "tls"})
"""Keys of a catalog that say which it is."""
_REFERENCE = re.compile(r"\$\{(\w+|file:[^}]*)\}")
"""Says where a secret is, and not what it is."""
_DEFAULT = re.compile(r"(\$\{\w+:-)[^}]*\}")
_USER_INFO = re.compile(r"(\w+://)\S*@")
_PASSWORD = re.compile(r"\w+://[^/@\s:]*:([^/@\s]+)@")
_QUERY = re.compile(r"([?&;][^=&;\s]*=)[^&;\s]+")


def takes_secret_file(keys: Sequence[str]) -> bool:
    """Return whether `${file:PATH}` may stand in the value under these keys: see `PLACES`."""
    if keys[-1] == "password" or keys[:2] == ("alerts", "webhooks"):
        return True
    return any(key in _SECTIONS for key in keys[:-1])


def secret_values(tree: Any, key: str = "", *, is_hidden: bool = False) -> Iterator[str]:
    """Yield the texts in a tree that may be secret by their place: under a name that sounds so, or a password in a URL.
    What is handed on to others counts only under such a name: most of it is not secret, and errors have to name it."""
    is_hidden = is_hidden or _SECRET.search(key) is not None
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from secret_values(below, str(name), is_hidden=is_hidden or key == "headers")
    elif isinstance(tree, list):
        for below in tree:
            yield from secret_values(below, key, is_hidden=is_hidden)
    elif isinstance(tree, str):
        yield from _PASSWORD.findall(tree)
        if is_hidden and "/" not in tree[:1] and not _REFERENCE.search(tree):
            yield tree


def without_secrets(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job file's tree with nothing in it that may be secret: no value under a name that sounds so, none that
    is handed on to clients, classes and hooks, nothing that URLs have of users, passwords and queries. References such
    as `${PASSWORD}` stay."""
    return {str(key): _shown(value, str(key), hidden=False) for key, value in tree.items()}


def shown_override(text: str) -> str:
    """Return an override as it may be printed: the value of a setting that may be secret is hidden."""
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
    hidden = hidden or key in _HANDED_ON or _SECRET.search(key) is not None
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
