"""The error tree, grouped by what the caller does next.

Every message says what failed with its ids, what was expected, what was found and what to do; every error pickles,
because Spark carries errors between processes.
"""

from __future__ import annotations

import errno
import re
from typing import Any, Self

from distcommit.core.redaction import redacted


class DistcommitError(Exception):
    """Root of all errors raised on purpose.

    Args:
        what: what failed, one clause.
        expected: the state that the code needed.
        found: the state that it met.
        todo: what the reader does next.
        **ids: the names involved (dataset, epoch, bucket, path, ...).
    """

    exit_code = 1

    def __init__(self, what: str, *, expected: str = "", found: str = "", todo: str = "", **ids: object) -> None:
        self.what, self.expected, self.found, self.todo = what, expected, found, todo
        self.ids = {name: str(value) for name, value in ids.items()}
        super().__init__(what)

    def __str__(self) -> str:
        ids = ", ".join(f"{name}={printable(value)}" for name, value in self.ids.items())
        text = f"{self.what} [{ids}]" if ids else self.what
        if self.expected:
            text += f"; expected {self.expected}"
        if self.found:
            text += f"; found {self.found.rstrip('.')}"
        if self.todo:
            text += f"{_TO_DO}{self.todo}"
        return printable(redacted(_LINE_BREAK.sub(" ", text)))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"expected": self.expected, "found": self.found, "todo": self.todo, **self.ids}
        return _rebuild, (type(self), self.what, fields)

    @classmethod
    def rebuilt(cls, what: str, fields: dict[str, str]) -> Self:
        """The same error again, from its parts (pickle calls this)."""
        return cls(what, **fields)


_TO_DO = ". To do: "
"""Comes before the remedy in the text of an error."""
_LINE_BREAK = re.compile(r"\s*[\r\n]\s*")
_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, what turns the direction of text, and halves of characters."""


def printable(text: object, *, lines: bool = False) -> str:
    """Text for a terminal or a log, whatever it came from: what would control the terminal, forge a line or show text
    in another order stands there as its escape.

    Args:
        text: what is shown.
        lines: whether line breaks and tabs stay.
    """
    return _UNPRINTABLE.sub(lambda found: found[0] if lines and found[0] in "\n\t" else _escape(found[0]), f"{text}")


def escaped_in_json(text: str) -> str:
    """JSON text, which is left the same value, without characters that would control a terminal."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def plain_text(text: object, limit: int = 2000) -> str:
    """The text of whatever somebody gave, so that it can be stored: valid UTF-8, `shortened` to `limit` characters."""
    try:
        found = str(text)
    except Exception:  # noqa: BLE001 - somebody else's class
        found = f"<a {type(text).__name__} without a text>"
    return shortened(found, limit).encode("utf-8", "backslashreplace").decode()


def shortened(text: str, limit: int) -> str:
    """Cut the text of an error at `limit` characters: its cause is cut, and the remedy at its end stays whole, unless
    that alone takes more than three quarters of them."""
    _, mark, todo = text.rpartition(_TO_DO)
    room = limit - len(mark) - len(todo)
    if len(text) <= limit:
        return text
    return shortened_cause(text, room) if mark and room >= limit // 4 else text[:limit]


def shortened_cause(text: str, limit: int) -> str:
    """Put the text of an error on one line, its cause cut at `limit` characters and the remedy at its end whole."""
    text = " ".join(text.split())
    cause, mark, todo = text.rpartition(_TO_DO) if _TO_DO in text else (text, "", "")
    return f"{cause if len(cause) <= limit else cause[: limit - 3] + '...'}{mark}{todo}"


def split_remedy(text: str) -> tuple[str, str]:
    """Return the text of an error without the remedy at its end, and the remedy."""
    cause, mark, remedy = text.rpartition(_TO_DO)
    return (cause, remedy) if mark else (text, "")


def error_text(error: BaseException, limit: int = 4000) -> str:
    """The kind of an error and its text, whoever raised it, so that it can be stored."""
    return reason_text(f"{type(error).__name__}: {plain_text(error, 4 * limit)}", limit)


def reason_text(text: object, limit: int = 2000) -> str:
    """Return why something failed, so that it can be stored: `plain_text` without what settings hold of secrets."""
    return plain_text(redacted(plain_text(text, 10 * limit)), limit)


def _rebuild(kind: type[DistcommitError], what: str, fields: dict[str, str]) -> DistcommitError:
    return kind.rebuilt(what, fields)


class ConfigurationError(DistcommitError):
    """The job file, an argument or the environment is wrong: a person changes it."""

    exit_code = 2


