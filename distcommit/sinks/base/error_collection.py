"""What is done at a target to one table, or transaction, after another: one that fails keeps no other from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distcommit.core.errors import SinkUnavailableError, TransientError, error_text

_NAMED = 5


class OneByOne:
    """Collects what fails, by name.

    Args:
        what: what could not be done to each of them, one clause.
        probe: raises if nothing works there; asked as the first one fails. Then the others are not tried, as each might
            take as long to fail.
    """

    def __init__(self, what: str, probe: Callable[[], None] | None = None) -> None:
        self._what, self._probe = what, probe
        self._failed: dict[str, Exception] = {}

    @contextmanager
    def to(self, name: str) -> Iterator[None]:
        """What is done to the one of that name; its error waits for `tell`.

        Raises:
            Exception: the error, if it is no matter of that one.
        """
        try:
            yield
        except SinkUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - a client's, or a file system's: the others are not to suffer
            if self._probe is not None and not self._failed:
                self._probe()
            self._failed[name] = error

    def tell(self) -> None:
        """Raises:
        TransientError: if any has failed, with names and why; the others are done.
        """
        if not self._failed:
            return
        first = [f"{name}: {error_text(error, 500)}" for name, error in list(self._failed.items())[:_NAMED]]
        more = f"; and {len(self._failed) - _NAMED} more" if len(self._failed) > _NAMED else ""
        raise TransientError(
            self._what,
            names=", ".join([*self._failed][:_NAMED]),
            found="; ".join(first) + more,
            todo="mend or restore these, or give the permission that is missing; of all others it was done",
        ) from next(iter(self._failed.values()))
