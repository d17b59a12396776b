"""The numbered schemas of a dataset: tasks of a run agree on them, whichever stores first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from distcommit.schemas.schema_history import Evolution, SchemaHistory, is_registry_id

Names = frozenset[str]


@dataclass
class Shared:
    stored: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return self.stored[schema_id]

    def put_next(self, after: int, schema: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        return after + 1, self.stored.setdefault(after + 1, schema)


def history(store: Shared | None) -> SchemaHistory[Names]:
    return SchemaHistory(lambda stored: frozenset(stored["names"]), lambda names: {"names": sorted(names)}, store)


def adding(new: Names) -> Callable[[Names | None], Names]:
    return lambda newest: (newest or frozenset()) | new


@pytest.mark.parametrize("evolution", ["evolve", "fail"])
def test_schema_of_the_task_that_stored_first_is_part_of_the_newest_one(evolution: Evolution) -> None:
    store = Shared()
    one, two = history(store), history(store)
    one.extend(evolution, adding(frozenset("a")))
    two.extend(evolution, adding(frozenset("b")))
    assert (one.newest, one.ids) == (frozenset("a"), [1])
    assert (two.newest, two.ids) == (frozenset("ab"), [1, 2])
    two.extend(evolution, adding(frozenset("a")))
    assert (two.ids, list(store.stored)) == ([1, 2], [1, 2])


def test_pin_stores_the_first_schema_only() -> None:
    store = Shared()
    pinned, other = history(store), history(store)
    pinned.extend("pin", adding(frozenset("a")))
    pinned.extend("pin", adding(frozenset("b")))
    other.extend("pin", adding(frozenset("b")))
    assert (pinned.newest, other.newest, list(store.stored)) == (frozenset("a"), frozenset("a"), [1])


def test_refused_schema_is_not_stored() -> None:
    store = Shared()
    refusing = history(store)
    refusing.extend("evolve", lambda _: None)
    assert (refusing.newest, refusing.ids, store.stored) == (None, [], {})


def test_newest_of_the_published_schemas_is_read_in_any_order_of_ids() -> None:
    store = Shared({3: {"names": ["a"]}, 7000: {"names": ["a", "b"]}})
    later = history(store)
    later.load_ids([7000, 3])
    assert (later.read_newest(), later.ids) == (frozenset("ab"), [3, 7000])


def test_work_unit_without_a_store_has_schemas_of_its_own() -> None:
    alone = history(None)
    alone.extend("evolve", adding(frozenset("a")))
    alone.extend("evolve", adding(frozenset("b")))
    assert (alone.newest, alone.ids) == (frozenset("ab"), [])


def test_registry_ids_are_distinguished_from_schemas() -> None:
    store = Shared()
    ids = SchemaHistory.of_registry_ids()
    ids.store = store
    assert (ids.put(7), is_registry_id(store.stored[1])) == (7, True)
    assert not is_registry_id({"id": "int64"})
    assert not is_registry_id({"id": 7, "name": "string"})
