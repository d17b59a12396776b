"""Problems of `status`: held-back whole jobs, half-made moves, exchanged folders, dead runs."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distcommit.app.admin.rebuild_store import rebuild_store
from distcommit.app.jobs.job import Job
from distcommit.engine.driver.run import new_run_id
from distcommit.engine.system_clock import SystemClock
from distcommit.protocol.paths.store import LOCK
from distcommit.stores.history.run_records import RunBeginning, RunFacts, put_beginning
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.rebucket_logs import Move, rebucket
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore
from tests.drills.drill import Drilled
from tests.drills.folder_moving_checker import FLAG, moves_away, put_back
from tests.drills.held_datasets import block, pending, quarantined, unblock
from tests.drills.quick_drills import Here, KafkaHere, Printed, a_job, more
from tests.drills.registry import drill

_WHOLE = {"buckets": 2, "scope": "job"}
_STALLED_S = 3000


def _finished(printed: Printed, situation: KafkaHere) -> Drilled:
    more(situation)
    situation.run(0)
    return printed.ended()


class _DiesError(Exception):
    """Exception that simulates the death of the process."""


def _die() -> None:
    raise _DiesError


def _die_before_the_logs_begin(step: str) -> None:
    if step == "begin logs":
        raise _DiesError


def _half_moved(situation: KafkaHere) -> None:
    """Begin a move to four buckets whose process dies in the middle."""
    situation.write(commit={})
    with suppress(_DiesError):
        rebucket(_store(situation), Move(4), new_run_id(), _die_before_the_logs_begin)


@drill(
    "REBUCKET_UNFINISHED",
    "MOVE_IN_PROGRESS: finishes it; nothing else may change the job until then",
    "MOVE_IN_PROGRESS: with these settings in the job file, finishes it; then repeat this command",
    quick=True,
)
def half_made_move(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        _half_moved(situation)
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "a change of the number of buckets is in progress")
        again = f"distcommit store rebucket {situation.path} --buckets 8"
        printed.refused(again, "another change of the number of buckets or of settings is in progress")
        printed.type(printed.problem("REBUCKET_UNFINISHED: the move to 4 buckets")["command"])
        printed.type(again)
        return _finished(printed, situation)


@drill(
    "JOB_LOG_OLDER_THAN_LOGS: restore the newest job log; or move the store away, and `distcommit store rebuild`",
    quick=True,
)
def job_log_of_before_a_move(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        shutil.copytree(folder / "store" / "log" / "job", folder / "job-log-backup")
        situation.write(commit={})
        situation.type(f"distcommit store rebucket {situation.path} --buckets=4")
        shutil.rmtree(folder / "store" / "log" / "job")
        (folder / "job-log-backup").rename(folder / "store" / "log" / "job")
        printed = Printed(situation)
        printed.refused(f"distcommit store rebuild {situation.path}", "the job log is older than a bucket's log")
        (folder / "store").rename(folder / "store-aside")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@contextmanager
def _with_topics(folder: Path, *missing: str) -> Iterator[KafkaHere]:
    """Yield a `scope: job` job with some topics that do not exist."""
    with a_job(folder, commit=_WHOLE) as situation:
        source = situation.config["source"]
        situation.write(source={**source, "topics": [*source["topics"], *missing]})
        situation.run(1)
        situation.write(source=source)
        yield situation


@drill("JOB_HELD_BACK", quick=True)
def whole_job_with_a_topic_that_is_not_there(folder: Path) -> Drilled:
    with _with_topics(folder, "nowhere") as situation:
        printed = Printed(situation)
        printed.type(printed.problem("JOB_HELD_BACK: the last run published nothing, because of nowhere")["command"])
        return _finished(printed, situation)


@drill("JOB_HELD_BACK", quick=True)
def whole_job_with_many_topics_that_are_not_there(folder: Path) -> Drilled:
    with _with_topics(folder, *[f"nowhere-{number:02d}" for number in range(25)]) as situation:
        printed = Printed(situation)
        if "nowhere-24" not in printed.type(printed.problem("JOB_HELD_BACK: .* more datasets")["command"]):
            printed.result.problems.append("the command does not name the others")
        return _finished(printed, situation)


@drill("JOB_BLOCKED_BY_DATASETS", quick=True)
def whole_job_with_a_quarantined_dataset(folder: Path) -> Drilled:
    with quarantined(folder, commit=_WHOLE) as situation:
        printed = Printed(situation)
        problem = printed.problem("JOB_BLOCKED_BY_DATASETS: .* and a is not released")
        unblock(situation, "a")
        printed.type(problem["command"])
        situation.run(0)
        return _finished(printed, situation)


@drill("JOB_BLOCKED_BY_LOG", quick=True)
def whole_job_with_an_emptied_bucket_log(folder: Path) -> Drilled:
    with a_job(folder, commit=_WHOLE) as situation:
        max(folder.glob("store/log/bucket=00001/*.seg")).write_bytes(b"")
        printed = Printed(situation)
        printed.type(printed.problem("JOB_BLOCKED_BY_LOG: .* the log of bucket 1 can't be read")["command"])
        situation.run(0)
        return _finished(printed, situation)


@contextmanager
def _held_back(folder: Path) -> Iterator[KafkaHere]:
    """Yield a `scope: job` job that failed after sealing all datasets and before deciding to publish them."""
    log = "store/log/job"
    with a_job(folder, commit=_WHOLE, task_checkers=[moves_away(folder, log)]) as situation:
        (folder / FLAG).touch()
        situation.type(f"distcommit run {situation.path}")
        put_back(folder, log)
        yield situation


@drill("COMMIT_HELD", quick=True)
def whole_job_that_is_held_back(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        printed = Printed(situation)
        printed.type(printed.problem("COMMIT_HELD")["command"])
        return _finished(printed, situation)


@drill("SEQUENCE_HELD_BACK: run the job, or `distcommit recover`: the sequence is dropped", quick=True)
def quarantine_of_a_dataset_that_was_held_back(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        printed = Printed(situation)
        printed.refused(
            f"distcommit dataset quarantine {situation.path} b", "the dataset was held back with its whole run"
        )
        printed.type(f"distcommit recover {situation.path}")
        return _finished(printed, situation)


@drill(
    "DECISION_UNKNOWN",
    "JOB_LOG_DAMAGED: put the newest job log in its place; or put the store aside, and `distcommit store rebuild`",
    quick=True,
)
def whole_job_that_is_held_back_without_its_job_log(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        max(folder.glob("store/log/job/*.seg")).write_bytes(b"")
        printed = Printed(situation)
        printed.type(printed.problem("DECISION_UNKNOWN")["command"], code=5)
        printed.refused(f"distcommit store rebuild {situation.path}", "the job log is damaged")
        (folder / "store").rename(folder / "store-aside")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("MORE_DATASETS_WAITING", quick=True)
def many_datasets_quarantined_for_reasons_of_their_own(folder: Path) -> Drilled:
    topics = [f"t{number:02d}" for number in range(23)]
    with a_job(folder, *topics, records=0, replay={"max_attempts": 1}) as situation:
        for day, topic in enumerate(topics):
            situation.produce(topic, b"late-%d" % day, first=day)
            block(situation, topic)
        for _ in range(2):
            situation.run(1)
        printed = Printed(situation)
        if topics[-1] not in printed.type(printed.problem("MORE_DATASETS_WAITING")["command"]):
            printed.result.problems.append("the command does not name the others")
        for topic in topics:
            unblock(situation, topic)
        printed.reported("release --all retry")
        printed.type(f"distcommit dataset release {situation.path} --all retry")
        situation.run(0)
        return printed.ended()


@drill("FRESHNESS_MISSED", quick=True)
def datasets_behind_their_target(folder: Path) -> Drilled:
    with a_job(folder, freshness={"target": "1h"}) as situation:
        more(situation, records=20_000)  # below this number `status` does not check their age
        situation.run(0)
        printed = Printed(situation)
        printed.type(printed.problem("FRESHNESS_MISSED")["command"])
        situation.run(0)
        return printed.ended()


@drill("INPUT_PROBLEM_REPORTED", quick=True)
def skipped_file_that_is_repaired(folder: Path) -> Drilled:
    situation = Here(folder)
    path, lines = folder / "in" / "clicks" / "1.jsonl.gz", [b'{"n":1}', b'{"n":2}']
    path.parent.mkdir(parents=True)
    data = gzip.compress(b"\n".join(lines))
    path.write_bytes(data[:-6])
    source = {"type": "files", "paths": [f"{folder}/in/{{dataset}}/*.gz"], "format": "jsonl", "min_file_age_s": 0}
    situation.write(source={**source, "on_unreadable_file": "skip"}, commit={"buckets": 2})
    situation.run(0)
    printed = Printed(situation)
    noted = f"clicks: 1 unreadable file skipped, not published: {path}, EOFError"
    printed.type(printed.problem(f"INPUT_PROBLEM_REPORTED: .* {noted}")["command"])
    path.write_bytes(data)
    situation.given.update(lines)
    situation.run(0)
    return printed.ended()


@drill("RUN_WITHOUT_RECORD", quick=True)
def run_that_died_as_it_began(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        begin_run(_store(situation), new_run_id())
        printed = Printed(situation)
        printed.type(printed.problem("RUN_WITHOUT_RECORD")["command"])
        return _finished(printed, situation)


def _store(situation: KafkaHere) -> JobStore:
    return Job.from_file(situation.path).open_store(create=False)


@contextmanager
def _with_older_output(folder: Path) -> Iterator[KafkaHere]:
    """Yield a job whose output was replaced by that of an earlier run."""
    with a_job(folder) as situation:
        shutil.copytree(situation.output, folder / "output-backup")
        situation.run(0)
        situation.output.rename(folder / "output-newest")
        (folder / "output-backup").rename(situation.output)
        yield situation


@drill("OUTPUT_OUTDATED", quick=True)
def output_from_a_backup(folder: Path) -> Drilled:
    with _with_older_output(folder) as situation:
        printed = Printed(situation)
        printed.type(printed.problem("OUTPUT_OUTDATED")["command"])
        shutil.rmtree(situation.output)
        (folder / "output-newest").rename(situation.output)
        return _finished(printed, situation)


@drill("OUTPUT_OLDER_THAN_STORE: restore the newest output with its folder .distcommit", quick=True)
def lost_output(folder: Path) -> Drilled:
    """All files are lost: the job continues in an empty output, and its watermarks are reset."""
    with a_job(folder) as situation:
        shutil.rmtree(situation.output)
        situation.output.mkdir()
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "the output is older than the store", 5)
        printed.type(f"distcommit store rebuild {situation.path} --keep-watermarks")
        for topic in ("a", "b"):
            printed.reported("set watermarks back: dataset set-watermark null")
            printed.type(f"distcommit dataset set-watermark {situation.path} {topic} null")
        return _finished(printed, situation)


@drill("STAGING_REPLACED", quick=True)
def staging_that_is_not_mounted(folder: Path) -> Drilled:
    with pending(folder) as situation:
        situation.staging.rename(folder / "staging-disk")
        situation.staging.mkdir()
        printed = Printed(situation)
        printed.type(printed.problem("STAGING_REPLACED")["command"])
        shutil.rmtree(situation.staging)
        (folder / "staging-disk").rename(situation.staging)
        unblock(situation, "a")
        return _finished(printed, situation)


@drill("STAGING_OF_ANOTHER_STORE: mount the disk of paths.staging", quick=True)
def lost_staging(folder: Path) -> Drilled:
    with pending(folder) as situation:
        shutil.rmtree(situation.staging)
        situation.staging.mkdir()
        unblock(situation, "a")
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "not the one that contains pending staged files", 5)
        printed.type(f"distcommit store rebuild {situation.path} --keep-watermarks")
        situation.run(1)
        printed.type(printed.problem("STAGED_FILE_MISSING")["command"])
        return _finished(printed, situation)


@contextmanager
def _holding_the_lock(situation: KafkaHere, waits_s: int = 0) -> Iterator[tuple[JobStore, str]]:
    """Hold the job's lock, as a run or another command that began long ago does."""
    store, run_id = _store(situation), new_run_id()
    began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() - waits_s))
    run_id = began + run_id[len(began) :]
    with JobLock(store.fs, store.roots.store, run_id, 3600, SystemClock()):
        yield store, run_id


