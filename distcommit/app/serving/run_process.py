"""A run in a process of its own, for a job that cannot use the Spark session of the service.

The process receives the job on its stdin, because `ps` shows command lines. It sends pickled messages on its stdout:
log records, the run's events, and the result or the error. If the service dies, its stdin ends, and it ends too.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import NoneType
from typing import IO, Any

from distcommit.app.jobs.job import Job
from distcommit.core.errors import (
    DistcommitError,
    ProcessLostError,
    RunCancelledError,
    TransientError,
    add_ids,
    error_text,
    plain_text,
)
from distcommit.core.records.run_outcome import RunOutcome
from distcommit.engine.driver.run import RunResult
from distcommit.engine.run_events import Observer, RunBegan, RunEnded
from distcommit.engine.system_clock import SystemClock

_START_LIMIT_S = 600.0
"""Seconds within which the run must have its epoch. Some clusters that do not respond keep Spark waiting for longer."""
_END_WAIT_S = 30.0


def run_in_process(job: Job, observer: Observer, environment: Mapping[str, str]) -> RunResult:
    """Run a job once in a new process, which opens the Spark session of the job file and stops it.

    Args:
        job: the job, read from a file.

    Raises:
        DistcommitError: the error that ended the run.
        TransientError: if the run has not begun within ten minutes, or `schedule.cancel_after_s` if that is less.
        ProcessLostError: if the process died.
    """
    spark, schedule = job.config.spark, job.config.schedule
    ids = {"job": job.config.job, "master": spark.remote or spark.master}
    limit_s = min(_START_LIMIT_S, (schedule and schedule.cancel_after_s) or math.inf)
    level = logging.getLogger().getEffectiveLevel()
    command = [sys.executable, "-P", "-m", __name__]
    environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # a group of its own: Ctrl-C reaches the service alone, which then cancels the run
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, process_group=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it died, which its missing answer shows
            process.stdin.write(pickle.dumps((level, str(job.path), job.overrides, job.config.paths)))
            process.stdin.flush()
        limit = _StartLimit(process, limit_s)
        try:
            messages = _Messages(process.stdout, observer, limit)
            result = messages.result()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_WAIT_S)
        finally:
            limit.cancel()
            process.kill()
    if isinstance(result, RunResult):
        return result
    if limit.has_expired:
        raise TransientError(
            f"Spark did not start within {limit_s:,.0f} s",
            id="SPARK_UNAVAILABLE",
            todo="check that the cluster of spark.master responds and has free slots; the next firing tries again",
            **ids,
        )
    if result is None:
        error = ProcessLostError(
            "the process of the run died",
            exit_code=process.returncode,
            todo="none if it does not recur: the next run replays sealed commits. If it recurs, look for a killed"
            " process in the machine's log, and lower --at-once or spark.driver.memory",
            **ids,
        )
        if messages.epoch:
            observer.observe(RunEnded(RunOutcome.FAILED, SystemClock().now_ms(), error.id, error.text))
        raise error
    add_ids(result, job=ids["job"])
    raise result


class _StartLimit:
    """A time limit for the begin of a run. When it expires, the process gets SIGTERM, and SIGKILL if that does not end
    it.
    """

    def __init__(self, process: subprocess.Popen[bytes], limit_s: float) -> None:
        self._process, self.has_expired = process, False
        self._timer = threading.Timer(limit_s, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self.has_expired = True
        self._process.terminate()
        try:
            self._process.wait(_END_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


class _Messages:
    """The messages of a run's process: log records and events are passed on, the result or the error is returned."""

    def __init__(self, stream: IO[bytes], observer: Observer, limit: _StartLimit) -> None:
        self._stream, self._observer, self._limit = stream, observer, limit
        self.epoch = 0

    def result(self) -> RunResult | DistcommitError | None:
        """Read until the result or the error of the run, and return it; None if the process ended without."""
        with suppress(EOFError, pickle.UnpicklingError, AttributeError):  # it died, perhaps within a message
            while True:
                match message := pickle.load(self._stream):
                    case RunResult() | DistcommitError():
                        return message
                    case dict():
                        _log(message)
                    case _:
                        if isinstance(message, RunBegan):
                            self.epoch = message.epoch
                            self._limit.cancel()
                        self._observer.observe(message)
        return None


def _log(fields: dict[str, Any]) -> None:
    record = logging.makeLogRecord(fields | {"threadName": threading.current_thread().name})
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


class _Sender(logging.Handler):
    """A log handler and observer that sends log records and events of a run as messages."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self._stream, self._sending = stream, threading.RLock()  # a finalizer may log while a message is sent

    def send(self, message: object) -> None:
        content = pickle.dumps(message)
        with self._sending:
            self._stream.write(content)
            self._stream.flush()

    observe = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            error = record.exc_info[1] if record.exc_info else None
            text = record.getMessage() + (f": {error_text(error)}" if error else "")
            fields = vars(record) | {"msg": text, "args": None, "exc_info": None}
            portable = (int, float, NoneType)
            self.send(
                {key: value if isinstance(value, portable) else plain_text(value) for key, value in fields.items()}
            )
        except Exception:  # noqa: BLE001 - a bad logging call of a library must not end the run
            self.handleError(record)


def main() -> None:
    """Run the job that stdin names as the whole process."""
    lifeline, stream = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    level, path, overrides, paths = pickle.load(lifeline)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # custom code may print
    threading.Thread(target=_die_with, args=(lifeline,), name="lifeline", daemon=True).start()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # so that Spark cancels its jobs
    sender = _Sender(stream)
    logging.basicConfig(level=level, handlers=[sender])
    try:
        job = Job.from_file(path, overrides)
        if job.config.paths != paths:  # a cancellation would go to the other store
            raise TransientError(
                "the job file names other paths since this run was started",
                path=path,
                todo="none; the service reads the changed file and runs the job again",
            )
        sender.send(job.run(sender))
    except KeyboardInterrupt:
        sender.send(
            RunCancelledError("a signal ended the process of the run", todo="none; the next run replays sealed commits")
        )
    except DistcommitError as error:
        sender.send(_portable(error))
    except BaseException as error:  # noqa: BLE001 - whatever a custom class raises
        sender.send(DistcommitError(plain_text(error), id=type(error).__name__))


def _portable(error: DistcommitError) -> DistcommitError:
    """Return an error that the service can unpickle: it may lack the modules of custom classes."""
    if type(error).__module__.startswith("distcommit."):
        with suppress(Exception):
            pickle.dumps(error)
            return error
    kinds = [kind for kind in type(error).__mro__ if kind.__module__ == DistcommitError.__module__]
    portable: DistcommitError = kinds[0](error.text, id=error.id)
    return portable


def _die_with(lifeline: IO[bytes]) -> None:
    lifeline.read()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
