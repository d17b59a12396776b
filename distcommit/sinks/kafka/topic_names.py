"""Names of topics, transactional ids and ledger rows."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import xxhash

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.core.support.decoding import from_json
from distcommit.sinks.base.table_names import DATASET

NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoding JSON that another program wrote."""
_MOST = 249
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class RowName(NamedTuple):
    """The key of a row in the ledger topic.

    Attributes:
        store_id: id of the store whose job commits.
        dataset_urn: URN of the dataset.
        branch: branch of the records.
    """

    store_id: str
    dataset_urn: str
    branch: str

    def __str__(self) -> str:
        return f"dataset {self.dataset_urn}, branch {self.branch}, of store {self.store_id}"


def topic_of(template: str, dataset_urn: str) -> str:
    """Return a dataset's topic; an invalid or long URN becomes its valid part and a hash."""
    topic = template.replace(DATASET, dataset_urn)
    if is_topic(topic):
        return topic
    digest = xxhash.xxh3_128_hexdigest(dataset_urn.encode())
    bytes_left = _MOST - len(template) - len(digest) - 1
    return template.replace(DATASET, f"{_NOT_IN_NAMES.sub('-', dataset_urn)[:bytes_left]}-{digest}")


def is_topic(name: str) -> bool:
    return len(name) <= _MOST and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def id_number(dataset_urn: str, ids: int) -> int:
    """Return the number of the dataset's transactional id and ledger partition."""
    return xxhash.xxh3_64_intdigest(dataset_urn.encode()) % ids


def ledger_key(store_id: str, request: CommitRequest) -> bytes:
    return msgspec.json.encode([store_id, request.dataset_urn, request.branch])


def row_name(key: bytes) -> RowName | None:
    try:
        return from_json(key, RowName)
    except NOT_OURS:
        return None
