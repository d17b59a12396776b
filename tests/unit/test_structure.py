"""How the code is laid out: sizes, and no circles. Who may import what stands in pyproject.toml (import-linter)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

import distcommit

MODULE, CLASS, FUNCTION = 400, 250, 60
"""Lines, at most."""
ROOT = Path(distcommit.__file__).parent


def product() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        if "testing" not in path.relative_to(ROOT).parts:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def too_large(path: str, source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > MODULE:
        yield f"{path}: {lines} lines"
    for node in ast.walk(ast.parse(source)):
        limit = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= limit:
            yield f"{path}: {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"


def test_no_part_of_the_product_is_too_large_to_be_read() -> None:
    assert not [found for path, source in product() for found in too_large(path, source)]


def test_what_is_too_large_is_found() -> None:
    body = "    pass\n" * FUNCTION
    assert list(too_large("x.py", f"def long():\n{body}")) == ["x.py: long has 61 lines"]
    assert len(list(too_large("x.py", "pass\n" * (MODULE + 1)))) == 1


def counts_truth(path: str, source: str) -> Iterator[str]:
    """Where a truth value is taken for a number."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.BinOp(left=left, right=right) if not isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor):
                asked = [left, right]
            case ast.AugAssign(value=value) if not isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor):
                asked = [value]
            case ast.Call(func=ast.Name(id="sum" | "int"), args=[ast.GeneratorExp(elt=value), *_]):
                asked = [value]
            case ast.Call(func=ast.Name(id="int"), args=[value, *_]):
                asked = [value]
            case _:
                continue
        if any(map(is_truth, asked)):
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def is_truth(node: ast.expr) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool" | "isinstance")):
            return True
        case ast.BoolOp(values=values):
            return all(map(is_truth, values))
    return False


def test_truth_is_no_number() -> None:
    assert not [found for path, source in product() for found in counts_truth(path, source)]


def test_truth_that_is_taken_for_a_number_is_found() -> None:
    source = "a = 1 + (b > 2)\nc += not d\ne = sum(f is None for f in g)\nh = len(i) + bool(i)\nj = (k > 1) | (l > 2)\n"
    assert sorted(found.split(": ")[0] for found in counts_truth("x", source)) == ["x:1", "x:2", "x:3", "x:4"]


def test_imports_make_no_circle_also_counting_those_for_types() -> None:
    graph = grimp.build_graph("distcommit", "benchmarks", exclude_type_checking_imports=False, cache_dir=None)
    above = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' -> '.join(error.args[1])}") from None


def test_names_of_files_and_folders_are_made_and_read_in_one_place() -> None:
    pattern = re.compile(r":0(10|12)d\}|/run=\{|bucket=\{\w+:|\"(\.tmp-|\.seg|\.probe-)\"")
    assert [path for path, source in product() if pattern.search(source)] == ["protocol/paths.py"]
