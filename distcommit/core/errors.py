"""The error tree, grouped by the caller's next action.

Every message states the failure with its ids, the expected state, the actual state and a remedy. Every error can be
pickled, because Spark carries errors between processes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from distcommit.core.redaction import redacted

AnyError = TypeVar("AnyError", bound=Exception)


class DistcommitError(Exception):
    """Root of all errors that distcommit raises on purpose.

    Args:
        failure: what failed and how, in one clause.
        id: the error's id in `core.error_catalogue`, if its action differs from the action of the class's own id.
        expected: the required state.
        found: the actual state. If it quotes an error, only the innermost cause is printed, and the quoted remedy only
            if `todo` is empty.
        todo: the remedy, in the imperative.
        **ids: the names involved (dataset, epoch, bucket, path, ...).
    """

    exit_code = 1
    id = "OPERATION_FAILED"

    def __init__(
        self, failure: str, *, id: str = "", expected: str = "", found: str = "", todo: str = "", **ids: object
    ) -> None:
        self.failure, self.expected, self.found, self.todo = failure, expected, found, todo
        if id:
            self.id = id
        self.ids = {name: str(value) for name, value in ids.items()}
        super().__init__(failure)

    def __str__(self) -> str:
        return f"{self.id}: {self.text}"

    @property
    def text(self) -> str:
        """The message without the id at its beginning."""
        actual, todo = _without_remedy(self.found, self.todo)
        text = self.named_failure
        if self.expected:
            text += f"; expected {self.expected}"
        if actual:
            text += f"{_FOUND}{_INNER.sub('', actual).rstrip('.')}"
        if todo:
            text += f"{_TO_DO}{todo}"
        return printable(redacted(_LINE_BREAK.sub(" ", text)))

    @property
    def named_failure(self) -> str:
        """The failure with the names involved."""
        ids = ", ".join(f"{name}={printable(value)}" for name, value in self.ids.items())
        return f"{self.failure} [{ids}]" if ids else self.failure

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.failure, self.fields())

    def fields(self) -> dict[str, str]:
        """Return the keyword arguments from which `rebuilt` recreates the error."""
        own_id = {} if self.id == type(self).id else {"id": self.id}
        return {**own_id, "expected": self.expected, "found": self.found, "todo": self.todo, **self.ids}

    @classmethod
    def rebuilt(cls, failure: str, fields: dict[str, str]) -> Self:
        """Recreate the error from its parts without the constructor of a subclass. Pickle uses this too."""
        error = cls.__new__(cls)
        DistcommitError.__init__(error, failure, **fields)
        return error

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Recreate an error from its stored text."""
        id_, mark, remainder = text.partition(": ")
        has_id = mark and _ID.fullmatch(id_)
        cause, todo = split_remedy(remainder if has_id else text)
        return cls.rebuilt(cause, {"todo": todo, **({"id": id_} if has_id else {})})


_FOUND, _TO_DO = "; found ", ". To do: "
"""Separators before the actual state and the remedy in the text of an error."""
_LEAST_CAUSE, _LONGEST_REMEDY = 64, 2_000
_ID = re.compile("[A-Z]+(?:_[A-Z]+)+")
_QUOTED = re.compile(f"{_ID.pattern}: ")
_INNER = re.compile(rf"^{_ID.pattern}: .*; found (?={_ID.pattern}: )", re.DOTALL)
"""The part of a quoted error before its innermost cause."""
_LINE_BREAK = re.compile(r"\s*[\r\n]\s*")
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, direction marks and surrogates."""


def printable(text: object, *, lines: bool = False) -> str:
    """Escape characters that would control a terminal, forge a log line or reorder the text. If `lines` is true, line
    breaks and tabs stay.
    """
    return _UNPRINTABLE.sub(lambda match: match[0] if lines and match[0] in "\n\t" else _escape(match[0]), f"{text}")


def escaped_in_json(text: str) -> str:
    """Escape terminal control characters in JSON text. The value stays the same."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def plain_text(text: object, limit: int = 2000) -> str:
    """Return a storable text of any object: valid UTF-8, `shortened` to `limit` characters."""
    try:
        converted = str(text)
    except Exception:  # noqa: BLE001 - a custom class
        converted = f"<a {type(text).__name__} without a text>"
    return shortened(converted, limit).encode("utf-8", "backslashreplace").decode()


