"""Output of a command: data on stdout; logs, progress and errors on stderr."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import msgspec
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from distcommit.app.job_file.problems.setting_problems import JobFileError
from distcommit.cli.command_failure import FailureDocument, causes_beside, failure_of, text_of
from distcommit.cli.command_process import INTERRUPTED, has_reader, interrupted_by_signals, output_stream
from distcommit.core.errors import escaped_in_json, printable
from distcommit.core.redaction import redacted

Result = TypeVar("Result", bound=msgspec.Struct)

_WIDTH_IN_FILES = 100
_KEPT_LINES = 20
_EXPLAINED_BY_JVM = frozenset({"PROCESS_LOST", "SPARK_SETTINGS_INVALID", "UNEXPECTED_ERROR"})
"""Ids of errors for which the last output of the JVM and of C libraries is printed."""
_NOISE = re.compile(
    r"^\s|^$|^Traceback |^\w+Error$|^-{20}|^Exception occurred during|Using incubator modules|log4j profile"
    r"|[Dd]efault log level|adjust logging level|Setting Spark log level|NativeCodeLoader"
    r"|Your hostname|SPARK_LOCAL_IP|sun\.misc\.Unsafe"
    r"|^WARNING: (Please consider|A terminally|Use --|A restricted|java\.lang|Restricted)"
)


class Terminal:
    """The stdout and stderr of one command.

    Spark's JVM, C libraries and Python warnings write to file descriptor 2, which is redirected to a buffer. If Spark
    fails, the last lines of the buffer are printed. With `verbose`, the descriptor is not redirected.

    Args:
        as_json: whether results are printed as one line of JSON.
        verbose: whether logs of level INFO and tracebacks are printed.
    """

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json, self.verbose = as_json, verbose
        self._noise: IO[bytes] | None = None
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)

    @contextlib.contextmanager
    def command(self, *, lasts: bool = False) -> Iterator[None]:
        """Run a command. An error is printed on stderr, with `as_json` also as a document on stdout, and ends the
        process with the error's exit code.

        SIGTERM and SIGHUP end the command like Ctrl-C. `lasts`: the command runs for days, so stderr is not buffered.
        """
        with contextlib.nullcontext() if lasts else self._quiet(), self._logging(), interrupted_by_signals():
            code = 0
            try:
                yield
            except KeyboardInterrupt:
                code = INTERRUPTED
                self.err.print("[red]interrupted[/]; the next run replays what was sealed")
            except (SystemExit, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - the process ends here; also panics of native code
                code = self._fail(error)
        if code:
            sys.exit(code)

    def watched(self, look: Callable[[], Result], *, every_s: float) -> Iterator[Result]:
        """Yield one result of `look`; if `every_s` is not 0, yield one every `every_s` seconds. A terminal is cleared
        before each result.
        """
        while True:
            result = look()
            if every_s and not self.as_json and self.out.is_terminal:
                self.out.clear()
            yield result
            if not every_s or not has_reader(sys.stdout):
                return
            time.sleep(every_s)

    def show(self, result: Result, view: Callable[[Result], RenderableType]) -> None:
        """Print a result, as one line of JSON or by `view`. Control characters are escaped."""
        if self.as_json:
            sys.stdout.write(_as_json(result) + "\n")
            sys.stdout.flush()
        else:
            self.out.print(view(_printable(result)), crop=False)  # a command is a line, however long

    def print_line(self, text: str) -> None:
        """Print a line of narration to stdout, or to stderr if stdout is for JSON. A line without indentation is a
        heading.
        """
        console, text = self.err if self.as_json else self.out, printable(text)
        if console.is_terminal and text.startswith(" "):
            plain = text.lstrip()
            console.print(Padding(Text(plain), (0, 0, 0, len(text) - len(plain))))
        else:
            console.print(Text(text, style="" if text.startswith(" ") else "bold"), soft_wrap=True)

    def narrate(self, text: str) -> None:
        """Print a line about progress to stderr."""
        self.err.print(Text(printable(text), style="dim"), soft_wrap=True)

    def _fail(self, error: BaseException) -> int:
        failure = failure_of(error)
        if self.verbose:
            trace = printable(redacted("".join(traceback.format_exception(error))), lines=True)
            self.err.print(trace, markup=False, highlight=False, end="")
        elif failure.id in _EXPLAINED_BY_JVM:
            for line in self._last_noise():
                self.err.print(Text(f"  | {printable(redacted(line), lines=True)}", style="dim"), soft_wrap=True)
        problems = error.problems if isinstance(error, JobFileError) else ()
        lines = [printable(redacted(str(problem))) for problem in problems] if len(problems) > 1 else []
        shown = f"{failure.id}: the job file has {len(lines)} problems:" if lines else failure.line
        self.err.print(f"[bold red]error:[/] {escape(shown)}", highlight=False, soft_wrap=True)
        for line in [*lines, *(f"cause: {cause}" for cause in causes_beside(failure, error))]:
            self.err.print(Text(f"  {line}"), soft_wrap=True)
        if self.as_json:
            sys.stdout.write(_as_json(FailureDocument(failure, tuple(lines))) + "\n")
            sys.stdout.flush()
        return failure.exit_code

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        """Redirect descriptor 2 to a buffer, also for child processes. `err` still prints to the original stderr."""
        try:
            descriptor = -1 if self.verbose else sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # stderr of a test is not a file
            descriptor = -1
        if descriptor != 2:
            yield
            return
        with tempfile.TemporaryFile() as noise, os.fdopen(os.dup(2), "w", buffering=1, errors="replace") as visible:
            sys.stderr.flush()
            self._noise, self.err = noise, _console(output_stream(visible, "stderr"))
            os.dup2(noise.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(visible.fileno(), 2)
                self._noise, self.err = None, _console(sys.stderr)

    def _last_noise(self) -> list[str]:
        if self._noise is None:
            return []
        self._noise.seek(0)
        lines = self._noise.read().decode(errors="replace").splitlines()
        return [line for line in lines if not _NOISE.search(line)][-_KEPT_LINES:]

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        root, handler = logging.getLogger(), _StderrHandler(self)
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.INFO if self.verbose else logging.WARNING)
        handler.setLevel(root.level)  # even if the log file of a run lowers the level of loggers
        # py4j logs errors when an interrupt ends its calls, in part by the root logger
        logging.getLogger("py4j").setLevel(logging.WARNING if self.verbose else logging.CRITICAL)
        if not self.verbose:
            handler.addFilter(lambda record: record.module != "java_gateway")
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)


class _StderrHandler(logging.Handler):
    """A log handler that prints records as lines on stderr, with their ids."""

    _PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._print(record)
        except Exception:  # noqa: BLE001 - as in every handler
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        ids = ", ".join(f"{key}={value}" for key, value in vars(record).items() if key not in self._PLAIN)
        text = printable(redacted(record.getMessage() + (f" [{ids}]" if ids else "")))
        if self._terminal.verbose:
            clock = self._formatter.formatTime(record, "%H:%M:%S")
            text = f"{clock}.{record.msecs:03.0f} {record.levelname} {record.name}: {text}"
            if record.exc_info:
                text += "\n" + printable(redacted(self._formatter.formatException(record.exc_info)), lines=True)
        else:
            error = record.exc_info[1] if record.exc_info else None
            text = f"{record.levelname.lower()}: {text}" + (
                f": {printable(redacted(_first_line(error)))}" if error else ""
            )
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else "dim"
        self._terminal.err.print(Text(text, style=style), soft_wrap=True)


def _as_json(result: msgspec.Struct) -> str:
    try:
        return escaped_in_json(msgspec.json.encode(result).decode())
    except UnicodeEncodeError:  # a file name that is not valid text
        return json.dumps(msgspec.to_builtins(result))


def _printable(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case msgspec.Struct():
            fields = {name: _printable(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        case dict():
            return {_printable(key): _printable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(_printable, value))
        case _:
            return value


def _console(file: IO[str]) -> Console:
    return Console(file=file, width=None if file.isatty() else _WIDTH_IN_FILES, highlight=False)


def _first_line(error: BaseException) -> str:
    return (text_of(error).strip().splitlines() or [type(error).__name__])[0]
