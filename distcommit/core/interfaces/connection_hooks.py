"""Hooks of sources and sinks for `distcommit check`, the check before a run, and the display of progress."""

from __future__ import annotations

from typing import ClassVar, Literal

from distcommit.core.work_units import WorkUnit


class Connected:
    """An object that connects to an external system."""

    def check_connection(self) -> str:
        """Connect as a run would, within seconds, and return a short text such as `12 of 40 topics`.
        Each further line is a warning that `distcommit check` prints.

        Called on the driver by `distcommit check` and before a run. Reads metadata only and creates nothing. The
        default connects to nothing.

        Raises:
            DistcommitError, OSError: if the system can't be reached or rejects the credentials.
            SourceError: with the id SOURCE_TOPIC_MISSING or SOURCE_TABLE_MISSING, if listed datasets do not exist. A
                run still reads the others.
        """
        return ""


class ConnectedSource(Connected):
    """A source that may know the sizes of its work units."""

    size_unit: ClassVar[Literal["", "records", "bytes"]] = ""
    """The unit of the sizes of work units; empty if sizes only estimate the effort."""

    def planned_size(self, unit: WorkUnit) -> int:
        """Return the size of a work unit for display, in `size_unit`."""
        return unit.size


class NamedCode:
    """Settings that may name a function to import."""

    def check_code(self) -> None:
        """Import the function. Called by `distcommit check`, and before a run. The default imports nothing. Raises
        ConfigurationError if the function can't be used.
        """
