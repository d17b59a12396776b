"""Every remedy that the product can print.

There are three kinds: the problems of `distcommit status`, by their ids; the commands that a source names for a dataset
that it could not plan (`remedy=`); and the last part of an error (`todo=`) that names a command of `distcommit` or a
way to release a dataset. The last two kinds are read from the source code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import distcommit
from distcommit.app.inspection.problems.catalogue import PROBLEMS
from distcommit.cli.main import commands_by_name

PACKAGE = Path(distcommit.__file__).parent
GAP = "…"
"""Placeholder in a text for its variable parts."""
_WAYS = r"(?:retry|accept|abandon|restart)"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The id of a problem or a printed text, with its place in the code.

    `command`: the command, if it is a constant there.
    """

    place: str
    text: str
    command: str = ""

    @property
    def line(self) -> str:
        """Return the place and the text, which contain the fragments that drills declare."""
        return f"{self.place} | {self.text}"


def _is_remedy(text: str) -> bool:
    names = "|".join(command_names())
    ways = rf"\brelease\b[^.]*\b{_WAYS}\b|\b{_WAYS}\b[^.]*\brelease\b|\babandon\b"
    return re.search(rf"distcommit (?:{names})\b|{ways}", text) is not None


def remedies() -> list[Remedy]:
    """Return each remedy once: problems by their ids, then the others in the order of the source."""
    remedy_by_place = {("status", kind.id): Remedy("status", kind.id, kind.command) for kind in PROBLEMS.values()}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "testing" in path.parts:
            continue
        module = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for remedy in _of_errors(module, tree):
            remedy_by_place.setdefault((remedy.place, remedy.text), remedy)
    return list(remedy_by_place.values())


def _of_errors(module: str, tree: ast.Module) -> Iterator[Remedy]:
    constants = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    for function, keyword in _keywords(tree):
        place = f"{module}:{function}"
        texts = ["".join(_text(value, constants)) for value in _alternatives(keyword.value, constants)]
        if keyword.arg == "remedy" and texts[0]:
            yield Remedy(place, f"remedy of {function}", texts[0])
        elif keyword.arg == "todo" and any(map(_is_remedy, texts)):
            yield from (Remedy(place, re.sub(f"{GAP}+", GAP, text)) for text in texts if text.strip(GAP))


def _alternatives(node: ast.expr, constants: Mapping[str, ast.expr]) -> Iterator[ast.expr]:
    """Yield the possible values of an expression; names of module constants are replaced by their values."""
    if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in constants:
        yield from _alternatives(constants[ast.unparse(node)], constants)
    elif isinstance(node, ast.IfExp):
        yield from (*_alternatives(node.body, constants), *_alternatives(node.orelse, constants))
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _alternatives(value, constants)
    elif isinstance(node, ast.Subscript) and isinstance(table := constants.get(ast.unparse(node.value)), ast.Dict):
        for value in table.values:
            yield from _alternatives(value, constants)
    else:
        yield node


def _keywords(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.keyword]]:
    for node in ast.iter_child_nodes(tree):
        within = f"{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else function
        if isinstance(node, ast.Call):
            yield from ((function, keyword) for keyword in node.keywords if keyword.arg in ("todo", "remedy"))
        yield from _keywords(node, within)


def _text(node: ast.expr, constants: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yield the constant texts of an expression, with `GAP` for the rest."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _text(part, constants)
    elif isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Constant | ast.Name):
        yield from _text(node.value, constants)
    elif isinstance(node, ast.BinOp):
        yield from (*_text(node.left, constants), *_text(node.right, constants))
    elif isinstance(node, ast.Name) and node.id in constants:
        yield from _text(constants[node.id], constants)
    elif isinstance(node, ast.IfExp):
        yield from (*_text(node.body, constants), " | ", *_text(node.orelse, constants))
    elif isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
        yield str(node.elts[0].value)
    elif not isinstance(node, ast.Tuple):
        yield GAP


@cache
def command_names() -> list[str]:
    """Return the names of all commands, each after its group's."""
    return sorted(commands_by_name())
