"""Collection of the errors of operations on many items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distcommit.core.errors import SinkUnavailableError, TransientError, error_text, split_remedy

_NAMED = 5


class ErrorCollector:
    """Collector of errors by the name of the failed item, which raises them together.

    Args:
        subject: what has failed, as the beginning of the message.
        probe: called after the first error; raises if the whole target is unavailable.
    """

    def __init__(self, subject: str, probe: Callable[[], None] | None = None) -> None:
        self._what, self._probe = subject, probe
        self._failed: dict[str, Exception] = {}

    @contextmanager
    def collecting(self, name: str) -> Iterator[None]:
        """Collect an error of the block under the item's name. A SinkUnavailableError or an error of the probe is
        raised at once, because it concerns the whole target."""
        try:
            yield
        except SinkUnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - of a client or file system: the other items are tried
            if self._probe is not None and not self._failed:
                self._probe()
            self._failed[name] = error

    def raise_collected(self) -> None:
        """Raise one TransientError for all failed items. It names the first five."""
        if not self._failed:
            return
        first = [
            f"{name}: {split_remedy(error_text(error, 500))[0]}" for name, error in [*self._failed.items()][:_NAMED]
        ]
        more = f"; and {len(self._failed) - _NAMED} more" if len(self._failed) > _NAMED else ""
        raise TransientError(
            self._what,
            names=", ".join([*self._failed][:_NAMED]),
            found="; ".join(first) + more,
            todo="repair or restore these, or grant the missing permission; all others were done",
        ) from next(iter(self._failed.values()))
