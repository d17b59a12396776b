"""Planting of a fault in the running product: a function gets other code in every place that references it.

A fault names a module, a function in it, the original code and its replacement, as syntax. Independently of the
source's layout, the original must be there exactly once; otherwise planting fails.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from tests.checkers.operations import definition

_TOUCHES, _VALUE = "__touches__", "__value__"


@dataclass(frozen=True, slots=True)
class Edit:
    """In `function` (a qualified name) of `module` (below distcommit): statements, or one expression, for others.

    Without `new` the statements are left out.
    """

    module: str
    function: str
    old: str
    new: str = ""


def plant(edits: Sequence[Edit]) -> None:
    """Change the functions, for the life of this process.

    Raises:
        LookupError, TypeError: if the original code is missing, or there more than once: the product has changed.
    """
    for name in {edit.module: None for edit in edits}:
        module, tree = _module(name)
        wanted = [edit for edit in edits if edit.module == name]
        for edit in wanted:
            _change(definition(tree, edit.function), edit)
        _put(module, tree, {edit.function for edit in wanted})


class Touches(Protocol):
    """Receives the places that the product reaches."""

    def came(self, name: str) -> None:
        """Record that the place of an edit of that name is reached."""

    def differs(self, name: str) -> None:
        """Record that the edit would make an immediate difference: the original fails, or the replacement has
        another value."""


def touch(edits: Mapping[str, Sequence[Edit]], touches: Touches) -> None:
    """Make the functions report when they reach an edit, for the life of this process.

    Otherwise they are unchanged; replacing expressions are evaluated, and must have no effect.

    Raises:
        LookupError, TypeError: as `plant`.
    """
    named = [(name, edit) for name, group in edits.items() for edit in group]
    for module_name in {edit.module: None for _, edit in named}:
        module, tree = _module(module_name)
        here = [(name, edit) for name, edit in named if edit.module == module_name]
        _Touching(tree, here).visit(tree)
        setattr(module, _TOUCHES, touches)
        setattr(module, _VALUE, partial(_value, touches))
        _put(module, tree, {edit.function for _, edit in here})


def _value(touches: Touches, name: str, is_there: object, other: Callable[[], object]) -> object:
    """Return the original value, after comparing it with the replacement's."""
    try:
        instead = other()
        same = not (is_there or instead) or bool(is_there == instead)
    except Exception:  # noqa: BLE001 - whatever it is, it is another one
        same = False
    if not same:
        touches.differs(name)
    return is_there


def _module(name: str) -> tuple[ModuleType, ast.Module]:
    module = importlib.import_module(f"distcommit.{name}")
    return module, ast.parse(inspect.getsource(module))


def _put(module: ModuleType, tree: ast.Module, functions: set[str]) -> None:
    codes = _codes(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"))
    for function in functions:
        _function(module, function).__code__ = codes[function]


def _change(function: ast.FunctionDef, edit: Edit) -> None:
    old, new = _parsed(edit.old), _parsed(edit.new) or [ast.Pass()]
    there = _there(function, edit)
    if (pair := _expressions(edit)) is not None:
        _Exchange(there, pair[1]).visit(function)
        return
    for body in _bodies(function):
        if there in body:
            place = body.index(there)
            body[place : place + len(old)] = new


def _there(function: ast.FunctionDef, edit: Edit) -> ast.AST:
    """Return the expression, or the first of the statements, of an edit.

    Raises:
        LookupError: if it is not there exactly once.
    """
    places: list[ast.AST] = []
    if (pair := _expressions(edit)) is not None:
        wanted = ast.dump(pair[0])
        places += [node for node in ast.walk(function) if isinstance(node, ast.expr) and ast.dump(node) == wanted]
    else:
        old = [ast.dump(statement) for statement in _parsed(edit.old)]
        for body in _bodies(function):
            shown = [ast.dump(statement) for statement in body]
            places += [body[place] for place in range(len(body)) if shown[place : place + len(old)] == old]
    if len(places) != 1:
        raise LookupError(f"found {len(places)} times, not once, in {edit.module}.{edit.function}: {edit.old!r}")
    return places[0]


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(text)).body


def _expressions(edit: Edit) -> tuple[ast.expr, ast.expr] | None:
    """Return the old and the new expression, if the edit exchanges expressions."""
    parts = [part[0].value for part in map(_parsed, (edit.old, edit.new)) if part and isinstance(part[0], ast.Expr)]
    alone = len(_parsed(edit.old)) == len(_parsed(edit.new)) == 1
    return (parts[0], parts[1]) if alone and len(parts) == 2 else None


def _bodies(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    fields = [field for node in ast.walk(function) for _, field in ast.iter_fields(node)]
    return [field for field in fields if isinstance(field, list) and all(isinstance(part, ast.stmt) for part in field)]


class _Exchange(ast.NodeTransformer):
    """Replaces one expression by another."""

    def __init__(self, old: ast.AST, new: ast.expr) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


class _Touching(ast.NodeTransformer):
    """Puts calls of `Touches` around the code of edits."""

    def __init__(self, tree: ast.Module, edits: Sequence[tuple[str, Edit]]) -> None:
        self._named: dict[ast.AST, list[tuple[str, Edit]]] = {}
        for name, edit in edits:
            self._named.setdefault(_there(definition(tree, edit.function), edit), []).append((name, edit))

    def visit(self, node: ast.AST) -> Any:
        there: Any = self.generic_visit(node)
        for name, edit in self._named.get(node, ()):
            came, differs = (f"{_TOUCHES}.{what}({name!r})" for what in ("came", "differs"))
            if isinstance(node, ast.expr):
                looks = ast.parse(f"({came}, {_VALUE}({name!r}, THERE, lambda: ({edit.new})))[1]", mode="eval")
                there = _Exchange(_named(looks, "THERE"), there).visit(looks.body)
            else:
                reporting = ast.parse(f"{came}\ntry:\n    pass\nexcept BaseException:\n    {differs}\n    raise").body
                reporting[1].body = there if isinstance(there, list) else [there]  # type: ignore[attr-defined]
                there = reporting
        return there


def _named(tree: ast.AST, name: str) -> ast.AST:
    return next(node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name)


def _codes(code: CodeType) -> dict[str, CodeType]:
    """Return the code of all functions in it by qualified name."""
    codes: dict[str, CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            codes |= {part.co_qualname: part, **_codes(part)}
    return codes


def _function(module: object, name: str) -> FunctionType:
    value = module
    for part in name.split("."):
        value = inspect.getattr_static(value, part)
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name} is not a function")
    return function
