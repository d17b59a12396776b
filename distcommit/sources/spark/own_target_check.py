"""Comparison of a reader's options with a sink's target."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from distcommit.core.interfaces.target_identity import Target
from distcommit.core.support.comparable_addresses import broker_addresses, database_address

_WILD = re.compile(r"[*?\[{]")
_ALTERNATIVES = re.compile(r"\{[^/{}]*\}|\{.*")
_S3 = re.compile(r"^s3[an]://")


def selects(options: Mapping[str, object], reader: str, target: Target) -> bool:
    """Return whether a reader reads a target or a part of it.

    Iceberg tables with one namespace and name count as one table, unless their catalogs are known to differ.
    """
    texts = {name.lower(): str(value) for name, value in options.items()}
    reads: Mapping[str, Callable[[Mapping[str, str], Target], bool]] = {"jdbc": _by_jdbc, "kafka": _by_kafka}
    if selects_target := reads.get(reader.lower()):
        return selects_target(texts, target)
    path = texts.get("path", "")
    if target.kind == "table":
        is_elsewhere = path.partition(".")[0] in target.elsewhere and path.count(".") > target.name.count(".")
        has_name = bool(path) and reader.lower() == "iceberg" and f".{path}".endswith(f".{target.name}")
        return has_name and not is_elsewhere
    if not path or target.kind == "topic":
        return False
    return _meet(_parts_of(path), _parts_of(target.name), target, texts.get("recursivefilelookup", "").lower())


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


def _meet(read: list[str], written: list[str], target: Target, is_recursive: str) -> bool:
    if not all(fnmatchcase(name, part) for part, name in zip(read, written, strict=False)):
        return False
    return len(read) >= len(written) or target.kind == "folder" or is_recursive == "true"


def _parts_of(path: str) -> list[str]:
    """Split a path into `fnmatch` patterns; alternatives (`{a,b}`) match any name."""
    plain = _S3.sub("s3://", path.removeprefix("file://").removeprefix("file:"))
    wild = _WILD.search(plain)
    fixed = plain[: wild.start()].rpartition("/")[0] if wild else plain
    remainder = _ALTERNATIVES.sub("*", plain[len(fixed) :]).replace("[^", "[!")
    if "://" not in plain:
        fixed = os.path.realpath(fixed or ("/" if plain.startswith("/") else ""))
    return (fixed.rstrip("/") + remainder.rstrip("/")).split("/")
