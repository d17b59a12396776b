"""Commands that are refused, and name the command that must come first or was meant."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from tests.drills.drill import Drilled, KafkaSituation
from tests.drills.held_datasets import block, pending, unblock
from tests.drills.quick_drills import KafkaHere, Printed, a_job, more
from tests.drills.registry import drill


def _knows(printed: Printed, command: str, word: str = "a") -> None:
    """Type a command that lists datasets; it must list one."""
    if word not in printed.type(command):
        printed.result.problems.append(f"{command} does not name {word}")


def _finished(printed: Printed, situation: KafkaHere) -> Drilled:
    situation.run(0)
    return printed.ended()


def _positions(situation: KafkaHere) -> str:
    (situation.folder / "positions.csv").write_text("dataset,partition,next_offset\na,0,5\n", encoding="utf-8")
    return f"distcommit migrate import-watermarks {situation.path} --from {situation.folder}/positions.csv"


@drill("IMPORT_WITH_OPEN_SEQUENCES: release quarantined datasets, then import again; nothing was written", quick=True)
def import_into_a_pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        command = _positions(situation)
        printed.refused(command, "datasets have sequences that are not done")
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return _finished(printed, situation)


@drill("KEPT_WATERMARKS_NEED_STORE: `distcommit store rebuild` makes one from the published files", quick=True)
def kept_watermarks_of_a_lost_store(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        (folder / "store").rename(folder / "store-lost")
        printed = Printed(situation)
        printed.refused(f"distcommit store rebuild {situation.path} --keep-watermarks", "needs an existing store")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("NOTHING_TO_REBUILD: run the job; `distcommit audit` says whether its output is exact", quick=True)
def rebuild_of_a_store_that_is_whole(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit store rebuild {situation.path}", "there is nothing to rebuild")
        situation.run(0)
        printed.type(f"distcommit audit {situation.path}")
        return printed.ended()


@drill("DATASET_UNKNOWN: give its URN as `distcommit status --all` shows it", quick=True)
def reprocess_of_an_unknown_dataset(folder: Path) -> Drilled:
    with a_job(folder, on_rejected="divert") as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit dataset reprocess {situation.path} A", "the store does not know this dataset")
        _knows(printed, f"distcommit status {situation.path} --all")
        return _finished(printed, situation)


@drill("REPROCESS_WITH_OPEN_SEQUENCE: or release it if it is quarantined; then reprocess", quick=True)
def reprocess_of_a_pending_dataset(folder: Path) -> Drilled:
    json = {"type": "json", "fields": {"n": "int64"}}
    with a_job(folder, converters=[json], on_rejected="divert") as situation:
        situation.produce("a", b"poison")
        block(situation, "a")
        situation.run(1)
        printed = Printed(situation)
        command = f"distcommit dataset reprocess {situation.path} a"
        printed.refused(command, "can be reprocessed only between its sequences")
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        situation.write(converters=[])
        printed.type(command)
        situation.run(0)
        situation.given[b"poison"] += 1  # the error file stays beside the published files
        return printed.ended(rejected=Counter([b"poison"]))


@drill("DATASET_UNKNOWN: give its URN as `distcommit dataset list` shows it", quick=True)
def steps_of_an_unknown_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit dataset steps {situation.path} A", "the store does not know this dataset")
        _knows(printed, f"distcommit dataset list {situation.path}")
        printed.type(f"distcommit dataset list {situation.path}")
        situation.type(f"distcommit dataset steps {situation.path} a")
        unblock(situation, "a")
        return _finished(printed, situation)


@drill("DATASET_UNKNOWN: `distcommit status --all` lists those that it knows; --new", quick=True)
def watermark_of_an_unknown_dataset(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(
            f"""distcommit dataset set-watermark {situation.path} A '{{"0": 5}}'""", "knows no such dataset"
        )
        _knows(printed, f"distcommit status {situation.path} --all")
        return _finished(printed, situation)


@drill("DATASET_ALREADY_KNOWN: leave --new out", quick=True)
def watermark_of_a_dataset_that_is_known(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        command = f"""distcommit dataset set-watermark {situation.path} a '{{"0": 5}}'"""
        printed.refused(f"{command} --new", "knows this dataset already.*leave --new out")
        printed.type(command)
        return _finished(printed, situation)


@drill("DATASET_UNKNOWN: or read a newer snapshot", quick=True)
def files_of_an_unknown_dataset(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(
            f"distcommit dataset files {situation.path} --dataset A", "the snapshot has nothing of this dataset"
        )
        _knows(printed, f"distcommit status {situation.path} --all")
        return _finished(printed, situation)


@drill("RUN_NOT_SETTLED: wait for the run, or complete its commits with `distcommit recover JOB.yaml`", quick=True)
def files_of_a_run_that_left_something_open(folder: Path) -> Drilled:
    with pending(folder) as situation:
        epoch = situation.result("status")["epoch"]
        printed = Printed(situation)
        command = f"distcommit dataset files {situation.path} --as-of {epoch}"
        printed.refused(command, "this run is not settled yet")
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return _finished(printed, situation)


@drill("SNAPSHOT_NOT_READY: run the job, or `distcommit recover`; after a rebuild or a rebucket", quick=True)
def files_after_a_rebuild(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        (folder / "store").rename(folder / "store-lost")
        situation.type(f"distcommit store rebuild {situation.path}")
        printed = Printed(situation)
        command = f"distcommit dataset files {situation.path}"
        printed.refused(command, "there is no snapshot to read")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return _finished(printed, situation)


@drill("STORE_OUTPUT_MISMATCH: put the newest of both in their place; `distcommit status`", quick=True)
def files_of_an_older_store(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        shutil.copytree(folder / "store", folder / "store-backup")
        situation.run(0)
        (folder / "store").rename(folder / "store-newest")
        (folder / "store-backup").rename(folder / "store")
        printed = Printed(situation)
        printed.refused(f"distcommit dataset files {situation.path}", "do not belong together")
        printed.problem("STORE_OUTDATED")
        shutil.rmtree(folder / "store")
        (folder / "store-newest").rename(folder / "store")
        printed.type(f"distcommit status {situation.path}")
        more(situation)
        return _finished(printed, situation)


@drill("JOB_NOT_SERVED: use `distcommit run`", quick=True)
def trigger_of_a_job_without_schedule(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        printed.refused(f"distcommit schedule trigger {situation.path}", "no service runs this job")
        printed.type(f"distcommit run {situation.path}")
        return printed.ended()


@drill("BUCKET_COUNT_DIFFERS: set commit.buckets to …, or remove it; for … buckets, run", quick=True)
def another_number_of_buckets(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        situation.write(commit={"buckets": 4})
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "the store has another number of buckets")
        printed.type(f"distcommit store rebucket {situation.path} --buckets 4")
        return _finished(printed, situation)


@drill("MOVE_WITH_OPEN_SEQUENCES: complete pending commits with `distcommit recover JOB.yaml`", quick=True)
def rebucket_with_a_pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as situation:
        printed = Printed(situation)
        situation.write(commit={})
        command = f"distcommit store rebucket {situation.path} --buckets=4"
        printed.refused(command, "the store cannot be rebucketed while commits are unfinished")
        unblock(situation, "a")
        printed.type(f"distcommit recover {situation.path}")
        printed.type(command)
        return _finished(printed, situation)


@drill("STORE_LOST: correct paths.store or paths.output; if the store is lost", quick=True)
def output_without_its_store_and_claim(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        (folder / "store").rename(folder / "store-lost")
        shutil.rmtree(folder / "output" / ".distcommit")
        shutil.rmtree(folder / "staging" / ".distcommit")
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "published files, and its store does not exist")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("FOLDER_OF_ANOTHER_STORE: correct paths.store, or restore that store; if it is lost", quick=True)
def output_without_its_store(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        (folder / "store").rename(folder / "store-lost")
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "was filled from another store of the job")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("STORE_MARKERS_CORRUPT: restore store.json from a backup. If there is none", quick=True)
def store_marker_and_claims_emptied(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        claims = [folder / name / ".distcommit" / "owner.json" for name in ("output", "staging")]
        for path in (folder / "store" / "store.json", *claims):
            path.write_bytes(b"")
        printed = Printed(situation)
        printed.refused(
            f"distcommit store rebuild {situation.path}", "neither the store's marker nor a folder's claim can be read"
        )
        for path in claims:
            path.unlink()
        (folder / "store").rename(folder / "store-aside")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("STORE_OLDER_THAN_OUTPUT: restore the newest store; if it is lost", quick=True)
def store_from_a_backup(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        shutil.copytree(folder / "store", folder / "store-backup")
        situation.run(0)
        shutil.rmtree(folder / "store")
        (folder / "store-backup").rename(folder / "store")
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "the store is older than its published output", 5)
        printed.type(f"distcommit store rebuild {situation.path}")
        more(situation)
        return _finished(printed, situation)


@drill("STORE_OUTDATED", quick=True)
def store_from_a_backup_seen_by_status(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        shutil.copytree(folder / "store", folder / "store-backup")
        situation.run(0)
        shutil.rmtree(folder / "store")
        (folder / "store-backup").rename(folder / "store")
        printed = Printed(situation)
        printed.type(printed.problem("STORE_OUTDATED")["command"])
        more(situation)
        return _finished(printed, situation)


@drill("IMPORT_WITH_OPEN_SEQUENCES: run `distcommit recover` with the other job's own job file", quick=True)
def taking_over_a_job_with_a_pending_dataset(folder: Path) -> Drilled:
    with pending(folder) as other:
        own_job = KafkaHere(folder / "mine")
        own_job.folder.mkdir()
        own_job.on(other.brokers, ["a", "b"], commit={"buckets": 2})
        own_job.config["job"] = "mine"
        own_job.write()
        printed = Printed(own_job)
        command = f"distcommit migrate import-watermarks {own_job.path} --from {other.path}"
        printed.refused(command, "the other job has sequences that are not done")
        unblock(other, "a")
        printed.type(f"distcommit recover {other.path}")
        printed.type(command)
        KafkaSituation.numbers(own_job, "a", 3)
        own_job.run(0)
        return printed.ended()
