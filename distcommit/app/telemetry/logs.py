"""The driver's log of a run: JSON lines with the job's name and the run's id."""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from distcommit.core.errors import ConfigurationError, error_text, escaped_in_json, plain_text, reason_text
from distcommit.engine.run_events import Event, RunBegan

_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


class _Level:
    """The level of a logger, which is at most INFO while at least one run needs it."""

    def __init__(self) -> None:
        self._lock, self._runs, self._before = threading.Lock(), 0, logging.NOTSET

    @contextmanager
    def at_info(self, logger: logging.Logger) -> Iterator[None]:
        with self._lock:
            if not self._runs:
                self._before = logger.level
                logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
            self._runs += 1
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    logger.setLevel(self._before)


_LEVEL = _Level()


class JsonLog(logging.Handler):
    """Observer and log handler that appends the run's events, except its progress, and log records of level INFO and
    above to a file. Raises ConfigurationError if the file can't be opened.
    """

    def __init__(self, path: str) -> None:
        super().__init__(logging.INFO)
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise ConfigurationError("the log file can't be written", path=path, found=str(error)) from error
        self._ids: dict[str, Any] = {}
        self._thread = threading.get_ident()

    def observe(self, event: Event) -> None:
        if isinstance(event, RunBegan):
            self._ids = {"job": plain_text(event.job), "run": event.run_id, "epoch": event.epoch}
        event_type = type(event).__name__
        facts = {
            "event": event_type,
            **{name: getattr(event, name) for name in ("phase", "outcome") if hasattr(event, name)},
        }
        if event_type != "Progressed":
            self._write(getattr(event, "at_ms", 0) / 1000, "INFO", "distcommit.events", event_type, facts)

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread != self._thread and str(record.threadName).startswith("job "):  # another job's, of one service
            return
        extra = {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            extra["trace"] = logging.Formatter().formatException(record.exc_info)
        self._write(record.created, record.levelname, record.name, record.getMessage(), extra)

    def record_failure(self, error: BaseException) -> None:
        """Record the error that ends the run, with its traceback, which the terminal does not show."""
        trace = "".join(traceback.format_exception(error))
        text = error_text(error) if isinstance(error, Exception) else type(error).__name__
        self._write(0, "ERROR", "distcommit", f"the run ends with an error: {text}", {"trace": trace})

    def close(self) -> None:
        self._file.close()
        super().close()

    def _write(self, at_s: float, level: str, name: str, text: str, extra: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(at_s, UTC) if at_s else datetime.now(UTC)
        line = {"at": at.isoformat(), "level": level, "logger": name, "text": reason_text(text, 10_000), **self._ids}
        existing = {
            key: value if isinstance(value, int | float) else reason_text(value, 10_000) for key, value in extra.items()
        }
        try:
            self._file.write(escaped_in_json(json.dumps(line | existing)) + "\n")
            self._file.flush()
        except (OSError, ValueError):
            self.handleError(logging.makeLogRecord({"msg": text}))


@contextmanager
def logged(path: str) -> Iterator[JsonLog]:
    handler, logger = JsonLog(path), logging.getLogger("distcommit")
    with _LEVEL.at_info(logger):
        logger.addHandler(handler)
        try:
            yield handler
        except BaseException as error:
            handler.record_failure(error)
            raise
        finally:
            logger.removeHandler(handler)
            handler.close()
