"""The error that ends a command: one line for each cause, or an object of JSON."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import msgspec

from distcommit.app.job_file.problems.setting_problems import JobFileError
from distcommit.core.error_catalogue import ERRORS
from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import DistcommitError, error_text, printable, split_remedy
from distcommit.core.redaction import redacted
from distcommit.engine.driver.launch_interface import JobFailedError

_UNEXPECTED = "UNEXPECTED_ERROR"
_PROGRAM = "distcommit"


class Failure(msgspec.Struct, frozen=True):
    """An error as `--json` prints it, below the key `error`.

    Attributes:
        id: stable id in the error catalogue, such as `JOB_FILE_INVALID`.
        title: kind of error, from the error catalogue.
        text: id and the error without its remedy. An unexpected error has its class name instead of an id.
        cause: innermost cause that the error states, or else the cause in the catalogue.
        action: remedy that the error states, or else the action in the catalogue.
        command: the `distcommit` command that resolves the error or shows more; empty without such a command.
        exit_code: exit code of the command.
    """

    id: str
    title: str
    text: str
    cause: str
    action: str
    command: str
    exit_code: int

    @property
    def line(self) -> str:
        """The text, and the remedy unless the text already ends with it."""
        ends = self.id == _UNEXPECTED or self.text.endswith(self.action)
        return self.text if ends else f"{self.text}. To do: {self.action}"


class FailureDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON document of a command that failed.

    Attributes:
        error: the error.
        problems: each problem of the job file, if there are several; otherwise empty.
    """

    error: Failure
    problems: tuple[str, ...] = ()


def failure_of(error: BaseException) -> Failure:
    """Return the failure to print for the error that ended a command. Spark converts an executor's error to the text of
    a traceback, from which its class and text are parsed.
    """
    if isinstance(error, DistcommitError):
        return _of_catalogue(error, error.exit_code)
    if isinstance(error, OSError):
        return _of_catalogue(storage_error(error, "a storage operation failed"), 4)
    if not isinstance(error, Exception):  # a panic of native code
        return _unexpected(error_text(error))
    text = text_of(error)
    lines = [line for line in text.splitlines() if re.match(r"[A-Za-z_][\w.]*: ", line)]
    if "Traceback (most recent call last)" not in text or not lines:
        named = ": ".join(filter(None, (type(error).__name__, text)))
        return _unexpected(error.found if isinstance(error, JobFailedError) else named)
    name, _, line = lines[-1].partition(": ")
    kinds = {f"{kind.__module__}.{kind.__name__}": kind for kind in _subclasses(DistcommitError)}
    return failure_of(kinds[name].from_text(line)) if name in kinds else _unexpected(lines[-1])


def causes_beside(failure: Failure, error: BaseException) -> Iterator[str]:
    """Yield the innermost cause of an error as one line, unless the failure's line already has it."""
    inner, chain = error, {id(error)}
    while inner.__cause__ is not None and id(inner.__cause__) not in chain:
        inner = inner.__cause__
        chain.add(id(inner))
    match inner:
        case DistcommitError():
            text = shown = split_remedy(str(inner))[0]
        case OSError():
            text, shown = inner.strerror or "", error_text(inner)
        case _:
            return
    if inner is not error and text and (text.partition(": ")[2] or text) not in failure.line:
        yield _one_line(shown)


def text_of(error: BaseException) -> str:
    """Return the text of an error; empty if the text is in a JVM that has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - any error of py4j
        return ""


def _of_catalogue(error: DistcommitError, exit_code: int) -> Failure:
    entry = ERRORS.get(error.id) or ERRORS[DistcommitError.id]
    text, action = split_remedy(_one_line(str(error)))
    problems = error.problems if isinstance(error, JobFileError) else ()
    own_remedy = problems[0].remedy if len(problems) == 1 else ""
    dataset = shlex.quote(printable(error.ids.get("dataset", "DATASET")))
    return Failure(
        error.id,
        entry.title,
        text.removesuffix("."),
        text.rpartition("; found ")[2] if "; found " in text else entry.cause,
        action or own_remedy or entry.action,
        f"{_PROGRAM} {entry.command}".replace("DATASET", dataset) if entry.command else "",
        exit_code,
    )


def _unexpected(text: str) -> Failure:
    entry, line = ERRORS[_UNEXPECTED], _one_line(text)
    return Failure(entry.id, entry.title, line, line, entry.action, "", 1)


def _one_line(text: str) -> str:
    return printable(redacted(" ".join(text.split())))


def _subclasses(kind: type[DistcommitError]) -> Iterator[type[DistcommitError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)
