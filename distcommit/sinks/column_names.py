"""Names of columns that a database can have: others are refused by one message, before any record is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distcommit.model.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rule of one kind of database or table format.

    Attributes:
        database: its name, for messages.
        most_bytes: of a name in UTF-8; 0 for any number.
        most_characters: of a name; 0 for any number.
        basic_characters: whether names have characters of Unicode's basic plane only.
        ends_in_spaces: whether names may end in a space.
        reserved: names that are taken, in small letters.
    """

    database: str
    most_bytes: int = 0
    most_characters: int = 0
    basic_characters: bool = False
    ends_in_spaces: bool = True
    reserved: frozenset[str] = frozenset()

    def check(self, names: Sequence[str]) -> None:
        """Check the names of all columns of a table.

        Raises:
            ConfigurationError: if a column can't have its name, or two names are the same but for their case.
        """
        seen: dict[str, str] = {}
        for name in names:
            wrong = self._problem(name)
            other = seen.setdefault(name.lower(), name)
            if not wrong and other is not name:
                wrong = f"the same name as {other!r}" + ("" if other == name else ", but for its case")
            if wrong:
                raise ConfigurationError(
                    f"{self.database} cannot have a column of this name",
                    column=name,
                    found=wrong,
                    todo="rename it with the converter `rename`",
                )

    def _problem(self, name: str) -> str:
        """Return what is wrong with a name by itself; empty if nothing is."""
        if not name:
            return "an empty name"
        if "\0" in name:
            return "a NUL character"
        if self.most_bytes and len(name.encode()) > self.most_bytes:
            return f"{len(name.encode())} bytes, of which the database keeps {self.most_bytes}"
        if self.most_characters and len(name) > self.most_characters:
            return f"{len(name)} characters, of which the database takes {self.most_characters}"
        if self.basic_characters and max(name) > "\uffff":
            return "a character outside of Unicode's basic plane"
        if not self.ends_in_spaces and name.endswith(" "):
            return "a space at its end"
        return "a name that the database has for itself" if name.lower() in self.reserved else ""
