"""Plants a fault in the running product: a function gets other code, wherever it is already known.

A fault names a module, a function in it, and what stands there and what stands there instead, as syntax: however the
source is laid out, the old has to be there exactly once, and else the plant fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType


@dataclass(frozen=True, slots=True)
class Edit:
    """In `function` (a qualified name) of `module` (below distcommit): statements, or one expression, for others.

    Without `new` statements are left out.
    """

    module: str
    function: str
    old: str
    new: str = ""


def plant(edits: Sequence[Edit]) -> None:
    """Changes the functions, for as long as this process lives.

    Raises:
        LookupError, TypeError: if what is to be replaced is not there, or more than once: the product has changed.
    """
    by_module: dict[str, list[Edit]] = {}
    for edit in edits:
        by_module.setdefault(edit.module, []).append(edit)
    for name, wanted in by_module.items():
        module = importlib.import_module(f"distcommit.{name}")
        tree = ast.parse(inspect.getsource(module))
        for edit in wanted:
            _change(_definition(tree, edit), edit)
        codes = _codes(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"))
        for function in {edit.function for edit in wanted}:
            _function(module, function).__code__ = codes[function]


def _definition(tree: ast.Module, edit: Edit) -> ast.FunctionDef:
    body: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for name in edit.function.split("."):
        named = (n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name)
        found = next(named, None)
        body = found.body if isinstance(found, ast.FunctionDef | ast.ClassDef) else []
    if not isinstance(found, ast.FunctionDef):
        raise TypeError(f"no function {edit.function} in {edit.module}")
    return found


def _change(function: ast.FunctionDef, edit: Edit) -> None:
    old, new = (ast.parse(textwrap.dedent(text)).body for text in (edit.old, edit.new))
    expressions = [part[0].value for part in (old, new) if len(part) == 1 and isinstance(part[0], ast.Expr)]
    if len(expressions) == 2:
        exchange = _Expressions(*expressions)
        exchange.visit(function)
        times = exchange.times
    else:
        times = _exchange_statements(function, old, new or [ast.Pass()])
    if times != 1:
        raise LookupError(f"found {times} times, not once, in {edit.module}.{edit.function}: {edit.old!r}")


class _Expressions(ast.NodeTransformer):
    """Puts one expression in the place of another."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self._old, self._new, self.times = ast.dump(old), new, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.dump(node) == self._old:
            self.times += 1
            return self._new
        return self.generic_visit(node)


def _exchange_statements(function: ast.FunctionDef, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    wanted, times = [ast.dump(statement) for statement in old], 0
    for node in [*ast.walk(function)]:
        for _, body in ast.iter_fields(node):
            if not isinstance(body, list) or not all(isinstance(part, ast.stmt) for part in body):
                continue
            shown = [ast.dump(statement) for statement in body]
            places = [p for p in range(len(body)) if shown[p : p + len(wanted)] == wanted]
            for place in places:
                body[place : place + len(wanted)] = new
            times += len(places)
    return times


def _codes(code: CodeType) -> dict[str, CodeType]:
    """All functions' code in it by qualified name."""
    found: dict[str, CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            found |= {part.co_qualname: part, **_codes(part)}
    return found


def _function(module: object, name: str) -> FunctionType:
    found = module
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    function = inspect.unwrap(found) if callable(found) else found
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name} is no function")
    return function
