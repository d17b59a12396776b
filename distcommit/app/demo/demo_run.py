"""The demo: ingest from an embedded broker, kill a run in mid-commit, replay, and count the published records.

Runs are separate processes. Published records are compared with produced ones twice: by the audit, and by counting and
summing the files without it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from distcommit.app.auditing.audit import AuditResult
from distcommit.app.demo.broker import MockBroker
from distcommit.app.demo.count_published import CHECKSUM_MODULUS, Published
from distcommit.app.demo.flights import flights, produce, topics_of
from distcommit.app.demo.killed_run import CommitSnapshot, CommitWatcher, RunProcess, kill_in_mid_commit
from distcommit.app.jobs.job import Job
from distcommit.core.errors import ConfigurationError, DistcommitError
from distcommit.core.records.run_reasons import Reasons
from distcommit.core.support.decoding import from_json
from distcommit.core.support.install_command import install_command
from distcommit.engine.driver.run import RunResult

PARTITIONS_PER_TOPIC = 4
FIRST_SHARE = 0.6
"""Share of the flights that the first run reads."""
SECOND_SHARES = (0.3, 0.03, 0.03)
"""Shares of the flights for the runs to be killed. The second and third are used if the previous run ended by
itself.
"""
LEAST_PUBLISHED = (0.1, 0.0, 0.0)
"""Minimum share of published files before the kill, for each of these runs."""
NOTICE_INTERVAL_S = 60.0
"""Seconds between notices that a run is still in progress."""

_JOB = """\
# The job of `distcommit demo`. Its broker lives as long as the demo; its store can be inspected later:
#   distcommit status job.yaml
#   distcommit audit job.yaml --deep
job: demo-flights

source:
  type: kafka
  brokers: {brokers}
  topic_patterns: ['flights\\..*']   # one topic for each destination airport
  dataset: partition                # each partition is committed by itself; `topic` would take them together

converters:
  - type: json
    fields: {{time_hour: timestamp}}  # the flight's own time, which files are partitioned by

sink:
  format: parquet
  partition_by: {{column: time_hour, granularity: month}}

paths: {{store: store, staging: staging, output: output}}

commit:
  buckets: 4                # few, so that each commit is large
  min_interval_ms: 60000    # and comes at the end of a task: easier to hit in the middle