def shortened(text: str, limit: int) -> str:
    """Cut the cause in the text of an error, so that the text has at most `limit` characters.

    The remedy stays whole, so a long remedy makes the text longer than `limit`. A remedy of more than 2,000 characters
    comes from another program and is cut.
    """
    _, mark, todo = text.rpartition(_TO_DO)
    if len(text) <= limit or not mark or len(todo) > _LONGEST_REMEDY:
        return text[:limit]
    return shortened_cause(text, max(limit - len(mark + todo), min(limit // 4, _LEAST_CAUSE)))


def shortened_cause(text: str, limit: int) -> str:
    """Put the text of an error on one line, with its cause cut to `limit` characters and its remedy whole.

    The part before the actual state is cut first, but not below a third of `limit`.
    """
    text = " ".join(text.split())
    cause, mark, todo = text.rpartition(_TO_DO) if _TO_DO in text else (text, "", "")
    if len(cause) > limit and _FOUND in cause:
        failure, _, actual = cause.partition(_FOUND)
        cause = _cut(failure, max(limit // 3, limit - len(_FOUND + actual))) + _FOUND + actual
    return f"{_cut(cause, limit)}{mark}{todo}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def split_remedy(text: str) -> tuple[str, str]:
    """Return the text of an error without the remedy at its end, and the remedy."""
    cause, mark, remedy = text.rpartition(_TO_DO)
    return (cause, remedy) if mark else (text, "")


def kind_of(error: BaseException) -> str:
    """Return the id of an error, or the class name for an error of a library."""
    return error.id if isinstance(error, DistcommitError) else type(error).__name__


def error_text(error: BaseException, limit: int = 4000) -> str:
    """Return the id and the text of any error, without secrets, for storage. Errors of libraries have their class
    name as id.
    """
    text = plain_text(error.text if isinstance(error, DistcommitError) else error, 4 * limit)
    return reason_text(f"{kind_of(error)}: {text}", limit)


def reason_text(text: object, limit: int = 2000) -> str:
    """Return the reason of a failure, without secrets, for storage."""
    return plain_text(redacted(plain_text(text, 10 * limit)), limit)


def _without_remedy(actual: str, todo: str) -> tuple[str, str]:
    """Split a remedy off an actual state that quotes another error. Return the shortened state and the remedy to print.

    `todo` takes precedence over the quoted remedy. If the state quotes no error or several, both values stay unchanged.
    """
    if actual.count(_TO_DO) != 1 or not _QUOTED.match(actual):
        return actual, todo
    cause, remedy = split_remedy(actual)
    return cause, todo or remedy


def add_ids(error: BaseException, **ids: object) -> None:
    """Add the names of the objects involved to an error; names that the error has already stay.

    Errors of libraries get the names as a note, which tracebacks show.
    """
    if isinstance(error, DistcommitError):
        error.ids |= {name: str(value) for name, value in ids.items() if name not in error.ids}
    else:
        error.add_note(", ".join(f"{name}={printable(value)}" for name, value in ids.items()))


@contextmanager
def named_by(**ids: object) -> Iterator[None]:
    """Add ids to every error that leaves the block."""
    try:
        yield
    except Exception as error:
        add_ids(error, **ids)
        raise


def copied(error: AnyError) -> AnyError:
    """Return a copy of an error, to which the caller can add ids; the error itself if it cannot be copied."""
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001 - a custom class
        return error
    if type(twin) is not type(error):
        return error
    twin.__cause__ = error.__cause__ or error
    return twin.with_traceback(error.__traceback__)


def _rebuild(kind: type[DistcommitError], failure: str, fields: dict[str, str]) -> DistcommitError:
    return kind.rebuilt(failure, fields)


class ConfigurationError(DistcommitError):
    """The job file, an argument or the environment is wrong and must be changed."""

    exit_code = 2
    id = "SETTINGS_INVALID"


class TimeLimitError(ConfigurationError):
    """A construct of the job exceeded its time limit for a batch."""

    id = "TIME_LIMIT_EXCEEDED"


class StuckError(TimeLimitError):
    """A construct did not return from native code, so that the task's worker was killed."""

    id = "CONSTRUCT_STUCK"


class ConflictError(DistcommitError):
    """The change was certainly not applied, because another process changed the state first. Read the state again."""

    exit_code = 3
    id = "STATE_CHANGED"


class FencedError(ConflictError):
    """A newer run has fenced this one. The run ends and never takes a new epoch."""

    id = "RUN_FENCED"


class RunCancelledError(DistcommitError):
    """An operator cancelled the run. The run publishes nothing more, and the next run replays its sealed commits."""

    exit_code = 130
    id = "RUN_CANCELLED"


class LockHeldError(ConflictError):
    """Another run of the job is alive."""

    id = "JOB_LOCK_HELD"


class NotSettledError(ConflictError):
    """The requested snapshot does not exist yet: a commit is still open, or no snapshot was taken since."""

    id = "SNAPSHOT_NOT_READY"


class SnapshotExpiredError(ConflictError):
    """The requested snapshot has expired, perhaps while it was read. Discard all results that were read from it."""

    id = "SNAPSHOT_EXPIRED"


class OutcomeUnknownError(DistcommitError):
    """The operation may or may not have taken effect. Read the state back and never delete."""

    exit_code = 4
    id = "OUTCOME_UNKNOWN"


class TransientError(DistcommitError):
    """A service or the storage failed, not the data. Try again later."""

    exit_code = 4
    id = "SERVICE_UNAVAILABLE"


class HeldBackError(TransientError):
    """The dataset's atomic commit group cannot be published until another dataset of the group is released."""

    id = "COMMIT_GROUP_HELD_BACK"


class StorageRefusedError(TransientError):
    """The storage rejected the whole operation: it is full, read-only or not writable by this user."""

    id = "STORAGE_REFUSED"


class ProcessLostError(TransientError):
    """A process of the run died. The next run replays sealed commits and reads the rest again."""

    id = "PROCESS_LOST"


class CorruptError(DistcommitError):
    """Stored bytes are damaged, or another program wrote them. Only datasets that depend on them stop."""

    exit_code = 5
    id = "STORED_DATA_CORRUPT"


class StaleStoreError(CorruptError):
    """The store does not match its folders or logs: one is older, or belongs to another store. No run begins."""

    id = "STORE_OUTPUT_MISMATCH"


class LostTailError(CorruptError):
    """A bucket's log has lost its newest segments. Runs and operator actions skip its datasets."""

    id = "LOG_TAIL_LOST"


class UnknownVersionError(CorruptError):
    """Stored bytes have a format version that this program does not know."""

    id = "FORMAT_VERSION_UNKNOWN"


class UnknownStepTypeError(DistcommitError):
    """A stored step has a type that this program does not know. The step stays pending for a program that knows its
    type.
    """

    exit_code = 2
    id = "STEP_TYPE_UNKNOWN"


class LostError(DistcommitError):
    """A step's effect can be neither verified nor repeated. The dataset is quarantined and its watermark stays."""

    exit_code = 5
    id = "STEP_LOST"


class SourceUnavailableError(TransientError):
    """The source as a whole could not be planned. Nothing is read, and pending commits are replayed."""

    id = "SOURCE_UNAVAILABLE"


class SinkUnavailableError(TransientError):
    """The sink is unusable, or not that of a stored commit. Commits stay pending, and no failed attempt is counted."""

    id = "SINK_UNAVAILABLE"


class WorkerDiedError(DistcommitError):
    """A worker died twice while it read a work unit, the second time without any other. Its dataset was not read; other
    datasets are published.
    """

    id = "WORK_UNIT_KILLS_WORKER"


class RecordError(DistcommitError):
    """A record could not be decoded. The work unit fails, or the record goes to the error file."""

    id = "RECORD_UNREADABLE"


RECORD_REJECTED = "a record is rejected"
NEW_FIELDS = "a record has fields that those before do not have, and evolution is fail"
"""The beginning of a `RecordError` that the job file can turn into a rejection instead of a failed work unit."""


class QualityError(DistcommitError):
    """A mandatory task checker rejected an attempt. The work unit fails."""

    id = "QUALITY_CHECK_FAILED"


class SourceError(DistcommitError):
    """The source rejected a request or lost data. Only the affected datasets stop."""

    id = "SOURCE_FAILED"