class OverdueError(ConfigurationError):
    """A construct of the job has worked on a batch of records for too long."""


class StuckError(OverdueError):
    """A construct of the job did not return from native code, so that the worker of its task was killed."""


class ConflictError(DistcommitError):
    """Surely not applied, because somebody else was first: look again, then decide."""

    exit_code = 3


class FencedError(ConflictError):
    """A newer run has fenced this one: this run ends, and never takes a new epoch."""


class RunCancelledError(DistcommitError):
    """Somebody wants the run to end: it publishes nothing more, and the next one replays what it had sealed."""

    exit_code = 130


class LockHeldError(ConflictError):
    """Another run of the job is alive."""


class NotSettledError(ConflictError):
    """What a reader asks for is not there yet: a run has left something open, or no cut has been made since."""


class CutGoneError(ConflictError):
    """What a reader asks for is not kept any more, or went while it was read: nothing of it is to be used."""


class OutcomeUnknownError(DistcommitError):
    """The operation may or may not have taken effect: read back, never delete."""

    exit_code = 4


class TransientError(DistcommitError):
    """Nothing is wrong with the data: try again later."""

    exit_code = 4


class HeldBackError(TransientError):
    """What it is published with, all or nothing, can't be published: nobody's fault, until that is released."""


class StorageRefusedError(TransientError):
    """The storage took nothing of it, surely: it is full, read-only, or not to be written by this user."""


class ProcessLostError(TransientError):
    """A process that did the run's work has died: the next run replays what was sealed, and reads the rest again."""


class CorruptError(DistcommitError):
    """Stored bytes are not what this program wrote: only what depends on them stops."""

    exit_code = 5


class StaleStoreError(CorruptError):
    """The store is older than what was published, or not the one it was published from: no run begins on it."""


class LostTailError(CorruptError):
    """A bucket's log lacks what was at its end once: its datasets are left alone, by runs and by hand."""


class UnknownVersionError(CorruptError):
    """Stored bytes are of a format version that this program does not know."""


class UnknownStepTypeError(DistcommitError):
    """A stored step is of a type that this program does not know: it is left alone, for one that does."""

    exit_code = 2


class LostError(DistcommitError):
    """A step's effect can't be proven and can't be redone: the dataset is quarantined, the watermark stays."""

    exit_code = 5


class SourceUnavailableError(TransientError):
    """The source as a whole can't be reached: nothing was planned; what was pending is replayed."""


class SinkUnavailableError(TransientError):
    """The job's sink as a whole can't be used, or is another one: what it has to commit stays pending, and no dataset's
    attempts are counted."""


class RecordError(DistcommitError):
    """A record could not be decoded: the work unit fails, or the record goes to the error file."""


TURNED_AWAY = "a record is turned away"
NEW_FIELDS = "a record has fields that those before do not have, and evolution is fail"
"""What a `RecordError` says where the job file may say that the work unit is not to fail for it."""


class QualityError(DistcommitError):
    """What was read is not as a mandatory task checker wants it: the work unit fails."""


class SourceError(DistcommitError):
    """The source refused or lost something: only the datasets concerned stop."""


_OUTAGES = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EDQUOT,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


REFUSALS = {
    errno.ENOSPC: "free space on the file system of {}",
    errno.EDQUOT: "free space on the file system of {}, or have the quota raised",
    errno.EROFS: "make the file system of {} writable again (a failing disk is often mounted read-only, HDFS may be in"
    " safe mode)",
    errno.EACCES: "correct the permissions: let this user write {}",
    errno.EPERM: "correct the permissions: let this user write {}",
    errno.ELOOP: "remove the symbolic link or the mount at {}",
}
"""By errno: refusals of a whole operation, before any of it has an effect, and what to do about them."""


def storage_error(error: OSError, what: str, **ids: str) -> DistcommitError:
    """The typed error for a failed storage operation: transient where the data is not to blame."""
    if error.errno in REFUSALS:
        path = error.filename or ids.get("path", "the job's folders")
        return StorageRefusedError(
            what,
            found=f"{error.strerror} ({errno.errorcode[error.errno]})",
            todo=f"{REFUSALS[error.errno].format(path)}, and run again; nothing was lost",
            **ids,
        )
    kind = TransientError if error.errno in _OUTAGES else DistcommitError
    return kind(
        what,
        found=f"{type(error).__name__}: {error}",
        todo="mend the storage (space, permissions, connection) and run again; nothing was lost",
        **ids,
    )
