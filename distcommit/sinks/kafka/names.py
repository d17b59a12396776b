"""Names: which topic a dataset goes to, and which transactional id commits it."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import xxhash

from distcommit.core.interfaces.committer import CommitRequest
from distcommit.decoding import from_json

DATASET = "{dataset}"
NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding JSON that others have written may raise."""
_MOST = 249
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class RowName(NamedTuple):
    """What a row of a ledger is of."""

    store_id: str
    dataset_urn: str
    branch: str

    def __str__(self) -> str:
        return f"dataset {self.dataset_urn}, branch {self.branch}, of store {self.store_id}"


def topic_of(template: str, dataset_urn: str) -> str:
    """The topic that a dataset goes to. A URN that is no topic's name, or too long for one, is named by what of it can
    be, and its hash; so two datasets have one topic only if the template names none of them."""
    topic = template.replace(DATASET, dataset_urn)
    if is_topic(topic):
        return topic
    digest = xxhash.xxh3_128_hexdigest(dataset_urn.encode())
    left = _MOST - len(template) - len(digest) - 1
    return template.replace(DATASET, f"{_NOT_IN_NAMES.sub('-', dataset_urn)[:left]}-{digest}")


def is_topic(name: str) -> bool:
    """Whether a topic can have that name."""
    return len(name) <= _MOST and _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def lane_of(dataset_urn: str, lanes: int) -> int:
    """Which of the job's transactional ids commits the dataset, and which partition of the ledger has its row."""
    return xxhash.xxh3_64_intdigest(dataset_urn.encode()) % lanes


def ledger_key(store_id: str, request: CommitRequest) -> bytes:
    """The key of a ledger's row."""
    return msgspec.json.encode([store_id, request.dataset_urn, request.branch])


def row_name(key: bytes) -> RowName | None:
    """What the row of a key is of; None if it is no key of a ledger's row."""
    try:
        return from_json(key, RowName)
    except NOT_OURS:
        return None
