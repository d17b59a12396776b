"""The text of queries and conditions: what a database is sent of it, whether it only reads, and whether it is another
one. Needs no SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

_NOT_CLOSED = "has a quote, or a comment, that is not closed, from {!r} on"
_TOKEN = r"(?P<space>\s+)|(?P<comment>{comment})|(?P<quoted>{quoted})|(?P<open>{open})|(?P<mark>{mark})|\w[\w$]*|."
_DOUBLED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_ESCAPED = r"""'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*\""""
_DOLLARS = r"\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$"
_SCANNERS = {
    name: re.compile(_TOKEN.format(**parts), re.DOTALL)
    for name, parts in {
        "postgresql": {
            "comment": r"--[^\r\n]*",
            "quoted": rf"[eE]'(?:[^'\\]|''|\\.)*'|{_DOUBLED}|{_DOLLARS}",
            "open": r"/\*|'|\"",
            "mark": r"\$\d+",
        },
        "mysql": {  # what is in /*! */ is no comment: it is executed
            "comment": r"--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/",
            "quoted": rf"{_ESCAPED}|`(?:[^`]|``)*`",
            "open": r"/\*(?!M?!)|'|\"|`",
            "mark": r"\?",
        },
        "sqlite": {
            "comment": r"--[^\n]*|/\*.*?\*/",
            "quoted": rf"{_DOUBLED}|`(?:[^`]|``)*`|\[[^\]]*\]",
            "open": r"/\*|'|\"|`|\[",
            "mark": r"\?\d*|[:@$]\w+",
        },
    }.items()
}
"""By dialect, what its text consists of: `mark` is what a database takes for a value that comes with the query."""
_BEFORE_TABLES = frozenset({"ONLY", "LATERAL", "STRAIGHT_JOIN"})
_AFTER_TABLES = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "SELECT"}
)
_NAME = re.compile(r"\w")
_COMMENT_PART = re.compile(r"/\*|\*/")
_MORE_THAN_READING = re.compile(r"(?<!\. )\b\d*(FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE|INTO)\b", re.IGNORECASE)
"""Of MySQL, whose read-only transactions may lock rows, too. What is quoted, or stands behind a dot, is a name or text;
and the number of a version may stand before what is executed in a comment."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query that can stand in brackets.

    Attributes:
        body: its text, from its first word to its last; what of `;` and comments came before or after it is left out.
        id: tells it from others. Space and comments say nothing to it.
    """

    body: str
    id: str

    @classmethod
    @lru_cache(maxsize=10_000)
    def of(cls, text: str, dialect: str) -> Query:
        """The query of a text.

        Args:
            text: in SQL of that dialect.
            dialect: `postgresql`, `mysql` or `sqlite`.

        Raises:
            ValueError: if it is not one query that only reads, as far as its text says it. The message is what it does
                wrong, without a subject.
        """
        tokens = [*_tokens(text, dialect)]
        while tokens and tokens[-1][0] == ";":
            tokens.pop()
        words = [token[0] for token in tokens]
        first = next((word for word in words if word != "("), "nothing")
        if first.upper() not in ("SELECT", "WITH"):
            raise ValueError(f"begins with SELECT or WITH, and not with {first:.40}: it is to be read as a table is")
        _check(tokens, dialect)
        body = text[tokens[0].start() : tokens[-1].end()]
        return cls(body, sha256(" ".join(words).encode()).hexdigest()[:12])


def check_condition(text: str, dialect: str) -> None:
    """Checks a condition that is to stand in brackets.

    Raises:
        ValueError: if it is none, or not one that only reads, as far as its text says it. The message is as that of
            `Query.of`.
    """
    tokens = [*_tokens(text, dialect)]
    if text and not tokens:
        raise ValueError("has no condition: leave it out for all rows")
    _check(tokens, dialect)


def _check(tokens: list[re.Match[str]], dialect: str) -> None:
    words = [token[0] for token in tokens]
    if ";" in words:
        raise ValueError("has several statements, parted by ;")
    _check_brackets(words)
    if marks := [token[0] for token in tokens if token.lastgroup == "mark"]:
        raise ValueError(f"has a placeholder, {marks[0]}, for which there is no value: write the value there")
    if dialect == "mysql":
        _require_only_reads(tokens)


