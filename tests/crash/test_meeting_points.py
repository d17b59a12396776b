"""Deduplicated recoveries: one is skipped only if an earlier one, which ended correctly, began on the same image."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import pytest

from distcommit.core.errors import CorruptError
from distcommit.core.records.log_records import Fence, Record
from distcommit.protocol.paths.store import RUN_TABLES
from distcommit.stores.logs import log_view as asking
from distcommit.stores.logs.segment_format import Segment, encode_segment
from tests.simulation import world
from tests.simulation.decoded import decoded_once
from tests.simulation.explore import crashed_runs, recovery_violation
from tests.simulation.meeting_points import ids_in, image
from tests.simulation.scenarios import SCENARIOS
from tests.simulation.simulated_posix import SimulatedPosix
from tests.simulation.world import ROOTS

SCENARIO = SCENARIOS["second-run"]
A, B = "a" * 32, "b" * 32
LOG = f"{ROOTS.store}/log/job"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives an entry for each recovery that is checked at its end."""
    checked: list[str] = []
    violation = world.World.violation

    def noted(*arguments: object, **named: object) -> str:
        checked.append("looked at")
        return violation(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(world.World, "violation", noted)
    return checked


def test_equal_recoveries_are_continued_once(ended: list[str]) -> None:
    runs = crashed_runs(SCENARIO, SCENARIO.machine(), SCENARIO.disturbed, random.Random(1))
    machines, recovered = [machine for _, machine, _ in islice(runs, 120)], set[bytes]()
    for machine in machines:
        assert recovery_violation(SCENARIO, machine.after_kill(), recovered) == ""
    assert 1 < len(ended) == len(recovered) < len(machines) * 0.8
    before = len(ended)
    for machine in machines:
        assert recovery_violation(SCENARIO, machine, recovered) == ""
    assert len(ended) == before, "every image is known"


def test_recovery_that_ends_in_a_violation_is_repeated_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "log_violation", lambda store: "broken")
    machine, recovered = SCENARIO.machine(), set[bytes]()
    for _ in range(3):
        assert recovery_violation(SCENARIO, machine.after_kill(), recovered) == "broken"
    assert not recovered


def test_image_with_a_symbolic_link_never_equals_another(ended: list[str]) -> None:
    recovered = set[bytes]()
    for target in ("/job/one", "/job/other"):
        machine = SCENARIO.machine().after_kill()
        machine.symlink(target, "/job/link")
        assert recovery_violation(SCENARIO, machine, recovered) == ""
    assert (len(ended), recovered) == (2, set())


def test_equal_image_of_another_scenario_is_recovered_again(ended: list[str]) -> None:
    machine, recovered = SCENARIO.machine(), set[bytes]()
    for scenario in (SCENARIO, SCENARIO, replace(SCENARIO, name="another")):
        assert recovery_violation(scenario, machine.after_kill(), recovered) == ""
    assert len(ended) == 2


def put(machine: SimulatedPosix, path: str, data: bytes = b"") -> None:
    """Put one more file."""
    fd = machine.open_new(path)
    machine.write(fd, data)
    machine.close(fd)


def segment(record: Record, writer: str) -> bytes:
    """Encode a segment as the log stores it."""
    return encode_segment(Segment(7, writer, record))


def test_images_differ_by_everything_except_their_own_ids() -> None:
    original = SCENARIO.machine()
    older = ids_in(original)
    old = min(known_id for known_id in older if len(known_id) == 32)
    published = min(
        path for _, path, _ in original.files() if path.startswith(ROOTS.output) and path.endswith(".parquet")
    )
    added: list[tuple[str, bytes]] = [
        (f"{ROOTS.output}/other", b""),
        (f"{ROOTS.output}/other", b"1"),
        (f"{ROOTS.store}/other", b""),
        (f"{ROOTS.store}/{A}", b""),
        (f"{ROOTS.store}/{old}", b""),
        (f"{ROOTS.store}/{A[:16]}", b""),  # as long as a checksum, but not one: the text has a meaning
        (f"{ROOTS.store}/{B[:16]}", b""),
        (f"{ROOTS.store}/{A}", A.encode()),
        (f"{ROOTS.store}/{A}", B.encode()),
        (f"{LOG}/000000000099.seg", b"torn"),
        (f"{LOG}/000000000099.seg", b"tor"),
        (f"{LOG}/000000000099.seg", segment(Fence(7, A), B)),
        (f"{LOG}/000000000099.seg", segment(Fence(8, A), B)),
        (f"{LOG}/000000000099.seg", segment(Fence(7, A), A)),  # the writer is the run's name
        (f"{LOG}/000000000099.seg", segment(Fence(7, A), old)),
        (f"{LOG}/000000000099.seg", segment(Fence(7, A[:16]), B)),
        (f"{LOG}/000000000098.seg", segment(Fence(7, A), B)),
    ]
    machines = [original.after_kill() for _ in added]
    for machine, (path, data) in zip(machines, added, strict=True):
        put(machine, path, data)
    other_file = original.after_kill()
    other_file.unlink(published)
    put(other_file, published, original.read_file(published))
    images = [image(machine, older, "") for machine in (original, other_file, *machines)]
    assert len({*images, image(original, older, "more in memory")}) == len(images) + 1


def test_images_that_differ_only_in_their_own_ids_are_equal() -> None:
    original = SCENARIO.machine()
    older, images = ids_in(original), set()
    for run, writer in ((A, B), (B, A)):
        machine = original.after_kill()
        data = segment(Fence(7, run), writer)
        put(machine, f"{LOG}/000000000099.seg", data)
        put(machine, f"{ROOTS.store}/run={run}")
        images.add(image(machine, older, f"{run} {data.split(b'xxh3=')[1][:16].decode()}"))
    assert len(images) == 1
    assert image(machine, older, f"{A} {B}") not in images, "the in-memory run id differs"


def test_images_that_differ_only_in_run_tables_are_equal() -> None:
    original = SCENARIO.machine()
    older, images = ids_in(original), set()
    for requests in (b"1 request", b"2 requests"):
        machine = original.after_kill()
        for folder in (f"{ROOTS.store}/{RUN_TABLES}", f"{ROOTS.store}/{RUN_TABLES}/run={A}"):
            with suppress(FileExistsError):
                machine.mkdir(folder)
        put(machine, f"{ROOTS.store}/{RUN_TABLES}/run={A}/recover-00000-{B}.parquet", requests)
        images.add(image(machine, older, ""))
    assert len(images) == 1


def test_decoding_cache_decodes_equal_bytes_once_and_reports_damage_each_time() -> None:
    original, whole = vars(asking)["decode_segment"], segment(Fence(7, A), B)
    with decoded_once():
        decode = vars(asking)["decode_segment"]
        assert decode(whole, "path") is decode(bytes(bytearray(whole)), "path")
        assert decode(whole, "path") == original(whole, "path")
        for path in ("one", "one", "two"):
            with pytest.raises(CorruptError, match=path):
                decode(b"torn", path)
    assert vars(asking)["decode_segment"] is original
