"""What Spark's readers read, as far as their options name it: folders, tables and topics."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from distcommit.model.targets import Target, broker_addresses, database_address, is_within

_WILD = re.compile(r"[*?\[{]")
_S3 = re.compile(r"^s3[an]://")


def selects(options: Mapping[str, object], reader: str, target: Target) -> bool:
    """Return whether a reader with these options reads a target, or a part of it.

    Tables of Iceberg are compared by namespace and name, whatever their catalogs are.
    """
    texts = {name.lower(): str(value) for name, value in options.items()}
    reads: Mapping[str, Callable[[Mapping[str, str], Target], bool]] = {"jdbc": _by_jdbc, "kafka": _by_kafka}
    if found := reads.get(reader.lower()):
        return found(texts, target)
    path = texts.get("path", "")
    if target.kind == "table":
        return bool(path) and reader.lower() == "iceberg" and f".{path}".endswith(f".{target.name}")
    if not path or target.kind == "topic":
        return False
    read, written = _folder_of(path), _folder_of(target.name)
    return is_within(read, written) or (target.kind == "folder" and is_within(written, read))


def _by_jdbc(options: Mapping[str, str], target: Target) -> bool:
    url, table = options.get("url", ""), options.get("dbtable", "").replace('"', "").replace("`", "")
    if target.kind != "table" or not table or not target.is_in(database_address(url)):
        return False
    return f".{target.name}".endswith(f".{table}") or f".{table}".endswith(f".{target.name}")


def _by_kafka(options: Mapping[str, str], target: Target) -> bool:
    brokers = broker_addresses(options.get("kafka.bootstrap.servers", ""))
    if target.kind != "topic" or not target.is_in(brokers):
        return False
    named = [name.strip() for name in options.get("subscribe", "").split(",")]
    pattern = options.get("subscribepattern", "")
    return target.name in named or bool(pattern and re.fullmatch(pattern, target.name))


def _folder_of(path: str) -> str:
    """The folder that a path names, or that all of a pattern is in."""
    plain = _S3.sub("s3://", path.removeprefix("file://").removeprefix("file:"))
    if wild := _WILD.search(plain):
        plain = plain[: wild.start()].rpartition("/")[0]
    return plain if "://" in plain else os.path.realpath(plain)
