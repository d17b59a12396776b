"""Parser of the SQL in job files, which accepts one query or condition and finds its tables; must not import
SQLAlchemy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from distcommit.core.support.settings_model import SettingError

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
        "mysql": {  # MySQL executes the content of /*! */
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
        "spark": {
            "comment": r"--[^\r\n]*",
            "quoted": rf"[rR](?:'[^']*'|\"[^\"]*\")|{_ESCAPED}|`(?:[^`]|``)*`",
            "open": r"/\*|'|\"|`",
            "mark": r"\?",
        },
    }.items()
}
"""Token patterns by dialect. `mark` matches placeholders of values, `open` the start of an unclosed quote or comment.
"""
_NESTING = frozenset({"postgresql", "spark"})
"""Dialects with nested comments."""
_BEFORE_TABLES = frozenset({"ONLY", "LATERAL", "STRAIGHT_JOIN"})
_AFTER_TABLES = frozenset(
    {"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "SELECT"}
)
_OTHER_STATEMENTS = frozenset({"INSERT", "MERGE", "UPDATE", "DELETE", "CREATE", "DROP", "SET", "FROM"})
"""Words that begin other statements than SELECT after WITH. Spark accepts INSERT after FROM."""
_NAME = re.compile(r"\w")
_COMMENT_PART = re.compile(r"/\*|\*/")
_MORE_THAN_READING = re.compile(r"(?<!\. )\b\d*(FOR UPDATE|FOR SHARE|LOCK IN SHARE MODE|INTO)\b", re.IGNORECASE)
"""Clauses that lock or write, not in quotes or after a dot.

In a comment that MySQL executes, a version number may precede them.
"""


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query, which can be put in brackets.

    Attributes:
        body: text from the first word to the last, without `;` and comments before and after.
        id: digest of the query. White space and comments do not change it.
    """

    body: str
    id: str

    @classmethod
    @lru_cache(maxsize=10_000)
    def of(cls, text: str, dialect: str) -> Query:
        """Parse a query.

        Raises:
            ValueError: if the text is not one SELECT or WITH, has a placeholder or is not closed, or for MySQL locks or
                writes. The caller adds the setting as subject.
        """
        tokens = [*_tokens(text, dialect)]
        while tokens and tokens[-1][0] == ";":
            tokens.pop()
        words = [token[0] for token in tokens]
        first = next((word for word in words if word != "("), "nothing")
        if first.upper() not in ("SELECT", "WITH"):
            raise SettingError(f"must begin with SELECT or WITH, not with {first:.40}")
        _check(tokens, dialect)
        body = text[tokens[0].start() : tokens[-1].end()]
        return cls(body, sha256(" ".join(words).encode()).hexdigest()[:12])


def check_condition(text: str, dialect: str) -> None:
    """Check a condition, which is put in brackets after WHERE. An empty text is accepted.

    Raises:
        ValueError: if the text has only comments or spaces, or has several statements, a placeholder, or an unclosed
            quote, comment or bracket; for MySQL also if it locks or writes rows. The message has no subject.
    """
    tokens = [*_tokens(text, dialect)]
    if text and not tokens:
        raise SettingError("must not be empty; remove it to read all rows")
    _check(tokens, dialect)


def _check(tokens: list[re.Match[str]], dialect: str) -> None:
    words = [token[0] for token in tokens]
    if ";" in words:
        raise SettingError("must be one statement, and has several, separated by ;")
    _check_brackets(words)
    if run_markers := [token[0] for token in tokens if token.lastgroup == "mark"]:
        raise SettingError(f"must not have a placeholder, {run_markers[0]}; write its value instead")
    if dialect == "mysql":
        _require_only_reads(tokens)
    elif dialect == "spark":
        _require_query(words)


def tables_in(text: str, dialect: str) -> Iterator[tuple[str, str]]:
    """Yield schema (or empty) and name of each table after FROM and JOIN."""
    levels, parts, is_awaited, before = [_Level()], [""], False, ""
    for token in [*_tokens(text, dialect), None]:
        word = token[0] if token is not None else ";"
        upper, is_quoted = word.upper(), token is not None and token.lastgroup == "quoted"
        if is_awaited and upper in _BEFORE_TABLES:
            pass
        elif is_awaited and word == ".":
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
    has_select: bool = False
    lists_tables: bool = False


def _awaits_table(levels: list[_Level], upper: str, before: str, *, is_awaited: bool) -> bool:
    if upper == "(":
        levels.append(_Level(lists_tables=is_awaited))
        return is_awaited
    if upper == ")":
        del levels[max(1, len(levels) - 1) :]
        return False
    level = levels[-1]
    level.has_select |= upper == "SELECT"
    level.lists_tables &= upper not in _AFTER_TABLES and (before, upper) != ("LATERAL", "VIEW")
    begins = upper == "FROM" and level.has_select and before != "DISTINCT"
    level.lists_tables |= begins
    return begins or upper == "JOIN" or (upper == "," and level.lists_tables)


def _unquoted(word: str) -> str:
    return word[1:-1] if word[0] in '"`[' else word


def _tokens(text: str, dialect: str) -> Iterator[re.Match[str]]:
    at, scanner = 0, _SCANNERS[dialect]
    while match := scanner.match(text, at):
        at = match.end()
        if match.lastgroup == "open":
            at = _end_of_nested(text, match.start()) if dialect in _NESTING and match[0] == "/*" else 0
            if not at:
                raise SettingError(_NOT_CLOSED.format(text[match.start() : match.start() + 30]))
        elif match.lastgroup not in ("space", "comment"):
            yield match


def _end_of_nested(text: str, begin: int) -> int:
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
            raise SettingError("has a ) without a (")
    if depth:
        raise SettingError("has a ( without a )")


def _require_query(words: list[str]) -> None:
    depth, before = 0, ""
    for word in map(str.upper, words if words[0].upper() == "WITH" else []):
        if before == ")" and not depth and word in _OTHER_STATEMENTS:
            raise SettingError(f"must have SELECT after WITH, not {word}")
        depth += {"(": 1, ")": -1}.get(word, 0)
        before = word


def _require_only_reads(tokens: list[re.Match[str]]) -> None:
    bare = " ".join("''" if token.lastgroup == "quoted" else token[0] for token in tokens)
    if match := _MORE_THAN_READING.search(bare):
        raise SettingError(
            f"has {match[1]}: it must not lock rows or write them elsewhere. Remove it (write a column of that name in"
            " backticks)"
        )


def queries_of(texts: Mapping[str, str], dialect: str) -> dict[str, Query]:
    """Parse queries by name.

    Raises:
        ValueError: if a query is not valid; the message has its name.
    """
    queries: dict[str, Query] = {}
    for name, text in texts.items():
        try:
            queries[name] = Query.of(text, dialect)
        except ValueError as error:
            raise SettingError(f"queries.{name} {error}") from None
    return queries
