"""Each field of a structure has its own documentation."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import distcommit

_PRODUCT = Path(distcommit.__file__).parent


@functools.cache
def _classes() -> dict[str, list[tuple[Path, ast.ClassDef]]]:
    found: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for path in sorted(_PRODUCT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append((path, node))
    return found


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}


def _is_structure(node: ast.ClassDef, above: frozenset[str] = frozenset()) -> bool:
    """Return whether a class is a structure, a model, a named tuple or a data class, also by its bases."""
    bases = _bases(node)
    if not bases.isdisjoint({"Struct", "BaseModel", "NamedTuple", "TypedDict"}):
        return True
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return True
    above |= {node.name}
    return any(_is_structure(base, above) for name in bases - above for _, base in _classes().get(name, ()))


def _is_private(node: ast.ClassDef) -> bool:
    """Return whether a class is private and not stored. Structures of msgspec are stored formats."""
    return node.name.startswith("_") and "Struct" not in _bases(node)


def _undocumented(node: ast.ClassDef) -> Iterator[str]:
    documentation = ast.get_docstring(node) or ""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name, kind, text = field.target.id, ast.unparse(field.annotation), ast.unparse(field)
        if name.startswith("_") or "ClassVar" in kind or (name == "type" and "Literal" in kind):
            continue
        names = [name, *re.findall(r"alias='(\w+)'", text)]
        has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        is_attribute = any(re.search(rf"^ {{4}}{name}: ", documentation, re.MULTILINE) for name in names)
        if not (has_text or is_attribute or "description=" in text):
            yield name


def test_each_field_of_a_structure_has_its_own_documentation() -> None:
    """In the class's `Attributes:` by its name or alias, or in a text below the field. Private classes that are not
    stored, and the `type` by which a settings class is selected, need none."""
    lacking = [
        f"{path.relative_to(_PRODUCT)}: {node.name}.{field}"
        for classes in _classes().values()
        for path, node in classes
        if not _is_private(node) and _is_structure(node)
        for field in _undocumented(node)
    ]
    assert lacking == []
