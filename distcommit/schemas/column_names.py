"""Names of columns that a target accepts. Other names are rejected before any record is written.

Most readers of files and tables ignore the case of names. Spark rejects a file with the columns `id` and `ID`, and with
such fields in a struct. So no sink writes two names that differ only in case.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from distcommit.core.errors import ConfigurationError
from distcommit.schemas.storable_types import inner_fields


def check_distinct(names: Iterable[str], target: str, struct: str = "") -> None:
    """Raise ConfigurationError if two names are equal or differ only in case.

    Args:
        names: all columns of a table or file, or all fields of one struct.
        target: name of the database or format, for the message.
        struct: path of the struct; empty for columns.
    """
    first: dict[str, str] = {}
    for name in names:
        other = first.get(name.lower())
        if other is not None:
            wrong = f"the same name as {other!r}" + ("" if other == name else ", but for its case")
            raise _refused(target, name, wrong, struct)
        first[name.lower()] = name


def check_fields(schema: pa.Schema, target: str) -> None:
    """Raise ConfigurationError if two columns, or two fields of one struct, have names that differ only in case."""
    check_distinct(schema.names, target)
    for field in schema:
        _check_nested(field.type, target, field.name)


def _check_nested(kind: pa.DataType, target: str, path: str) -> None:
    fields = inner_fields(kind)
    is_struct = pa.types.is_struct(kind)
    if is_struct:
        check_distinct([field.name for field in fields], target, path)
    for field in fields:
        _check_nested(field.type, target, f"{path}.{field.name}" if is_struct else path)


def _refused(target: str, name: str, actual: str, struct: str = "") -> ConfigurationError:
    rename = "rename it with the converter `rename`"
    return ConfigurationError(
        f"{target} cannot have a {'field' if struct else 'column'} of this name",
        id="COLUMN_UNSUPPORTED",
        column=f"{struct}.{name}" if struct else name,
        found=actual,
        todo=f"make columns of the struct with the converter `flatten`, and then {rename}" if struct else rename,
    )


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rule for names of columns of one kind of database or table format.

    Attributes:
        database: name of the database or format, for messages.
        most_bytes: length of the longest name, in bytes of UTF-8; 0 for any length.
        most_characters: length of the longest name, in characters; 0 for any length.
        basic_characters: whether names may have characters of Unicode's basic plane only.
        ends_in_spaces: whether names may end in a space.
        without: characters that names must not have.
        reserved: names that the database uses itself, in lower case.
    """

    database: str
    most_bytes: int = 0
    most_characters: int = 0
    basic_characters: bool = False
    ends_in_spaces: bool = True
    without: str = ""
    reserved: frozenset[str] = frozenset()

    def check(self, names: Sequence[str]) -> None:
        """Check the names of all columns of a table. Raises ConfigurationError if the target does not accept a name, or
        two names differ only in case.
        """
        for name in names:
            if wrong := self._problem(name):
                raise _refused(self.database, name, wrong)
        check_distinct(names, self.database)

    def _problem(self, name: str) -> str:
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
        if selected := next((text for text in name if text in self.without), ""):
            return f"the character {selected!r}"
        if not self.ends_in_spaces and name.endswith(" "):
            return "a space at its end"
        return "a name that the database reserves" if name.lower() in self.reserved else ""
