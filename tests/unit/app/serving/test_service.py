"""A service without Spark: job files, schedule requests, and runs with any outcome.

Runs are functions of the test. Threads, files and stores are the product's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

from distcommit import Job
from distcommit.app.admin.service_requests import ServiceRequest
from distcommit.app.jobs.job import username
from distcommit.app.serving import served_job
from distcommit.app.serving.job_file_folder import read_job_files, require_served
from distcommit.app.serving.served_job import Ended, Message, Outcome, RunBegun, ScheduleCheck, ServedJob, TriggerTaken
from distcommit.app.serving.service import Service
from distcommit.app.telemetry.service_events import ServiceEvent
from distcommit.core.errors import ConfigurationError, LockHeldError, ProcessLostError, RunCancelledError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_counts import RunCounts
from distcommit.core.records.run_reasons import Reasons
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import Observer, RunBegan
from distcommit.engine.system_clock import SystemClock
from distcommit.stores.history.run_records import read_cancel
from distcommit.stores.operator.schedule_requests import ScheduleRequests, read_requests
from distcommit.stores.state.job_lock import JobLock
from tests.unit.app.running.test_run_alerts import script

DAILY = {"cron": "0 2 29 2 *"}
"""A schedule that fires once in four years."""


def write(folder: Path, name: str, **changes: Any) -> Path:
    job = {
        "job": name,
        "source": {"type": "kafka", "brokers": "127.0.0.1:1", "topics": ["idle"]},
        "paths": {place: str(folder.parent / "data" / name / place) for place in ("store", "staging", "output")},
        "commit": {"buckets": 1},
        "schedule": DAILY,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job | changes))
    return path


class Runs:
    """Simulated runs. `acts` maps a job to a function that is called during its run."""

    def __init__(self) -> None:
        self.acts: dict[str, Callable[[Job], None]] = {}
        self.done: list[str] = []
        self._epochs = iter(range(1, 1_000))
        self.has_epoch = True

    def __call__(self, job: Job, observer: Observer) -> RunResult:
        epoch, name = next(self._epochs), job.config.job
        self.done.append(name)
        if self.has_epoch:
            observer.observe(RunBegan(f"run-{epoch}", epoch, name, "run", "somebody", 0))
        if act := self.acts.get(name):
            act(job)
        reasons = Reasons.of("orders", "failed", "no such topic") if name == "incomplete" else Reasons()
        totals = RunCounts(datasets_published=2, records_published=300)
        return RunResult(f"run-{epoch}", epoch, not reasons, True, {}, totals, [], reasons=reasons)


class Serving:
    """A service that takes steps while a test waits for an event."""

    def __init__(
        self, folder: Path, *, at_once: int = 4, lives: Callable[[], bool] = lambda: True, poll_s: float = 0.05
    ) -> None:
        self.runs, self.events = Runs(), list[ServiceEvent]()
        self.service = Service(
            lambda files: read_job_files(folder, (), files),
            self.runs,
            self.tell,
            "somebody",
            lives=lives,
            at_once=at_once,
            poll_s=poll_s,
        )

    def tell(self, event: ServiceEvent) -> None:
        self.events.append(event)

    def until(self, job: str, what: str, count: int = 1) -> ServiceEvent:
        deadline_s = time.monotonic() + 60
        while len(matching := [event for event in self.events if (event.job, event.event) == (job, what)]) < count:
            assert time.monotonic() < deadline_s, self.events
            self.service._step()
        return matching[-1]

    def take_steps(self, steps: int = 8) -> None:
        for _ in range(steps):
            self.service._step()

    def all(self, what: str) -> list[str]:
        return [event.job for event in self.events if event.event == what]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    path.mkdir()
    return path


def test_runs_follow_their_schedules_whatever_the_outcome_of_other_jobs(folder: Path) -> None:
    for name in ("good", "incomplete", "broken"):
        write(folder, name, schedule={"interval_s": 1})

    def broken(job: Job) -> None:
        raise ValueError("raised by a custom class")

    serving = Serving(folder)
    serving.runs.acts["broken"] = broken
    for name, what in (("good", "committed"), ("incomplete", "incomplete"), ("broken", "failed")):
        serving.until(f"{name}.yaml", what, count=2)
    assert "2 datasets, 300 records" in serving.until("good.yaml", "committed").text
    assert "orders: no such topic" in serving.until("incomplete.yaml", "incomplete").text
    assert "ValueError: raised by a custom class" in serving.until("broken.yaml", "failed").text
    assert serving.all("served") == ["broken.yaml", "good.yaml", "incomplete.yaml"]


def test_job_with_unresponsive_storage_is_reported_once_and_does_not_delay_other_jobs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "mute"):
        write(folder, name, schedule={"interval_s": 1})
    answers = threading.Event()

    def waits(fs: FileSystem, root: str) -> ScheduleRequests:
        if "/mute/" in root:
            answers.wait(60)
        return read_requests(fs, root)

    monkeypatch.setattr(served_job, "read_requests", waits)
    serving = Serving(folder)
    assert "has not answered for" in serving.until("mute.yaml", "silent").text
    serving.until("good.yaml", "committed", count=2)
    assert (serving.all("silent").count("mute.yaml"), "mute" in serving.runs.done) == (1, False)
    answers.set()
    serving.until("mute.yaml", "answers")
    serving.until("mute.yaml", "committed")


def test_job_whose_storage_stops_answering_occupies_no_slot_and_runs_once_it_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "mute"):
        Job.from_file(write(folder, name, schedule={"interval_s": 10})).open_store(create=True)
    is_mute, answers = threading.Event(), threading.Event()

    def waits(fs: FileSystem, root: str) -> ScheduleRequests:
        if "/mute/" in root and is_mute.is_set():
            answers.wait(120)
        return read_requests(fs, root)

    monkeypatch.setattr(served_job, "read_requests", waits)
    serving = Serving(folder, at_once=1)
    serving.until("mute.yaml", "committed")
    is_mute.set()
    serving.until("mute.yaml", "silent")
    before = serving.runs.done.count("mute")
    serving.until("good.yaml", "committed", count=serving.all("committed").count("good.yaml") + 3)
    assert serving.runs.done.count("mute") == before
    answers.set()
    serving.until("mute.yaml", "answers")
    serving.until("mute.yaml", "committed", count=before + 1)
    assert serving.all("silent") == ["mute.yaml"]


def test_concurrent_runs_are_limited_and_never_two_of_one_job(folder: Path) -> None:
    under_way, most = set[str](), [0]
    lock = threading.Lock()

    def act(job: Job) -> None:
        with lock:
            assert job.config.job not in under_way
            under_way.add(job.config.job)
            most[0] = max(most[0], len(under_way))
        time.sleep(0.02)  # gives other runs time to overlap
        with lock:
            under_way.remove(job.config.job)

    names = [f"job{number}" for number in range(5)]
    serving = Serving(folder, at_once=2)
    for name in names:
        write(folder, name, schedule={"interval_s": 1})
        serving.runs.acts[name] = act
    for name in names:
        serving.until(f"{name}.yaml", "committed", count=2)
    assert most[0] == 2
    assert not serving.all("failed")


def test_job_is_paused_triggered_and_resumed_through_its_store(folder: Path) -> None:
    job = Job.from_file(write(folder, "a", schedule={"interval_s": 1}))
    job.open_store(create=True)
    assert not job.request_service(ServiceRequest.PAUSE).was_in_effect
    assert job.request_service(ServiceRequest.PAUSE).was_in_effect, (
        "the second pause must report that the job is already paused"
    )
    serving = Serving(folder)
    assert f"by {username()}" in serving.until("a.yaml", "paused").text
    serving.take_steps()
    assert serving.runs.done == []
    assert [problem.command for problem in job.status().problems if problem.id == "JOB_PAUSED"] == [
        f"distcommit schedule resume {folder / 'a.yaml'}"
    ]
    assert not job.request_service(ServiceRequest.TRIGGER).is_started, "the service is not polling at this moment"
    serving.until("a.yaml", "committed")
    serving.take_steps()
    assert (serving.runs.done, serving.all("triggered")) == (["a"], ["a.yaml"]), "a trigger must start one run"
    assert not job.request_service(ServiceRequest.RESUME).was_in_effect
    assert job.request_service(ServiceRequest.RESUME).was_in_effect
    serving.until("a.yaml", "resumed")
    serving.until("a.yaml", "committed", count=3)
    assert not [problem for problem in job.status().problems if problem.id == "JOB_PAUSED"]


def test_job_paused_just_before_its_run_does_not_begin(folder: Path) -> None:
    job, runs = Job.from_file(write(folder, "a")), Runs()
    job.open_store(create=True)
    inbox: SimpleQueue[Message] = SimpleQueue()
    served = ServedJob("a.yaml", job, runs, inbox, 60)
    assert isinstance(inbox.get(timeout=60), ScheduleCheck)
    job.request_service(ServiceRequest.PAUSE)
    served.run(is_triggered=False)
    ended = inbox.get(timeout=60)
    assert isinstance(ended, Ended)
    assert (ended.outcome, runs.done) == (Outcome.PAUSED, [])
    inbox.get(timeout=60)
    served.run(is_triggered=True)
    assert isinstance(inbox.get(timeout=60), TriggerTaken)
    assert isinstance(inbox.get(timeout=60), RunBegun)
    served.leave()


def test_pause_detected_at_the_start_of_a_run_is_reported_once(folder: Path) -> None:
    job = Job.from_file(write(folder, "a", schedule={"interval_s": 1}))
    job.open_store(create=True)
    serving = Serving(folder, poll_s=60)  # only the run itself reads requests in this time
    serving.until("a.yaml", "committed")
    job.request_service(ServiceRequest.PAUSE)
    serving.until("a.yaml", "paused")
    serving.take_steps(2)
    assert serving.all("paused") == ["a.yaml"]


@pytest.mark.parametrize("has_epoch", [False, True])
def test_trigger_during_a_run_starts_another_run_after_it(folder: Path, has_epoch: bool) -> None:
    job = Job.from_file(write(folder, "a"))
    job.open_store(create=True)
    serving = Serving(folder)
    serving.runs.has_epoch = has_epoch

    def asks_again(_: Job) -> None:
        if len(serving.runs.done) == 1:
            job.request_service(ServiceRequest.TRIGGER)

    serving.runs.acts["a"] = asks_again
    job.request_service(ServiceRequest.TRIGGER)
    serving.until("a.yaml", "committed", count=2)
    serving.take_steps()
    assert len(serving.runs.done) == 2


def test_trigger_is_kept_while_another_process_holds_the_job_lock(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("distcommit.app.scheduling.schedule.HELD_WAIT_MS", 100)
    job = Job.from_file(write(folder, "a", schedule=DAILY | {"missed": "skip"}))
    job.open_store(create=True)
    serving = Serving(folder)
    serving.runs.has_epoch = False

    def held(_: Job) -> None:
        if len(serving.runs.done) < 4:
            raise LockHeldError("another run of this job is alive", run=f"run-{len(serving.runs.done)}")

    serving.runs.acts["a"] = held
    job.request_service(ServiceRequest.TRIGGER)
    serving.until("a.yaml", "committed")
    assert (len(serving.runs.done), serving.all("held")) == (4, ["a.yaml"]), (
        "a held lock must be reported once and retried until it is free"
    )
    assert serving.all("failed") == []


def test_two_services_of_one_job_take_turns_through_its_lock(folder: Path) -> None:
    """Each run holds the lock, as in `Job.run`."""
    job = Job.from_file(write(folder, "a", schedule={"interval_s": 1}))
    store = job.open_store(create=True)
    first, second = Serving(folder), Serving(folder)
    under_way, may_end = list[str](), threading.Event()

    def act(_: Job) -> None:
        with JobLock(store.fs, store.roots.store, "run", 30, SystemClock()):
            assert not under_way
            under_way.append("run")
            suppress_wait(may_end)
            under_way.clear()

    first.runs.acts["a"] = second.runs.acts["a"] = act
    first.runs.has_epoch = second.runs.has_epoch = False
    deadline_s = time.monotonic() + 60
    while not under_way:
        assert time.monotonic() < deadline_s
        first.take_steps(1)
    assert "another run of this job is alive" in second.until("a.yaml", "held").text
    second.take_steps()
    assert second.all("held") == ["a.yaml"], "must be reported once"
    may_end.set()
    first.until("a.yaml", "committed")
    assert not first.all("failed") + second.all("failed")


def test_added_changed_and_removed_job_files_are_applied(folder: Path) -> None:
    write(folder, "a")
    serving = Serving(folder)
    serving.until("a.yaml", "served")
    write(folder, "b", schedule={"interval_s": 1})
    assert serving.until("b.yaml", "added")
    serving.until("b.yaml", "committed")
    write(folder, "b", schedule=DAILY)
    serving.until("b.yaml", "changed")
    (folder / "b.yaml").write_text("job: [")
    assert "must be valid YAML" in serving.until("b.yaml", "wrong").text
    serving.take_steps()
    assert serving.all("wrong") == ["b.yaml"], "must be reported once"
    write(folder, "b", schedule={"interval_s": 1})
    before = len(serving.runs.done)
    serving.until("b.yaml", "added", count=2)
    serving.until("b.yaml", "committed", count=serving.all("committed").count("b.yaml") + 1)
    (folder / "b.yaml").unlink()
    serving.until("b.yaml", "removed")
    assert len(serving.runs.done) > before
    serving.take_steps()
    count = len(serving.runs.done)
    time.sleep(0.3)  # longer than the interval of the job
    serving.take_steps()
    assert len(serving.runs.done) == count
    assert set(serving.service._served) == {"a.yaml"}, "the thread of a removed job must end"


def test_run_of_a_removed_job_file_completes_and_is_not_repeated(folder: Path) -> None:
    path = write(folder, "a", schedule={"interval_s": 1})
    may_end = threading.Event()
    serving = Serving(folder)
    serving.runs.acts["a"] = lambda _: suppress_wait(may_end)
    serving.until("a.yaml", "began")
    path.unlink()
    serving.until("a.yaml", "removed")
    assert serving.all("committed") == []
    may_end.set()
    serving.until("a.yaml", "committed")
    serving.take_steps()
    assert len(serving.runs.done) == 1
    assert not serving.service._served


def suppress_wait(event: threading.Event) -> None:
    assert event.wait(60)


def test_second_file_of_one_job_is_reported_and_the_first_stays_served(folder: Path) -> None:
    path = write(folder, "b")
    serving = Serving(folder)
    serving.until("b.yaml", "served")
    (folder / "a.yaml").write_text(path.read_text())
    assert "the same job as b.yaml" in serving.until("a.yaml", "wrong").text, (
        "the file that is already served must stay served"
    )
    path.unlink()
    serving.until("a.yaml", "added")


def test_temporarily_unreadable_folder_removes_no_job(folder: Path) -> None:
    write(folder, "a", schedule={"interval_s": 1})
    serving = Serving(folder)
    serving.until("a.yaml", "committed")
    folder.rename(folder.with_name("elsewhere"))
    assert "can't be read" in serving.until("", "unreadable").text
    serving.until("a.yaml", "committed", count=2)
    folder.with_name("elsewhere").rename(folder)
    serving.take_steps()
    assert (serving.all("unreadable"), serving.all("removed")) == ([""], [])


def test_overlong_run_receives_a_cancel_request(folder: Path) -> None:
    job = Job.from_file(write(folder, "a", schedule={"interval_s": 1, "cancel_after_s": 0.2}))
    store = job.open_store(create=True)
    serving = Serving(folder)

    def until_cancelled(_: Job) -> None:
        deadline_s = time.monotonic() + 60
        while (request := read_cancel(store.fs, store.roots.store, 1)) is None:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        raise RunCancelledError("the run was cancelled", by=request.requested_by)

    serving.runs.acts["a"] = until_cancelled
    assert "schedule.cancel_after_s" in serving.until("a.yaml", "cancelled").text
    assert serving.all("overlong") == ["a.yaml"]


def test_job_whose_custom_class_raises_is_reported_and_the_others_continue(folder: Path, monkeypatch: Any) -> None:
    (folder / "raises_as_it_is_imported.py").write_text("raise NameError('no such name')")
    monkeypatch.syspath_prepend(str(folder))
    Job.from_file(write(folder, "a", schedule={"interval_s": 1})).open_store(create=True)
    serving = Serving(folder)
    serving.until("a.yaml", "committed")
    write(folder, "b", source={"type": "python", "class": "raises_as_it_is_imported:Source"})
    assert "NameError: no such name" in serving.until("b.yaml", "wrong").text
    serving.until("a.yaml", "committed", 2)


def test_commands_of_a_served_job_have_absolute_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "a")
    monkeypatch.chdir(folder.parent)
    job = read_job_files(Path(folder.name), (), {})["a.yaml"].job
    assert job is not None
    assert job.command("status") == f"distcommit status {folder}/a.yaml"


def test_time_limit_of_a_run_includes_the_time_of_its_alerts(folder: Path) -> None:
    alerts = {"after_failed_runs": 1, "commands": [{"command": ["true"], "timeout_s": 500}]}
    write(folder, "a", alerts=alerts)
    plan = read_job_files(folder, (), {})["a.yaml"].plan
    assert plan is not None
    assert plan.notify_ms == 500_000


def test_run_that_ignores_its_cancellation_ends_the_service(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("distcommit.app.scheduling.schedule.STUCK_MS", 200)
    monkeypatch.setattr("distcommit.app.serving.service._END_WAIT_S", 0.5)
    Job.from_file(write(folder, "a", schedule={"interval_s": 1, "cancel_after_s": 0.2})).open_store(create=True)
    serving, never = Serving(folder), threading.Event()
    serving.runs.acts["a"] = lambda _: suppress_wait(never)
    with pytest.raises(ProcessLostError, match=r"a cancelled run does not end \[job=a\.yaml\]"):
        serving.service.go()
    never.set()


def test_signal_cancels_all_runs_before_the_service_ends(folder: Path) -> None:
    stores = {}
    for name in ("a", "b"):
        job = Job.from_file(write(folder, name, schedule={"interval_s": 1}))
        stores[name] = job.open_store(create=True)

    class Interrupted(Serving):
        def tell(self, event: ServiceEvent) -> None:
            super().tell(event)
            if len(self.all("began")) == 2 and event.event == "began":
                raise KeyboardInterrupt  # like the SIGINT handler in the main thread

    serving = Interrupted(folder)

    def until_cancelled(job: Job) -> None:
        store, deadline_s = stores[job.config.job], time.monotonic() + 60
        while not any(read_cancel(store.fs, store.roots.store, epoch) for epoch in (1, 2)):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        raise RunCancelledError("the run was cancelled")

    serving.runs.acts = {"a": until_cancelled, "b": until_cancelled}
    with pytest.raises(KeyboardInterrupt):
        serving.service.go()
    assert sorted(serving.all("cancelled")) == ["a.yaml", "b.yaml"]
    assert serving.until("", "ends").text == "ended by a signal"
    assert len(serving.runs.done) == 2


def test_service_ends_with_the_signal_if_the_spark_session_ends_too(folder: Path) -> None:
    """A signal to the whole process group ends the session: every run fails, and the service waits for all of them."""
    jobs = [Job.from_file(write(folder, name, schedule={"interval_s": 1})) for name in ("a", "b")]
    for job in jobs:
        job.open_store(create=True)
    struck, first_reported = threading.Event(), threading.Event()

    class Interrupted(Serving):
        def tell(self, event: ServiceEvent) -> None:
            super().tell(event)
            if event.event == "began" and len(self.all("began")) == 2:
                struck.set()
                raise KeyboardInterrupt
            if event.event == "failed":
                first_reported.set()

    def dies(job: Job) -> None:
        assert struck.wait(60)
        assert job.config.job == "a" or first_reported.wait(60)
        raise ConnectionError("py4j: the JVM is gone")

    serving = Interrupted(folder, lives=lambda: False)
    serving.runs.acts = {"a": dies, "b": dies}
    with pytest.raises(KeyboardInterrupt):
        serving.service.go()
    assert sorted(serving.all("failed")) == ["a.yaml", "b.yaml"]


def test_service_ends_if_its_spark_session_has_ended(folder: Path) -> None:
    write(folder, "a", schedule={"interval_s": 1})

    def dies(_: Job) -> None:
        raise ConnectionError("py4j: the JVM is gone")

    serving = Serving(folder, lives=lambda: False)
    serving.runs.acts["a"] = dies
    with pytest.raises(ProcessLostError, match="the Spark session has ended"):
        serving.service.go()
    assert serving.all("failed") == ["a.yaml"]


@pytest.mark.parametrize("has_epoch", [False, True])
def test_run_that_cannot_begin_is_reported_by_the_alert_hooks_once(
    folder: Path, tmp_path: Path, has_epoch: bool
) -> None:
    """A run that has an epoch sends its own alerts."""
    hook = script(tmp_path, f"cat >> {tmp_path}/told; echo >> {tmp_path}/told")
    alerts = {"after_failed_runs": 2, "commands": [{"command": list(hook.command)}]}
    write(folder, "a", schedule={"interval_s": 1}, alerts=alerts)
    serving = Serving(folder)
    serving.runs.has_epoch = has_epoch

    def fails(_: Job) -> None:
        raise ConfigurationError("the store can't be read")

    serving.runs.acts["a"] = fails
    serving.until("a.yaml", "failed", count=3)
    sent = (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []
    assert len(sent) == (0 if has_epoch else 1)
    if sent:
        alert = json.loads(sent[0])
        assert (alert["failed_in_a_row"], alert["epoch"], alert["id"]) == (2, 0, "RUN_FAILED")
        assert all(alert[name] for name in ("severity", "title", "impact", "action"))
        assert "the store can't be read" in alert["reason"]


def test_all_unservable_job_files_are_reported_before_anything_runs(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="the folder has no job file to serve"):
        require_served(read_job_files(folder, (), {}), folder)
    (folder / "notes.txt").write_text("no job")
    (folder / ".hidden.yaml").write_text("no job")
    write(folder, "good")
    write(folder, "cluster", spark={"master": "spark://host:7077", "conf": {"spark.cores.max": 4}})
    write(folder, "connect", spark={"remote": "sc://host:1"})
    require_served(read_job_files(folder, (), {}), folder)
    write(folder, "cron", schedule={"cron": "61 * * * *"})
    write(folder, "zone", schedule={"cron": "* * * * *", "time_zone": "Mars/Phobos"})
    write(folder, "interval", schedule={"interval_s": 0})
    write(folder, "none", schedule=None)
    write(folder, "both", schedule=DAILY | {"interval_s": 5})
    write(folder, "console", sink={"type": "console"})
    write(folder, "stream", source={"type": "micro_batch", "dataset_column": "site"})
    (folder / "same.yaml").write_text((folder / "good.yaml").read_text())
    with pytest.raises(ConfigurationError) as caught:
        require_served(read_job_files(folder, (), {}), folder)
    for name, reason in {
        "cron": "'61 * * * *' is not a cron expression: bad minute",
        "zone": "schedule.time_zone must be an IANA time zone such as Europe/Brussels; found 'Mars/Phobos'",
        "interval": "schedule.interval_s must be at least 1; found 0",
        "none": "the job has no schedule",
        "both": "schedule.interval_s must not be set beside cron",
        "console": "console is for previews",
        "stream": "micro_batch is fed by a streaming query",
        "same": "the same job as good.yaml",
    }.items():
        problem = next(part for part in caught.value.found.split(" | ") if part.startswith(f"{name}.yaml: "))
        assert reason in problem
    assert not [part for part in caught.value.found.split(" | ") if part.startswith("good.yaml: ")]


def test_missing_folder_of_job_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the folder of job files can't be read"):
        read_job_files(tmp_path / "nowhere", (), {})