"""


class DemoResult(msgspec.Struct):
    """The result of the demo. Records in published files are counted without the product.

    Attributes:
        exact: whether `problems` is empty. This requires a kill, a replay and equal counts.
        problems: differences from an exact ingestion, and missing conditions such as the kill.
        records_produced: records produced to the broker.
        records_published: records in the published files, including duplicates.
        duplicates: records that are published in addition to their first copy.
        missing: produced records that are not published.
        checksum_produced: checksum of the produced records, 16 hexadecimal digits.
        checksum_published: checksum of the published records, 16 hexadecimal digits.
        killed_mid_commit: whether the second run was killed with published and staged files.
        sequences_pending_at_kill: sealed sequences that were not closed at the kill.
        files_published_at_kill: files of these sequences that were published at the kill.
        files_staged_at_kill: files of these sequences that were in staging at the kill.
        sequences_replayed: sequences that the third run replayed.
        datasets: number of audited datasets.
        files: number of published files.
        audit_exact: whether `distcommit audit --deep` reports exactly-once output.
        seconds: duration of each step in seconds, by the name of the step.
        folder: absolute path of the folder with the job file and all folders of the job.
    """

    exact: bool = False
    problems: list[str] = []
    records_produced: int = 0
    records_published: int = 0
    duplicates: int = 0
    missing: int = 0
    checksum_produced: str = ""
    checksum_published: str = ""
    killed_mid_commit: bool = False
    sequences_pending_at_kill: int = 0
    files_published_at_kill: int = 0
    files_staged_at_kill: int = 0
    sequences_replayed: int = 0
    datasets: int = 0
    files: int = 0
    audit_exact: bool = False
    seconds: dict[str, float] = {}
    folder: str = ""


def run_demo(folder: Path, narrate: Callable[[str], None]) -> DemoResult:
    """Run the demo, in about a minute.

    Args:
        folder: a new or empty folder for the job file and the job's folders.
        narrate: called with the narration: headings, and lines of detail that begin with a space.

    Raises:
        ConfigurationError: if the folder is in use, or Spark can't run.
        DistcommitError: if a run fails that was not killed.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError(
            "the demo's folder is in use", id="ARGUMENT_INVALID", path=folder, todo="name a new or an empty folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return _Story(folder.resolve(), narrate).tell()


class _Failure(msgspec.Struct):
    """The output of a failed command: its error, or a result with reasons.

    Attributes:
        error: text of the error; empty if the command ended with a result.
        reasons: why datasets failed; empty if the command ended with an error.
    """

    error: str = ""
    reasons: Reasons = Reasons()


class _Story:
    def __init__(self, folder: Path, narrate: Callable[[str], None]) -> None:
        self._folder, self._say = folder, narrate
        self._result = DemoResult(folder=str(folder))
        self._job_file = folder / "job.yaml"
        self._table = _flights()
        self._produced_rows = 0
        self._checksum = 0
        self._runs = 0
        self._steps = 0

    def tell(self) -> DemoResult:
        with self._timed("broker"):
            topics = topics_of(self._table, PARTITIONS_PER_TOPIC)
            broker = MockBroker.start(topics)
        with broker:
            self._heading("A Kafka broker, inside the demo")
            self._detail(
                f"{len(topics)} topics with {PARTITIONS_PER_TOPIC} partitions each, at {broker.bootstrap_servers}"
            )
            self._brokers = broker.bootstrap_servers
            self._heading("A job file, as you would write it")
            self._job_file.write_text(_JOB.format(brokers=self._brokers), encoding="utf-8")
            self._detail(f"{self._job_file}")
            self._detail("each partition of a topic is a dataset, with a folder of files for each month")
            self._heading("The first flights are produced, and a first run ingests them")
            self._produce(FIRST_SHARE)
            self._show_run(self._run_to_its_end("first run"))
            self._heading("More flights; the second run is killed in the middle of its commit")
            self._kill_a_run()
            self._heading("The last flights; the third run is the same command once more")
            self._produce(1.0)
            third = self._run_to_its_end("third run")
            self._result.sequences_replayed = third.totals.sequences_replayed
            self._detail(f"first it completed the {third.totals.sequences_replayed} commits of the killed run")
            self._show_run(third)
        self._heading("Is every record there, once?")
        self._audit()
        self._count()
        self._judge()
        return self._result

    def _produce(self, share: float) -> None:
        end = round(self._table.num_rows * share)
        rows = self._table.slice(self._produced_rows, end - self._produced_rows)
        with self._timed("produce"):
            produced = produce(self._brokers, rows, PARTITIONS_PER_TOPIC)
        self._produced_rows = end
        self._result.records_produced += produced.records
        self._checksum = (self._checksum + produced.checksum) % CHECKSUM_MODULUS
        self._detail(f"{produced.records:,} flights produced, to {produced.topics} topics: {_first_and_last(rows)}")

    def _start_run(self) -> RunProcess:
        self._runs += 1
        name = self._folder / f"run-{self._runs}"
        return RunProcess(["run", str(self._job_file), "--json"], name.with_suffix(".json"), name.with_suffix(".log"))

    def _run_to_its_end(self, name: str) -> RunResult:
        self._detail(f"$ distcommit run {self._job_file.name}")
        with self._timed(name), self._start_run() as run:
            code = self._exit_code(run)
        return self._outcome(run, code)

    def _exit_code(self, run: RunProcess) -> int:
        """Wait for the run and return its exit code. There is no time limit, because the machine may be slow."""
        began_s = time.monotonic()
        while (code := run.wait(NOTICE_INTERVAL_S)) is None:
            self._detail(f"still running after {time.monotonic() - began_s:.0f} s; its log: {run.stderr}")
        return code

    def _outcome(self, run: RunProcess, code: int) -> RunResult:
        lines = run.stdout.read_text(encoding="utf-8").splitlines()
        if code == 0:
            return from_json(lines[-1], RunResult)
        actual = f"exit code {code}"
        with contextlib.suppress(msgspec.DecodeError, IndexError):
            outcome = from_json(lines[-1], _Failure)
            actual += f"; {outcome.error}" if outcome.error else ""
            actual += "".join(f"; {reason.subject}: {reason.text}" for reason in outcome.reasons.entries[:1])
        raise DistcommitError(
            "a run of the demo failed",
            expected="exit code 0",
            found=actual,
            todo=f"look at {run.stderr} and {run.stdout}",
        )

    def _show_run(self, result: RunResult) -> None:
        totals = result.totals
        self._detail(
            f"{totals.datasets_published} datasets committed: {totals.records_published:,} records in"
            f" {totals.files_published:,} files ({sum(result.seconds.values()):.1f} s)"
        )

    # -- the kill

    def _kill_a_run(self) -> None:
        reached = FIRST_SHARE
        store = Job.from_file(self._job_file).open_store(create=False)
        for share, least_published in zip(SECOND_SHARES, LEAST_PUBLISHED, strict=True):
            reached += share
            self._produce(reached)
            self._detail(f"$ distcommit run {self._job_file.name}")
            with self._timed("second run, killed"), self._start_run() as run:
                snapshot = kill_in_mid_commit(run, CommitWatcher(store), least_share=least_published)
                if snapshot is not None:
                    self._show_kill(snapshot, run.killed)
                    return
                code = self._exit_code(run)
            self._outcome(run, code)
            self._detail("it ended before it could be caught; once more with a few more flights")

    def _show_kill(self, snapshot: CommitSnapshot, processes: int) -> None:
        result = self._result
        result.killed_mid_commit = True
        result.sequences_pending_at_kill = snapshot.pending
        result.files_published_at_kill, result.files_staged_at_kill = snapshot.published, snapshot.staged
        self._detail(f"caught: SIGKILL to all {processes} processes: driver, JVM, Python workers")
        self._detail(f"{snapshot.pending} datasets had begun their commit and not completed it")
        self._detail(f"of their files {snapshot.published:,} were published and {snapshot.staged:,} were not:")
        self._detail(
            f"{snapshot.pending - snapshot.untouched - snapshot.half_published} datasets whole,"
            f" {snapshot.half_published} by half, {snapshot.untouched} not at all"
        )
        moved = "none of their watermarks had moved" if snapshot.watermarks_unchanged else "WATERMARKS HAD MOVED"
        self._detail(moved)
        if not snapshot.watermarks_unchanged:
            result.problems.append("a watermark had moved before its sequence was closed")

    # -- counting

    def _audit(self) -> None:
        with self._timed("audit"):
            audit = Job.from_file(self._job_file).audit(deep=True)
        self._result.audit_exact, self._result.datasets = audit.exact, audit.datasets
        self._detail(f"$ distcommit audit {self._job_file.name} --deep")
        self._detail(
            f"{'exact' if audit.exact else 'NOT EXACT'}: {audit.duplicates} duplicates, {audit.gaps} gaps,"
            f" {audit.past_watermark} past a watermark, {_strays(audit)} stray files"
        )

    def _count(self) -> None:
        result = self._result
        with self._timed("count"):
            published = Published(Job.from_file(self._job_file).config.paths.output)
        result.files = published.files
        result.records_published = published.records
        result.duplicates = published.records - published.distinct
        result.missing = result.records_produced - published.distinct
        result.checksum_produced, result.checksum_published = f"{self._checksum:016x}", f"{published.checksum:016x}"
        self._detail("and without the product, from the published files alone:")
        self._detail(f"{result.records_produced:,} records produced,  checksum {result.checksum_produced}")
        self._detail(f"{result.records_published:,} records published, checksum {result.checksum_published}")

    def _judge(self) -> None:
        result = self._result
        wrong = {
            "no run could be caught in the middle of its commit": not result.killed_mid_commit,
            "the third run did not replay the sequences of the killed run": (
                result.sequences_replayed != result.sequences_pending_at_kill
            ),
            "the audit found something": not result.audit_exact,
            f"{result.duplicates} records are published twice": result.duplicates != 0,
            f"{result.missing} records are missing": result.missing != 0,
            "the checksums differ": result.checksum_produced != result.checksum_published,
        }
        result.problems += [problem for problem, is_so in wrong.items() if is_so]
        result.exact = not result.problems

    # -- narration

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            seconds = self._result.seconds
            seconds[step] = round(seconds.get(step, 0.0) + time.monotonic() - began_s, 2)

    def _heading(self, text: str) -> None:
        self._steps += 1
        self._say(f"{self._steps}. {text}")

    def _detail(self, text: str) -> None:
        self._say(f"   {text}")


def _flights() -> pa.Table:
    try:
        return flights()
    except FileNotFoundError as error:
        raise ConfigurationError(
            "the demo has no data", id="PACKAGE_MISSING", found=str(error), todo=f"run `{install_command('demo')}`"
        ) from error


def _first_and_last(rows: pa.Table) -> str:
    hours = rows["time_hour"]
    return f"{hours[0].as_py():%-d %B} to {hours[-1].as_py():%-d %B %Y}"


def _strays(audit: AuditResult) -> int:
    return audit.unknown_files_count + audit.orphaned_files_count + audit.sweepable_files_count