def tables_in(text: str, dialect: str) -> Iterator[tuple[str, str]]:
    """Yield schema and name of the tables that a query names after FROM and JOIN; the schema is empty if it has none.

    Args:
        text: a query that `Query.of` accepts.
        dialect: as there.
    """
    levels, parts, is_awaited, before = [_Level()], [""], False, ""
    for token in [*_tokens(text, dialect), None]:
        word = token[0] if token is not None else ";"
        upper, is_quoted = word.upper(), token is not None and token.lastgroup == "quoted"
        if is_awaited and upper in _BEFORE_TABLES:
            continue
        if is_awaited and word == ".":
            parts.append("")
        elif is_awaited and not parts[-1] and (is_quoted or _NAME.match(word)) and upper != "SELECT":
            parts[-1] = _unquoted(word)
        else:
            if parts[-1]:
                yield (parts[-2] if len(parts) > 1 else ""), parts[-1]
            is_awaited, parts = _awaits_table(levels, upper, before, is_awaited=is_awaited and not parts[-1]), [""]
        before = upper


@dataclass(slots=True)
class _Level:
    """What a part of a query in brackets has had so far."""

    has_select: bool = False
    lists_tables: bool = False


def _awaits_table(levels: list[_Level], upper: str, before: str, *, is_awaited: bool) -> bool:
    """Return whether a table may come after this word."""
    if upper == "(":
        levels.append(_Level(lists_tables=is_awaited))
        return is_awaited
    if upper == ")":
        del levels[max(1, len(levels) - 1) :]
        return False
    level = levels[-1]
    level.has_select |= upper == "SELECT"
    level.lists_tables &= upper not in _AFTER_TABLES
    begins = upper == "FROM" and level.has_select and before != "DISTINCT"
    level.lists_tables |= begins
    return begins or upper == "JOIN" or (upper == "," and level.lists_tables)


def _unquoted(word: str) -> str:
    return word[1:-1] if word[0] in '"`[' else word


def _tokens(text: str, dialect: str) -> Iterator[re.Match[str]]:
    """What a text consists of, without space and comments."""
    at, scanner = 0, _SCANNERS[dialect]
    while found := scanner.match(text, at):
        at = found.end()
        if found.lastgroup == "open":
            at = _end_of_nested(text, found.start()) if dialect == "postgresql" and found[0] == "/*" else 0
            if not at:
                raise ValueError(_NOT_CLOSED.format(text[found.start() : found.start() + 30]))
        elif found.lastgroup not in ("space", "comment"):
            yield found


def _end_of_nested(text: str, begin: int) -> int:
    """Where a comment ends that may have others in it; 0 if it does not end."""
    depth = 0
    for part in _COMMENT_PART.finditer(text, begin):
        depth += 1 if part[0] == "/*" else -1
        if not depth:
            return part.end()
    return 0


def _check_brackets(words: list[str]) -> None:
    depth = 0
    for word in words:
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth < 0:
            raise ValueError("has a ) without its (")
    if depth:
        raise ValueError("has a ( without its )")


def _require_only_reads(tokens: list[re.Match[str]]) -> None:
    bare = " ".join("''" if token.lastgroup == "quoted" else token[0] for token in tokens)
    if found := _MORE_THAN_READING.search(bare):
        raise ValueError(
            f"has {found[1]}: it may not lock what it reads, nor write it elsewhere. Leave that out (a column that is"
            " called so is written in backticks)"
        )


def queries_of(texts: Mapping[str, str], dialect: str) -> dict[str, Query]:
    """Queries by name.

    Raises:
        ValueError: naming the one that is none.
    """
    found: dict[str, Query] = {}
    for name, text in texts.items():
        try:
            found[name] = Query.of(text, dialect)
        except ValueError as error:
            raise ValueError(f"queries.{name} {error}") from None
    return found
