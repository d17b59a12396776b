"""Lines of `status`: whole jobs that are held back, half-made moves, folders that were exchanged, runs that died."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distcommit.app.admin.rebuild import rebuild_store
from distcommit.app.job import Job
from distcommit.engine.clock import SystemClock
from distcommit.engine.driver.run import new_run_id
from distcommit.protocol.paths.store import LOCK
from distcommit.stores.history.run_records import RunBeginning, RunFacts, put_beginning
from distcommit.stores.logs.fencing import begin_run
from distcommit.stores.logs.rebucket import Move, rebucket
from distcommit.stores.state.job_lock import JobLock
from distcommit.stores.state.job_store import JobStore
from tests.drills.acting import FLAG, moves_away, put_back
from tests.drills.desk import KafkaHere, Printed, a_job, more
from tests.drills.drill import Drilled
from tests.drills.held_up import block, pending, quarantined, unblock
from tests.drills.registry import drill

_WHOLE = {"buckets": 2, "scope": "job"}
_STALLED_S = 3000


def _finished(printed: Printed, situation: KafkaHere) -> Drilled:
    more(situation)
    situation.run(0)
    return printed.ended()


class _DiesError(Exception):
    """Stands for the death of the process."""


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
    "a move to … buckets is half made, and until it is finished no run begins",
    "finishes it; nothing else may change the job until then",
    "with these settings in the job file, finishes it; then give this again",
    quick=True,
)
def half_made_move(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        _half_moved(situation)
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "on its way to another number of buckets")
        again = f"distcommit store rebucket {situation.path} --buckets 8"
        printed.refused(again, "on its way to another number of buckets than this")
        printed.type(printed.problem("a move to 4 buckets is half made")["command"])
        printed.type(again)
        return _finished(printed, situation)


@drill(
    "put the newest job log in its place; or put the store aside, and `distcommit store rebuild` makes it anew",
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
    """A whole job of which some topics do not exist."""
    with a_job(folder, commit=_WHOLE) as situation:
        source = situation.config["source"]
        situation.write(source={**source, "topics": [*source["topics"], *missing]})
        situation.run(1)
        situation.write(source=source)
        yield situation


@drill("the last run published nothing, because of …", quick=True)
def whole_job_with_a_topic_that_is_not_there(folder: Path) -> Drilled:
    with _with_topics(folder, "nowhere") as situation:
        printed = Printed(situation)
        printed.type(printed.problem("the last run published nothing, because of nowhere")["command"])
        return _finished(printed, situation)


@drill("and because of … more", quick=True)
def whole_job_with_many_topics_that_are_not_there(folder: Path) -> Drilled:
    with _with_topics(folder, *[f"nowhere-{number:02d}" for number in range(25)]) as situation:
        printed = Printed(situation)
        if "nowhere-24" not in printed.type(printed.problem("and because of .* more")["command"]):
            printed.result.problems.append("the command does not name the others")
        return _finished(printed, situation)


@drill("the next run publishes nothing: the job publishes all datasets or none, and … can't be", quick=True)
def whole_job_with_a_quarantined_dataset(folder: Path) -> Drilled:
    with quarantined(folder, commit=_WHOLE) as situation:
        printed = Printed(situation)
        found = printed.problem("the next run publishes nothing: the job publishes all datasets or none, and a can't")
        unblock(situation, "a")
        printed.type(found["command"])
        situation.run(0)
        return _finished(printed, situation)


@drill("the next run publishes nothing: the job publishes all datasets or none, and those of … can't be", quick=True)
def whole_job_with_an_emptied_bucket_log(folder: Path) -> Drilled:
    with a_job(folder, commit=_WHOLE) as situation:
        max(folder.glob("store/log/bucket=00001/*.seg")).write_bytes(b"")
        printed = Printed(situation)
        printed.type(printed.problem("and those of bucket 1 can't be, as its log can't be read")["command"])
        situation.run(0)
        return _finished(printed, situation)


@contextmanager
def _held_back(folder: Path) -> Iterator[KafkaHere]:
    """A whole job that failed after it had sealed all datasets, before it decided to publish them."""
    log = "store/log/job"
    with a_job(folder, commit=_WHOLE, task_checkers=[moves_away(folder, log)]) as situation:
        (folder / FLAG).touch()
        situation.type(f"distcommit run {situation.path}")
        put_back(folder, log)
        yield situation


@drill("held back with their run: the next one drops them, and reads their records again", quick=True)
def whole_job_that_is_held_back(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        printed = Printed(situation)
        printed.type(printed.problem("held back with their run")["command"])
        return _finished(printed, situation)


@drill("run the job, or `distcommit recover`: the sequence is dropped", quick=True)
def quarantine_of_a_dataset_that_was_held_back(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        printed = Printed(situation)
        printed.refused(
            f"distcommit dataset quarantine {situation.path} b", "this dataset was held back with its whole run"
        )
        printed.type(f"distcommit recover {situation.path}")
        return _finished(printed, situation)


@drill(
    "held back, and the job log, which says whether they are decided, can't be read",
    "put the newest job log in its place; or put the store aside, and `distcommit store rebuild` makes it anew from"
    " the",
    quick=True,
)
def whole_job_that_is_held_back_without_its_job_log(folder: Path) -> Drilled:
    with _held_back(folder) as situation:
        max(folder.glob("store/log/job/*.seg")).write_bytes(b"")
        printed = Printed(situation)
        printed.type(printed.problem("held back, and the job log")["command"], code=5)
        printed.refused(f"distcommit store rebuild {situation.path}", "the job log is damaged")
        (folder / "store").rename(folder / "store-aside")
        printed.type(f"distcommit store rebuild {situation.path}")
        return _finished(printed, situation)


@drill("and … datasets more that wait for a person", quick=True)
def many_datasets_quarantined_for_reasons_of_their_own(folder: Path) -> Drilled:
    topics = [f"t{number:02d}" for number in range(23)]
    with a_job(folder, *topics, records=0, replay={"max_attempts": 1}) as situation:
        for day, topic in enumerate(topics):
            situation.produce(topic, b"late-%d" % day, first=day)
            block(situation, topic)
        for _ in range(2):
            situation.run(1)
        printed = Printed(situation)
        if topics[-1] not in printed.type(printed.problem("datasets more that wait for a person")["command"]):
            printed.result.problems.append("the command does not name the others")
        for topic in topics:
            unblock(situation, topic)
        printed.reported("release --all retry")
        printed.type(f"distcommit dataset release {situation.path} --all retry")
        situation.run(0)
        return printed.ended()


@drill("behind the freshness target when the last run began", quick=True)
def datasets_behind_their_target(folder: Path) -> Drilled:
    with a_job(folder, freshness={"target": "1h"}) as situation:
        more(situation, records=20_000)  # of fewer nobody asks how old they are
        situation.run(0)
        printed = Printed(situation)
        printed.type(printed.problem("behind the freshness target when the last run began")["command"])
        situation.run(0)
        return printed.ended()


@drill("began, and has left no record: it could not go on, or died at once", quick=True)
def run_that_died_as_it_began(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        begin_run(_store(situation), new_run_id())
        printed = Printed(situation)
        printed.type(printed.problem("began, and has left no record")["command"])
        return _finished(printed, situation)


def _store(situation: KafkaHere) -> JobStore:
    return Job.from_file(situation.path).open_store(create=False)


@contextmanager
def _with_older_output(folder: Path) -> Iterator[KafkaHere]:
    """A job whose output was exchanged for the one of a run before."""
    with a_job(folder) as situation:
        shutil.copytree(situation.output, folder / "output-backup")
        situation.run(0)
        situation.output.rename(folder / "output-newest")
        (folder / "output-backup").rename(situation.output)
        yield situation


@drill("Correct paths.output, or put it back", quick=True)
def output_from_a_backup(folder: Path) -> Drilled:
    with _with_older_output(folder) as situation:
        printed = Printed(situation)
        printed.type(printed.problem("the output is older than the store")["command"])
        shutil.rmtree(situation.output)
        (folder / "output-newest").rename(situation.output)
        return _finished(printed, situation)


@drill("put the newest output back, with its folder .distcommit", quick=True)
def lost_output(folder: Path) -> Drilled:
    """All files are lost: the job goes on in an empty output, and its watermarks are set back."""
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


@drill("Mount its disk, or correct it", quick=True)
def staging_that_is_not_mounted(folder: Path) -> Drilled:
    with pending(folder) as situation:
        situation.staging.rename(folder / "staging-disk")
        situation.staging.mkdir()
        printed = Printed(situation)
        printed.type(printed.problem("staged in another folder than paths.staging is now")["command"])
        shutil.rmtree(situation.staging)
        (folder / "staging-disk").rename(situation.staging)
        unblock(situation, "a")
        return _finished(printed, situation)


@drill("see that what paths.staging is on is mounted", quick=True)
def lost_staging(folder: Path) -> Drilled:
    with pending(folder) as situation:
        shutil.rmtree(situation.staging)
        situation.staging.mkdir()
        unblock(situation, "a")
        printed = Printed(situation)
        printed.refused(f"distcommit run {situation.path}", "the staging folder is another one", 5)
        printed.type(f"distcommit store rebuild {situation.path} --keep-watermarks")
        situation.run(1)
        printed.type(printed.problem("quarantined, as a sealed file is gone")["command"])
        return _finished(printed, situation)


@contextmanager
def _holding_the_lock(situation: KafkaHere, waits_s: int = 0) -> Iterator[tuple[JobStore, str]]:
    """This process holds the job's lock, as a run or another command that began so long ago does."""
    store, run_id = _store(situation), new_run_id()
    began = time.strftime("%Y%m%dT%H%M%S", time.gmtime(time.time() - waits_s))
    run_id = began + run_id[len(began) :]
    with JobLock(store.fs, store.roots.store, run_id, 3600, SystemClock()):
        yield store, run_id


