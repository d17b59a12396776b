"""The time from a record's produce to a reader of whole commits, with a service that runs repeatedly."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import yaml

from benchmarks.results import Results, Sample, results_of
from benchmarks.runner import Tell, WrongResultError, scratch
from benchmarks.workloads.topics import make_topics
from benchmarks.workloads.trickle import Trickle, cpu_seconds, watched
from distcommit import Job
from distcommit.app.demo.killed_run import RunProcess
from tests.servers.kafka import KafkaServer

_BEGIN_S, _SETTLE_S = 300.0, 300.0
_HOUR_S = 3600
_CALLS = "file,getdents64,fsync,fdatasync,syncfs,sendmsg,sendto"
_NOTES = [
    "from just before a record's produce() to the return of a distcommit.read() whose cut has it, in another process"
    " than the service; the reader looks for a newer cut every 50 ms",
    "the records of the first run, which starts Spark, do not count, nor do those of warm_up_s, in which Java compiles;"
    " with kills the seconds that Spark takes to start again do",
    "cores: processor seconds a second of the service, its JVM and workers, while records come",
    "quiet_*: of a window in which nothing is produced, times 3,600 over its seconds; requests: by strace in a window"
    " after it: calls on the job's files, and messages sent to the broker",
    "broker, producer, reader and service share the machine's cores; Spark has local[2]",
]


@dataclass(frozen=True, slots=True)
class Trickled:
    """Parameters of the trickle.

    `topics` of one partition get `rate` records a second in total for `seconds`, and for `warm_up_s` before, which does
    not count. A job of that many `buckets` runs every `interval_s`. `kills`: SIGKILLs to all processes of the service,
    evenly distributed. `quiet_s`: the time without records afterwards.
    """

    topics: int
    rate: float
    seconds: float
    interval_s: float
    buckets: int
    kills: int
    quiet_s: float
    seed: int
    warm_up_s: float = 0


def freshness(asked: Trickled, *, folder: Path, tell: Tell, brokers: str = "") -> Results:
    """Serve one job of all topics, and measure each record's time from produce to visible.

    Args:
        asked: the parameters.
        folder: on the used disk.
        tell: receives the progress.
        brokers: of a Kafka that has these topics, empty; without it one is started.

    Raises:
        ServerUnavailableError: if no Kafka broker is available.
        WrongResultError: if a record is not visible in the end, or the deep audit does not find it exactly once.
    """
    with ExitStack() as stack:
        root = stack.enter_context(scratch(folder))
        names = [topic_name(number) for number in range(asked.topics)]
        if not brokers:
            brokers = stack.enter_context(KafkaServer(heap_mb=512 + asked.topics // 5, for_long=True)).bootstrap_servers
            make_topics(brokers, names, 1)
        job = _write_job(root, brokers, asked)
        trickle = Trickle(brokers, names, asked.rate, asked.seed)
        trickle.send(names)
        service = stack.enter_context(_Service(root))
        with watched(job, trickle):
            _until_seen(trickle, service, _BEGIN_S)
            tell(f"the first run has committed {asked.topics} topics")
            trickle.go_on(asked.warm_up_s)
            trickle.forget()
            before_s = cpu_seconds(service.processes)
            with service.killed(asked.kills, asked.seconds, tell):
                trickle.go_on(asked.seconds)
            cost = {} if asked.kills else {"cores": (cpu_seconds(service.processes) - before_s) / asked.seconds}
            _until_seen(trickle, service, _SETTLE_S)
        quiet = _quiet(service, root, brokers, asked.quiet_s, tell) if asked.quiet_s else {}
        service.end()
        phases = _phases(job) | cost
        _require_exact(job, trickle)
    spread = _spread(trickle.delays)
    tell(f"{len(trickle.delays)} records: {spread}, runs: {phases}")
    parts = spread | phases | quiet | {"records": float(len(trickle.delays)), "kills": float(service.kills)}
    return results_of(
        "freshness",
        {**spread, **phases, **quiet},
        [Sample("ours", asked.topics, 1, 0, spread["produce_to_visible_p99_s"], parts)],
        seed=asked.seed,
        folder=folder,
        parameters={
            "topics": asked.topics,
            "rate": asked.rate,
            "seconds": asked.seconds,
            "warm_up_s": asked.warm_up_s,
            "interval_s": asked.interval_s,
            "buckets": asked.buckets,
            "kills": asked.kills,
            "quiet_s": asked.quiet_s,
        },
        skipped={} if shutil.which("strace") else {"requests": "strace is not installed"},
        notes=_NOTES,
    )


def topic_name(number: int) -> str:
    """Return the name of a topic, counted from 0."""
    return f"trickle-{number:05d}"


def _write_job(root: Path, brokers: str, asked: Trickled) -> Path:
    job = {
        "job": "trickle",
        "source": {"type": "kafka", "brokers": brokers, "topic_patterns": ["trickle-.*"]},
        "paths": {name: name for name in ("store", "staging", "output")},
        "commit": {"buckets": asked.buckets},
        "schedule": {"interval_s": asked.interval_s},
        "freshness": {"target": max(5.0, asked.interval_s)},
        "spark": {"master": "local[2]", "partitions": 2},
    }
    path = root / "jobs" / "trickle.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(job | {"paths": {name: str(root / name) for name in job["paths"]}}))
    return path


class _Service:
    """`distcommit schedule serve`, which is started again after each kill."""

    def __init__(self, root: Path) -> None:
        self._root, self._stack, self._starts = root, ExitStack(), 0
        self.kills = 0

    def __enter__(self) -> _Service:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._starts += 1
        name = self._root / f"serve-{self._starts}"
        command = ["schedule", "serve", str(self._root / "jobs"), "--json"]
        self._process = self._stack.enter_context(
            RunProcess(command, name.with_suffix(".out"), name.with_suffix(".err"), niceness=0)
        )

    @property
    def processes(self) -> list[int]:
        return self._process.processes()

    def require_alive(self) -> None:
        """Raise WrongResultError if it has ended by itself."""
        if self._process.has_ended:
            raise WrongResultError(f"the service has ended: {self._process.stderr.read_text()[-2000:]}")

    def end(self) -> None:
        """End it as a supervisor does, and wait for it."""
        os.kill(min(self.processes), signal.SIGTERM)  # the command itself was the first process
        if self._process.wait(120) is None:
            raise WrongResultError("the service does not end")

    @contextmanager
    def killed(self, times: int, seconds: float, tell: Tell) -> Iterator[None]:
        """Kill it and start it again that often, evenly in these seconds, during the block."""
        ended = threading.Event()

        def kill() -> None:
            for _ in range(times):
                if ended.wait(seconds / (times + 1)):
                    return
                self._process.kill()
                self.kills += 1
                self._start()
                tell("killed, and started again")

        thread = threading.Thread(target=kill, name="killer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _until_seen(trickle: Trickle, service: _Service, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while trickle.waiting:
        if time.monotonic() > deadline_s:
            raise WrongResultError(f"{trickle.waiting} records could not be seen after {seconds:g} s")
        service.require_alive()
        time.sleep(0.1)
    if trickle.errors:
        raise WrongResultError(f"records could not be produced: {trickle.errors[0]}")


def _quiet(service: _Service, root: Path, brokers: str, seconds: float, tell: Tell) -> dict[str, float]:
    """Return the costs of the idle service, by the hour."""
    tell(f"quiet for {seconds:g} s")
    pids = service.processes
    before_s, began_s = cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    costs = {"quiet_cpu_s_per_hour": (cpu_seconds(service.processes) - before_s) * _HOUR_S / took_s}
    if shutil.which("strace"):
        trace = root / "trace"
        attached = [part for pid in service.processes for part in ("-p", str(pid))]
        command = ["strace", "-f", "-qq", "-yy", "-s", "0", "-e", f"trace={_CALLS}", "-o", str(trace), *attached]
        began_s = time.monotonic()
        with suppress(subprocess.TimeoutExpired), _terminated(command) as strace:
            strace.wait(seconds)
        hours = (time.monotonic() - began_s) / _HOUR_S
        files, messages = calls_of(trace.read_text(errors="replace"), str(root), brokers)
        costs |= {"quiet_file_calls_per_hour": files / hours, "quiet_broker_requests_per_hour": messages / hours}
    return costs


@contextmanager
def _terminated(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def calls_of(trace: str, root: str, brokers: str) -> tuple[int, int]:
    """Return how many calls of a trace by `strace -f -yy` are on files below a folder, and how many send to a
    broker."""
    ports = [re.escape(name.rpartition(":")[2]) for name in brokers.split(",")]
    to_broker = re.compile(rf"^\d+ +send(?:msg|to)\(\d+<[^>]*->[^>]*:(?:{'|'.join(ports)})\]>")
    lines = [line for line in trace.splitlines() if "resumed>" not in line]
    sent = [line for line in lines if to_broker.match(line)]
    return len([line for line in lines if f"{root}/" in line and not to_broker.match(line)]), len(sent)


def _phases(job: Path) -> dict[str, float]:
    """Return medians over the stored runs: of whole ones, and of their phases."""
    opened, seconds = Job.from_file(job), dict[str, list[float]]()
    for row in opened.runs().runs:
        if row.status != "COMMITTED":
            continue
        seconds.setdefault("run_s", []).append((row.ended_ms - row.began_ms) / 1000)
        record = opened.recorded_run(row.epoch).record
        for phase in record.phases if record is not None else ():
            seconds.setdefault(f"{phase.name}_s", []).append(phase.seconds)
    return {name: median(values) for name, values in seconds.items()}


def _require_exact(job: Path, trickle: Trickle) -> None:
    audit = Job.from_file(job).audit(deep=True)
    if not audit.exact or audit.records != trickle.produced:
        raise WrongResultError(f"{trickle.produced} records were produced, and the audit finds {audit}")


def _spread(delays: list[float]) -> dict[str, float]:
    cuts = quantiles(delays, n=100, method="inclusive")
    return {
        "produce_to_visible_p50_s": median(delays),
        "produce_to_visible_p90_s": cuts[89],
        "produce_to_visible_p99_s": cuts[98],
        "produce_to_visible_max_s": max(delays),
    }
