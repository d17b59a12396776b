"""Schemas that the tasks of a run share: one for each number, durable before it is used, and deleted if its run
failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from distcommit.core.errors import ConfigurationError, CorruptError
from distcommit.stores.schemas.schema_store import SchemaStore, StoredSchema
from distcommit.stores.state.checksummed_json import decode_document
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import SimulatedFileSystem
from tests.unit.engine.driver.machines import Machine, dies_at, on_every_power_loss

FOLDER = "/job/store/schemas/a/json"


def schemas(machine: Machine, epoch: int) -> SchemaStore:
    fs = SimulatedFileSystem(machine)
    fs.make_folders("/job/store")
    fs.sync(["/job/store"], "/")
    return SchemaStore(fs, "/job/store", epoch)


def numbers(machine: Machine) -> list[int]:
    return sorted(int(path.rpartition("/")[2].removesuffix(".json")) for path in machine.paths(FOLDER))


def test_first_schema_put_for_a_number_is_the_one_that_counts() -> None:
    machine = Machine()
    one, two = (schemas(machine, 7).of("a", "json") for _ in range(2))
    assert one.put_next(0, {"a": "int64"}) == (7000, {"a": "int64"})
    assert two.put_next(0, {"b": "int64"}) == (7000, {"a": "int64"})
    assert two.put_next(7000, {"a": "int64", "b": "int64"}) == (7001, {"a": "int64", "b": "int64"})
    assert one.put_next(7000, {"a": "int64", "c": "bool"}) == (7001, {"a": "int64", "b": "int64"})
    later = schemas(machine, 9).of("a", "json")
    assert later.schema(7000) == {"a": "int64"}
    assert later.put_next(7001, {"c": "bool"})[0] == 9000
    assert numbers(machine) == [7000, 7001, 9000]
    assert schemas(machine, 9).of("b", "json").put_next(0, {})[0] == 9000
    assert schemas(machine, 9).of("a", "lake.json").put_next(0, {"x": "bool"}) == (9000, {"x": "bool"})


def test_schemas_of_failed_runs_are_deleted_and_ignored_by_later_runs() -> None:
    machine = Machine()
    schema_store = schemas(machine, 7).of("a", "json")
    schema_store.put_next(schema_store.put_next(0, {"a": "int64"})[0], {"a": "int64", "b": "int64"})
    schemas(machine, 8).of("a", "json").put_next(7000, {"a": "int64", "c": "int64"})
    assert numbers(machine) == [7000, 8000], "the known schema and that of the run must be kept"
    assert schemas(machine, 9).of("a", "json").put_next(0, {"z": "int64"}) == (9000, {"z": "int64"})
    assert numbers(machine) == [9000]


def test_run_that_resumes_a_killed_run_keeps_the_schemas_that_a_late_recovery_may_still_seal() -> None:
    machine = Machine()
    schemas(machine, 7).of("a", "json").put_next(0, {"a": "int64"})
    resuming = replace(schemas(machine, 8), keeps_unsealed=True)
    assert resuming.of("a", "json").put_next(0, {"a": "int64", "b": "int64"})[0] == 8000
    assert numbers(machine) == [7000, 8000]
    schemas(machine, 9).of("a", "json").put_next(8000, {"a": "bool"})
    assert numbers(machine) == [7000, 8000, 9000]


def test_schema_returned_to_a_task_survives_a_power_loss_whichever_task_put_it() -> None:
    """A task dies anywhere in its put, another task continues, and power is lost at any time after the schema was
    returned."""
    for number in range(100):
        machine = Machine()
        one, two = (schemas(machine, 7).of("a", "json") for _ in range(2))
        returned, wrong, has_died = list[Mapping[str, Any]](), list[str](), False
        machine.faults.append(dies_at(number))
        try:
            returned.append(one.put_next(0, {"a": "int64"})[1])
        except Crashed:
            machine.restart()
            has_died = True
        machine.faults.clear()
        returned.append(two.put_next(0, {"b": "int64"})[1])
        assert returned in ([{"a": "int64"}] * 2, [{"a": "int64"}], [{"b": "int64"}])

        def look(after: SimulatedPosix, where: str, returned: Any = returned[0], wrong: list[str] = wrong) -> None:
            if SchemaStore(SimulatedFileSystem(after), "/job/store", 8).of("a", "json").schema(7000) != returned:
                wrong.append(where)

        on_every_power_loss(machine, look)
        machine.mkdir("/end")
        assert wrong == []
        if not has_died:
            break
    assert number > 5


def test_missing_or_damaged_schema_raises_corrupt_error_and_is_not_inferred_again() -> None:
    machine = Machine()
    schema_store = schemas(machine, 7).of("a", "json")
    schema_store.put_next(0, {"a": "int64"})
    fs = SimulatedFileSystem(machine)
    data = fs.read(f"{FOLDER}/000000007000.json")
    assert decode_document(data, StoredSchema, 1, "", "") == StoredSchema(1, "a", "json", {"a": "int64"})
    fs.delete(f"{FOLDER}/000000007000.json")
    with pytest.raises(CorruptError, match=r"are lost.*000000007000\.json.*declare the converter's fields"):
        schemas(machine, 8).of("a", "json").schema(7000)
    machine.put(f"{FOLDER}/000000007000.json", data.replace(b"int64", b"int32"))
    with pytest.raises(CorruptError, match="checksum"):
        schemas(machine, 8).of("a", "json").schema(7000)


def test_run_with_too_many_schemas_raises_configuration_error() -> None:
    schema_store = schemas(Machine(), 7).of("a", "json")
    assert schema_store.put_next(7998, {"a": "int64"})[0] == 7999
    with pytest.raises(ConfigurationError, match="change too often"):
        schema_store.put_next(7999, {"a": "int64", "b": "int64"})
