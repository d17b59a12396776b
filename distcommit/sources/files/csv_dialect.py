"""How a CSV file is written: what separates columns, quotes them, escapes a character and stands for null."""

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
    """How a CSV file is written, in single characters of ASCII.

    Attributes:
        delimiter: what separates columns.
        quote: what a column is in that has delimiters or ends of lines; within it a quote is written twice. Empty:
            columns are not quoted.
        escape: what stands before a character that has no meaning then; empty: nothing does.
        nulls: texts that stand for null, where they are not quoted.
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    nulls: tuple[str, ...] = ()

    def parsing(self) -> pa_csv.ParseOptions:
        """How a file is split into rows and columns."""
        return pa_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=True,
        )

    def as_text(self, names: Sequence[str]) -> pa_csv.ConvertOptions:
        """All columns as text."""
        return pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(self.nulls),
            strings_can_be_null=bool(self.nulls),
            quoted_strings_can_be_null=False,
        )


class Patterns(NamedTuple):
    """A row; one with its end (`end`), wherever it is; one column, with what parts it from the one before; and a row
    whose quotes are all where they may be. `open`, `late`: that a quote is not closed."""

    row: re.Pattern[bytes]
    ended: re.Pattern[bytes]
    column: re.Pattern[bytes]
    strict: re.Pattern[bytes]


@lru_cache
def patterns(dialect: Dialect) -> Patterns:
    """The patterns of a dialect: rows and columns are what Arrow's reader takes for them."""
    between, quote, escape = (re.escape(each.encode()) for each in (dialect.delimiter, dialect.quote, dialect.escape))
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
    """Whether all quotes of the bytes seen so far are where they may be, block by block.

    If every quote with an even number begins a column, or follows another one, and every other one ends a column, or
    stands before another one, then each of them is what Arrow's reader takes it for. Otherwise text may stand behind a
    closing quote, or quotes within text, and only a look at each row tells.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._quote = ord(dialect.quote) if dialect.quote else None
        ends = [dialect.delimiter, dialect.quote, "\n", "\r"]
        self._may_be_beside = np.isin(np.arange(256), [ord(each) for each in ends if each])
        self.passes = not dialect.escape
        self._count, self._last, self._is_closing = 0, ord("\n"), False
        self._is_begun = False

    def see(self, block: bytes) -> None:
        """Look at the next block of a file."""
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
