"""CSV dialect of files, and the regular expressions for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv


@dataclass(frozen=True, slots=True)
class Dialect:
    """CSV dialect. Delimiter, quote and escape are single ASCII characters.

    Attributes:
        delimiter: character between columns.
        quote: character around columns that have delimiters or line ends; a quote within is doubled. Empty for no
            quoting.
        escape: character that makes the next one literal. Empty for no escaping.
        nulls: texts that mean null where they are not quoted.
        names: the column names that a file must have; empty for the names in its header.
        has_header: whether the first row names the columns. If not, `names` are its columns, in order.
        encoding: Python's name of the encoding.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    nulls: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    has_header: bool = True
    encoding: str = "utf-8"

    @property
    def header_rows(self) -> int:
        return 1 if self.has_header else 0

    def parsing(self) -> pa_csv.ParseOptions:
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=True,
        )

    def as_text(self, names: Sequence[str]) -> pa_csv.ConvertOptions:
        return pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(self.nulls),
            strings_can_be_null=bool(self.nulls),
            quoted_strings_can_be_null=False,
        )


class Patterns(NamedTuple):
    """Regular expressions of a CSV dialect.

    Attributes:
        row: matches a row. Its group `open` or `late` matches if a quote is not closed.
        ended: matches a row with its line end (group `end`).
        column: matches a column with the delimiter before it.
        strict: matches only rows whose quotes are all in valid places.
    """

    row: re.Pattern[bytes]
    ended: re.Pattern[bytes]
    column: re.Pattern[bytes]
    strict: re.Pattern[bytes]


@lru_cache
def patterns(dialect: Dialect) -> Patterns:
    """Return the patterns of a dialect, which split rows exactly as Arrow's CSV reader does."""
    between, quote, escape = (re.escape(name.encode()) for name in (dialect.delimiter, dialect.quote, dialect.escape))
    escaped = rb"(?:%s[\s\S]?)" % escape if escape else rb"(?!)"
    within = rb"(?:[^%s%s]++|%s)*+" % (quote, escape, escaped)
    quoted = rb"%s%s(?:%s%s%s)*+" % (quote, within, quote, quote, within) if quote else rb"(?!)"
    closed = rb"(?:%s(?:%s|(?P<open>\Z)))?+" % (quoted, quote)
    plain = rb"(?:[^%s%s\r\n]++|%s)*+" % (between, escape, escaped)
    column = closed + plain
    row = rb"%s(?:%s%s)*+" % (column, between, column.replace(b"?P<open>", b"?P<late>"))
    strict = rb"(?:%s%s|(?!%s)%s)" % (quoted, quote, quote or rb"(?!)", plain)
    return Patterns(
        re.compile(row),
        re.compile(row + rb"(?P<end>\r\n|\n|\r|\Z)"),
        re.compile(rb"(?:\A|%s)%s" % (between, column)),
        re.compile(rb"%s(?:%s%s)*+" % (strict, between, strict)),
    )


class QuoteCheck:
    """Check of a CSV file's quotes, fed block by block with `see`; `passes` becomes False at the first invalid quote.

    A quote may only begin or end a column, or precede or follow another quote. A file that fails is read row by row. A
    dialect with an escape character always fails.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._quote = ord(dialect.quote) if dialect.quote else None
        ends = [dialect.delimiter, dialect.quote, "\n", "\r"]
        self._may_be_beside = np.isin(np.arange(256), [ord(name) for name in ends if name])
        self.passes = not dialect.escape
        self._count, self._last, self._is_closing = 0, ord("\n"), False
        self._is_begun = False

    def see(self, block: bytes) -> None:
        if not self._is_begun:
            block, self._is_begun = block.removeprefix(b"\xef\xbb\xbf"), True
        if not block or self._quote is None or not self.passes:
            return
        data = np.frombuffer(block, np.uint8)
        if self._is_closing and not self._may_be_beside[data[0]]:
            self.passes = False
        at = np.flatnonzero(data == self._quote)
        numbers = np.arange(self._count, self._count + len(at))
        opening, closing = at[numbers % 2 == 0], at[numbers % 2 == 1]
        self.passes = self.passes and self._are_fine(data, opening, closing)
        self._count += len(at)
        self._last = int(data[-1])
        self._is_closing = self._last == self._quote and self._count % 2 == 0

    def _are_fine(
        self, data: npt.NDArray[np.uint8], opening: npt.NDArray[np.int64], closing: npt.NDArray[np.int64]
    ) -> bool:
        before = np.where(opening > 0, data[opening - 1], self._last)
        followed = closing[closing + 1 < len(data)]
        return bool(self._may_be_beside[before].all() and self._may_be_beside[data[followed + 1]].all())