def _age(situation: KafkaHere) -> None:
    """Make everything but the lock old, as if nothing had moved since."""
    now, lock = time.time(), situation.folder / "store" / LOCK
    for path in (*situation.folder.glob("store/**/*"), *situation.folder.glob("staging/**/*")):
        os.utime(path, (now, now - _STALLED_S))
    for path in (lock, *lock.rglob("*")):
        os.utime(path, (now, now))


@drill("and Spark has not begun it. Nothing of it is sealed", quick=True)
def run_that_waits_for_spark(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation, _STALLED_S):
            command = printed.problem("a run has no epoch after")["command"]
        printed.type(command)
        return _finished(printed, situation)


@drill(
    "Nobody can tell it to end: if what it waits for will not come, end that process, then go on with it", quick=True
)
def move_that_is_stalled(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation) as (store, run_id):
            with suppress(_DiesError):
                rebucket(store, Move(4), run_id, _die_before_the_logs_begin)
            _age(situation)
            command = printed.problem("the move to 4 buckets stands still")["command"]
        situation.write(commit={})
        printed.type(command)
        return _finished(printed, situation)


@drill(
    "Nobody can tell it to end: if what it waits for will not come, end that process, then rebuild again", quick=True
)
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
            command = printed.problem("the rebuild of epoch .* stands still")["command"]
        printed.type(command)
        return _finished(printed, situation)


@drill("If it is no source or target that takes so long, end it, and run again", quick=True)
def run_that_is_stalled(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = Printed(situation)
        with _holding_the_lock(situation) as (store, run_id):
            epoch, now_ms = begin_run(store, run_id), SystemClock().now_ms()
            put_beginning(store, RunBeginning(1, "drill", run_id, epoch, "run", "ann", now_ms, RunFacts(host="there")))
            _age(situation)
            command = printed.problem("the run of epoch .* stands still")["command"]
        printed.type(command)
        situation.run(0)
        return _finished(printed, situation)