def _age(situation: KafkaHere) -> None:
    """Make all files except the lock old, as if there had been no progress since."""
    now, lock = time.time(), situation.folder / "store" / LOCK
    for path in (*situation.folder.glob("store/**/*"), *situation.folder.glob("staging/**/*")):
        os.utime(path, (now, now - _STALLED_S))
    for path in (lock, *lock.rglob("*")):
        os.utime(path, (now, now))


@drill("RUN_NOT_STARTED", quick=True)
def run_that_waits_for_spark(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation, _STALLED_S):
            command = printed.problem("RUN_NOT_STARTED")["command"]
        printed.type(command)
        return _finished(printed, situation)


@drill("REBUCKET_STALLED", quick=True)
def move_that_is_stalled(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation) as (store, run_id):
            with suppress(_DiesError):
                rebucket(store, Move(4), run_id, _die_before_the_logs_begin)
            _age(situation)
            command = printed.problem("REBUCKET_STALLED: the move to 4 buckets")["command"]
        situation.write(commit={})
        printed.type(command)
        return _finished(printed, situation)


@drill("REBUILD_STALLED", quick=True)
def rebuild_that_is_stalled(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        shutil.copytree(folder / "store", folder / "store-backup")
        situation.run(0)
        shutil.rmtree(folder / "store")
        (folder / "store-backup").rename(folder / "store")
        printed = Printed(situation)
        with _holding_the_lock(situation) as (store, run_id):
            job = Job.from_file(situation.path)
            plan, flow = job.rebuild(dry_run=True), job.config.task_flow()
            with suppress(_DiesError):
                rebuild_store(store, plan, run_id, "ann", accept_gaps=False, flow=flow, tick=_die)
            _age(situation)
            command = printed.problem("REBUILD_STALLED")["command"]
        printed.type(command)
        return _finished(printed, situation)


@drill("RUN_STALLED", quick=True)
def run_that_is_stalled(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation) as (store, run_id):
            epoch, now_ms = begin_run(store, run_id), SystemClock().now_ms()
            put_beginning(store, RunBeginning(1, "drill", run_id, epoch, "run", "ann", now_ms, RunFacts(host="there")))
            _age(situation)
            command = printed.problem("RUN_STALLED")["command"]
        printed.type(command)
        situation.run(0)
        return _finished(printed, situation)
