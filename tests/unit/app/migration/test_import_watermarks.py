"""Imports of watermarks through the command line: set and kept watermarks, and the state after a crash."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from distcommit import Job
from distcommit.cli.main import app
from distcommit.core.commit_groups import bucket_of
from distcommit.core.errors import ConflictError
from distcommit.core.records.log_records import Intent, Record
from distcommit.core.records.sealed_sequences import SealedSequence
from distcommit.core.support.io_batching import run_alone
from distcommit.core.watermark import Watermark
from distcommit.protocol.log_state import Fold
from distcommit.stores.logs.fencing import fence_bucket, fence_job
from distcommit.stores.operator.operator_actions import set_watermark, set_watermarks
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.faulty_calls import Crashed
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, Meeting

JOB = """\
job: moved
source: {type: kafka, brokers: "127.0.0.1:1", topic_patterns: ["t[0-9]+"], request_timeout_s: 0.02}
paths: {store: store, staging: staging, output: output}
commit: {buckets: 4, durability: none}
"""
HEADER = "dataset,partition,next_offset\n"


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


def imported(job_file: Path, csv: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    file = job_file.parent / "positions.csv"
    file.write_text(HEADER + csv)
    done = CliRunner().invoke(
        app, ["migrate", "import-watermarks", str(job_file), "--from", str(file), "--json", *arguments]
    )
    return done.exit_code, json.loads(done.stdout.splitlines()[-1])


def watermarks(job_file: Path) -> dict[str, dict[str, Any]]:
    return {row.dataset: row.positions for row in Job.from_file(job_file).status().datasets}


def actions(result: dict[str, Any]) -> dict[str, str]:
    return {row["dataset"]: row["action"] for row in result["rows"]}


def test_import_of_many_datasets_writes_one_segment_for_each_bucket(job_file: Path) -> None:
    csv = "".join(f"t{number},{p},{number + p}\n" for number in range(500) for p in (0, 1))
    code, result = imported(job_file, csv)
    assert (code, result["datasets_set"]) == (0, 500)
    assert watermarks(job_file) == {f"t{number}": {"0": number, "1": number + 1} for number in range(500)}
    segments = list((job_file.parent / "store" / "log").glob("bucket=*/*.seg"))
    assert len(segments) == 4 * 2  # the empty checkpoint and the import
    code, result = imported(job_file, csv)
    assert (code, result["datasets_set"]) == (0, 0)
    assert len(list((job_file.parent / "store" / "log").glob("bucket=*/*.seg"))) == len(segments)


def test_dry_run_of_an_import_writes_nothing(job_file: Path) -> None:
    code, result = imported(job_file, "t1,0,5\n", "--dry-run")
    assert (code, result["datasets_set"], actions(result)) == (0, 1, {"t1": "set"})
    assert not (job_file.parent / "store").exists()


def test_existing_watermark_is_kept_unless_overwrite_is_given(job_file: Path) -> None:
    assert imported(job_file, "t1,0,5\nt2,0,5\n")[0] == 0
    code, result = imported(job_file, "t1,0,9\nt2,0,5\nt3,0,1\n")
    assert (code, actions(result)) == (0, {"t1": "kept", "t2": "same", "t3": "set"})
    assert watermarks(job_file) == {"t1": {"0": 5}, "t2": {"0": 5}, "t3": {"0": 1}}
    code, result = imported(job_file, "t1,0,9\n", "--overwrite")
    assert watermarks(job_file)["t1"] == {"0": 9}


def test_import_with_one_invalid_line_writes_nothing(job_file: Path) -> None:
    code, result = imported(job_file, "t1,0,5\nt2,0,\n")
    assert code == 2
    assert "line 3" in result["error"]["text"]
    assert not (job_file.parent / "store").exists()


def test_lines_with_invalid_positions_are_named(job_file: Path) -> None:
    code, result = imported(job_file, 't1,0,5\nt2,1,6\nt2,0,"""x"""\nt3,0,"[1, 2]"\n')
    assert code == 2
    assert "positions.csv, lines 3, 4: 't2': position 'x'" in result["error"]["text"]
    assert "positions.csv, line 5: 't3': position (1, 2)" in result["error"]["text"]
    assert watermarks(job_file) == {}


def test_import_is_refused_if_a_dataset_has_an_open_sequence(job_file: Path) -> None:
    store = Job.from_file(job_file).open_store(create=True)
    epoch = fence_job(store, "r1")
    seal(store, epoch, "t1")
    code, result = imported(job_file, "t1,0,5\nt2,0,5\n")
    assert (code, result["error"]["id"]) == (3, "IMPORT_WITH_OPEN_SEQUENCES")
    assert "t1" in result["error"]["text"]
    assert "t2" not in watermarks(job_file)


def seal(store: JobStore, epoch: int, urn: str) -> None:
    log = store.bucket_log(bucket_of(urn, store.buckets), epoch)
    run_alone(fence_bucket(log, epoch, "r1"))
    intent = Intent(epoch, (SealedSequence(urn, epoch, None, Watermark({"0": 3}), ()),))

    def decide(fold: Fold) -> Record | None:
        return intent if fold.state_of(urn).sequence is None else None

    run_alone(log.settle(decide))


def test_import_killed_at_any_operation_is_completed_by_the_next() -> None:
    requested = {f"t{number}": Watermark({"0": number}) for number in range(9)}
    before: dict[str, Watermark | None] = dict.fromkeys(requested)
    world = World(buckets=3)
    for number in range(1000):
        machine = Machine()
        store = world.store(machine)
        machine.syncfs("/")
        machine.faults.append(Meeting(machine, number, crash))
        try:
            set_watermarks(store, requested, before, "me")
        except Crashed:
            pass
        else:
            break
        for after in (machine.after_kill(), *machine.after_power_loss(random.Random(number), 2, 3)):
            for bucket in range(3):
                stored = world.store(after).bucket_log(bucket).refresh().datasets.keys()
                assert stored in (set(), {urn for urn in requested if bucket_of(urn, 3) == bucket}), number
            set_watermarks(world.store(after), requested, before, "me")
            assert world.watermarks(after) == requested, number
    assert number > 10


def crash() -> None:
    raise Crashed


def test_import_is_refused_if_a_watermark_changed_meanwhile(job_file: Path) -> None:
    store = Job.from_file(job_file).open_store(create=True)
    set_watermark(store, "t1", Watermark({"0": 7}), "other")
    with pytest.raises(ConflictError, match="idle and unchanged meanwhile"):
        set_watermarks(store, {"t1": Watermark({"0": 5})}, {"t1": None}, "me")
    assert watermarks(job_file) == {"t1": {"0": 7}}


def test_run_that_has_planned_cannot_seal_a_dataset_imported_since(job_file: Path) -> None:
    store = Job.from_file(job_file).open_store(create=True)
    epoch = fence_job(store, "r1")
    run_alone(fence_bucket(store.bucket_log(bucket_of("t1", 4), epoch), epoch, "r1"))
    assert imported(job_file, "t1,0,5\n")[0] == 0
    state = store.bucket_log(bucket_of("t1", 4)).refresh().state_of("t1")
    assert state.closed_epoch == epoch
