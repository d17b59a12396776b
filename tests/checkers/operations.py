"""Operations in the product's sources, and changes of them.

An operation is found by its function and its names, independently of the source's layout. Examples are `call
sync_tree`, `compare older kept`, `keyword closed_epoch`, `if missing None`, `return Lost source`, `assign whole`: a
kind of syntax and names. A call's or a keyword's own name comes first. The others, including constants but not strings,
are mentioned anywhere in it, for an `if` in its condition. `... in case Done` searches that case alone.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_KINDS: dict[str, type[ast.AST]] = {
    "assign": ast.Assign,
    "call": ast.Call,
    "compare": ast.Compare,
    "if": ast.If,
    "keyword": ast.keyword,
    "return": ast.Return,
}


@dataclass(frozen=True, slots=True)
class Change:
    """An operation is left out, or other syntax stands `instead`, or statements come `before` it."""

    module: str
    function: str
    operation: str
    instead: str = ""
    before: str = ""


class Source:
    """A module's text and its tree."""

    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.above = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def place(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return its beginning and its end, in bytes."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise AssertionError(ast.dump(node))
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def text(self, begin: int, end: int) -> str:
        """Return the text between two places."""
        return self._data[begin:end].decode()

    def replaced(self, parts: Iterable[tuple[tuple[int, int], str]]) -> str:
        """Return the module with other text at these places."""
        data = self._data
        for (begin, end), text in sorted(parts, reverse=True):
            data = data[:begin] + text.encode() + data[end:]
        return data.decode()


def changed(text: str, changes: Sequence[Change]) -> str:
    """Return the module with all of these changes, each found in the original.

    Raises:
        LookupError, TypeError: if an operation is not there exactly once, or cannot be left out.
    """
    source = Source(text)
    return source.replaced(_replacement(source, change) for change in changes)


def operation(tree: ast.Module, function: str, wanted: str) -> ast.AST:
    """Return the only operation in a function of this kind that mentions these names; of nested ones the innermost.

    Raises:
        LookupError, TypeError: if there is none, or more than one.
    """
    described, _, case = wanted.partition(" in case ")
    kind, *names = described.split()
    scope: ast.AST = definition(tree, function)
    if case:
        cases = [n for n in ast.walk(scope) if isinstance(n, ast.match_case) and case in mentioned(n.pattern)]
        scope = _only(cases, f"case {case}", function)
    operations = [node for node in ast.walk(scope) if isinstance(node, _KINDS[kind]) and _mentions(node, names)]
    outer = {
        node for node in operations for part in ast.walk(_subject(node)) if part is not node and part in operations
    }
    return _only([node for node in operations if node not in outer], wanted, function)


def definition(tree: ast.Module, function: str) -> ast.FunctionDef:
    """Return a function by its qualified name, without the `<locals>` of nested ones.

    Raises:
        TypeError: if there is no such function.
    """
    body: list[ast.stmt] = tree.body
    definition_node: ast.stmt | None = None
    for name in function.split("."):
        named = (n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
        definition_node = next(named, None)
        body = definition_node.body if isinstance(definition_node, ast.FunctionDef | ast.ClassDef) else []
    if not isinstance(definition_node, ast.FunctionDef):
        raise TypeError(f"no function {function}")
    return definition_node


def mentioned(node: ast.AST) -> dict[str, None]:
    """Return the names, attributes, keywords and constants but strings in it, in their order, each once."""
    return dict.fromkeys(_mentioned(node))


def _mentioned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.Constant(value=value) if not isinstance(value, str):
            yield str(value)
    for child in ast.iter_child_nodes(node):
        yield from _mentioned(child)
    if isinstance(node, ast.Attribute):
        yield node.attr


def _subject(node: ast.AST) -> ast.AST:
    return node.test if isinstance(node, ast.If) else node


def _mentions(node: ast.AST, names: Sequence[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=own)) | ast.Call(func=ast.Name(id=own)) | ast.keyword(arg=str(own)):
            return own == names[0] and {*names} <= {*mentioned(node)}
        case ast.Call() | ast.keyword():
            return False
    return {*names} <= {*mentioned(_subject(node))}


def _only(found: Sequence[ast.AST], what: str, function: str) -> ast.AST:
    if len(found) != 1:
        raise LookupError(f"found {len(found)} times, not once, in {function}: {what}")
    return found[0]


def _replacement(source: Source, change: Change) -> tuple[tuple[int, int], str]:
    node = operation(source.tree, change.function, change.operation)
    if not isinstance(node, ast.expr | ast.stmt | ast.keyword):
        raise TypeError(ast.dump(node))
    if change.before:
        statement: ast.AST = node
        while not isinstance(statement, ast.stmt):
            statement = source.above[statement]
        begin, _ = source.place(statement)
        margin = "\n" + " " * statement.col_offset
        return (begin, begin), "".join(line + margin for line in textwrap.dedent(change.before).strip().splitlines())
    if change.instead:
        return source.place(node), change.instead
    if isinstance(node, ast.keyword):
        return _without(source, node), ""
    if not isinstance(node, ast.stmt) and not isinstance(source.above[node], ast.Expr):
        raise TypeError(f"can't be left out of {change.function}: {change.operation}")
    return source.place(node), "pass"


def _without(source: Source, node: ast.keyword) -> tuple[int, int]:
    """Return the place of an argument, with its comma."""
    call = source.above[node]
    if not isinstance(call, ast.Call):
        raise TypeError(ast.dump(call))
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    places = sorted(map(source.place, arguments))
    own = places.index(source.place(node))
    if own:
        return places[own - 1][1], places[own][1]
    return places[0][0], places[1][0] if len(places) > 1 else places[0][1]
