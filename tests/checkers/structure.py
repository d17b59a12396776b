"""Figures about the structure of the product's code, and about the code that one small run executes."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

import distcommit

_PRODUCT = Path(distcommit.__file__).parent
_LEFT_OUT = ("testing", "app/demo")
"""Packages that do not count as product: test helpers for users, and the demonstration."""
SMALL = 40
"""A module with fewer lines counts as small."""


class Longest(msgspec.Struct, frozen=True):
    """A module, class or function and its number of lines."""

    name: str
    lines: int


class Structure(msgspec.Struct, frozen=True):
    """Structure counts.

    `lines` and `modules` are by package, without the demonstration and `distcommit.testing`.
    """

    lines: dict[str, int]
    modules: dict[str, int]
    largest_folder: Longest
    """The folder with the most modules and packages in it; `lines` is their number."""
    small_share: float
    """Share of modules below 40 lines, without those named `__init__.py`, from 0 to 1."""
    contracts: int
    """Import contracts in `pyproject.toml`."""
    longest_module: Longest
    longest_class: Longest
    longest_function: Longest


class Executed(msgspec.Struct, frozen=True):
    """Distinct functions and modules of the product that the processes of one run executed."""

    functions: int
    modules: int
    records: int
    files: int


def structure() -> Structure:
    """Count modules, lines and definitions of the product, and the import contracts."""
    sources = {path: path.read_text(encoding="utf-8") for path in _modules()}
    lines: dict[str, int] = {}
    modules: dict[str, int] = {}
    for path, source in sources.items():
        package = path.relative_to(_PRODUCT).parts[0]
        lines[package] = lines.get(package, 0) + source.count("\n")
        modules[package] = modules.get(package, 0) + 1
    counted = {path: source for path, source in sources.items() if path.name != "__init__.py"}
    definitions = [each for path, source in counted.items() for each in _definitions(path, source)]
    return Structure(
        lines=lines,
        modules=modules,
        largest_folder=max(map(siblings, {path.parent for path in sources}), key=lambda each: each.lines),
        small_share=sum(1 for source in counted.values() if source.count("\n") < SMALL) / len(counted),
        contracts=len(_contracts()),
        longest_module=max(
            (Longest(_name(path), source.count("\n")) for path, source in sources.items()), key=lambda each: each.lines
        ),
        longest_class=max((each for is_class, each in definitions if is_class), key=lambda each: each.lines),
        longest_function=max((each for is_class, each in definitions if not is_class), key=lambda each: each.lines),
    )


def _modules() -> Iterator[Path]:
    left_out = tuple(f"{_PRODUCT / name}/" for name in _LEFT_OUT)
    yield from (path for path in sorted(_PRODUCT.rglob("*.py")) if not str(path).startswith(left_out))


def _name(path: Path) -> str:
    return path.relative_to(_PRODUCT.parent).as_posix()


def siblings(folder: Path) -> Longest:
    """Return the number of modules and packages in a folder."""
    siblings = [each for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
    return Longest(_name(folder), sum(1 for each in siblings if not each.name.startswith("__")))


def _definitions(path: Path, source: str) -> Iterator[tuple[bool, Longest]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield isinstance(node, ast.ClassDef), Longest(f"{_name(path)}: {node.name}", lines)


def _contracts() -> list[object]:
    project = tomllib.loads((_PRODUCT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["tool"]["importlinter"]["contracts"])


_JOB = """
job: traced
source: {{type: files, paths: ['{folder}/in/{{dataset}}/*.jsonl'], format: jsonl, min_file_age_s: 0}}
converters: [{{type: json, fields: {{number: int64}}}}]
paths: {{store: {folder}/store, staging: {folder}/staging, output: {folder}/out}}
spark: {{conf: {{spark.python.worker.reuse: 'false'}}}}
"""
"""Settings that let workers end after their task: a worker killed with its daemon would not report what it executed."""


def executed() -> Executed:
    """Run `distcommit run` on five records of one dataset under `coverage`, in all its processes.

    Raises:
        subprocess.CalledProcessError: if the run fails.
    """
    with tempfile.TemporaryDirectory(prefix="distcommit-traced-") as name:
        folder = Path(name)
        (folder / "in" / "numbers").mkdir(parents=True)
        (folder / "in" / "numbers" / "five.jsonl").write_text(
            "".join(f'{{"number": {n}}}\n' for n in range(5)), encoding="utf-8"
        )
        (folder / "job.yaml").write_text(_JOB.format(folder=folder), encoding="utf-8")
        settings = folder / "rc"
        settings.write_text(
            f"[run]\npatch = subprocess, fork, _exit\nparallel = true\ndata_file = {folder}/data\n"
            f"sigterm = true\nsource = {_PRODUCT}\n",
            encoding="utf-8",
        )
        run = ["run", f"--rcfile={settings}", "-m", "distcommit", "run", str(folder / "job.yaml"), "--json"]
        result = json.loads(_coverage(*run).splitlines()[-1])
        _coverage("combine", f"--rcfile={settings}", "-q")
        _coverage("json", f"--rcfile={settings}", "-q", "-o", str(folder / "found.json"))
        found = json.loads((folder / "found.json").read_bytes())["files"]
        functions = {path: _functions_executed(each) for path, each in found.items()}
        return Executed(
            functions=sum(functions.values()),
            modules=sum(1 for count in functions.values() if count),
            records=result["totals"]["records_published"],
            files=sum(1 for each in (folder / "out").rglob("*.parquet")),
        )


def _coverage(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "coverage", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(_PRODUCT.parent)},
    ).stdout


def _functions_executed(found: Mapping[str, dict[str, dict[str, list[int]]]]) -> int:
    """Return how many functions of a file had a line of their body executed; the module itself does not count."""
    return sum(1 for name, each in found["functions"].items() if name and each["executed_lines"])
