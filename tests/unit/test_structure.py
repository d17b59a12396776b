"""How the code is laid out: sizes, and no circles. Who may import what stands in pyproject.toml (import-linter)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp
import pytest

import distcommit
from distcommit.app.job_file.built_in import Section, types_of
from distcommit.core.interfaces.committer import SinkCommitter
from distcommit.core.interfaces.sink import Sink, SinkWriter
from distcommit.core.interfaces.source import Extraction, Extractor, Source
from tests.checkers.structure import structure

MODULE, CLASS, FUNCTION = 400, 250, 60
"""Lines, at most."""
FOLDER = 18
"""Modules and packages side by side, at most."""
ROOT = Path(distcommit.__file__).parent


def installed() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def simulated() -> Iterator[tuple[str, str]]:
    """Modules of the simulation and of the models, which are held to the product's sizes."""
    for path in sorted(
        path for name in ("models", "simulation") for path in (ROOT.parent / "tests" / name).rglob("*.py")
    ):
        yield str(path.relative_to(ROOT.parent)), path.read_text(encoding="utf-8")


def product() -> Iterator[tuple[str, str]]:
    yield from ((path, source) for path, source in installed() if "testing" not in Path(path).parts)


def too_large(path: str, source: str) -> Iterator[str]:
    lines = source.count("\n")
    if lines > MODULE:
        yield f"{path}: {lines} lines"
    for node in ast.walk(ast.parse(source)):
        limit = CLASS if isinstance(node, ast.ClassDef) else FUNCTION
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= limit:
            yield f"{path}: {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"


def test_no_part_of_what_is_installed_or_simulated_is_too_large_to_be_read() -> None:
    assert len([*simulated()]) > 60
    assert not [found for path, source in (*installed(), *simulated()) for found in too_large(path, source)]


def test_no_folder_has_more_siblings_than_a_reader_takes_in() -> None:
    assert structure().largest_folder.lines <= FOLDER, structure().largest_folder


def test_what_is_too_large_is_found() -> None:
    body = "    pass\n" * FUNCTION
    assert list(too_large("x.py", f"def long():\n{body}")) == ["x.py: long has 61 lines"]
    assert len(list(too_large("x.py", "pass\n" * (MODULE + 1)))) == 1


def counts_truth(path: str, source: str) -> Iterator[str]:
    """Where a truth value is taken for a number."""
    tree = ast.parse(source)
    told = {
        argument: bools_of(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef)
        for argument in ast.walk(each)
    }
    for node in ast.walk(tree):
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
        if any(is_truth(each, told.get(node, frozenset())) for each in asked):
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def bools_of(function: ast.FunctionDef) -> frozenset[str]:
    """Arguments that are declared as truth values."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return frozenset(each.arg for each in arguments if each.annotation and ast.unparse(each.annotation) == "bool")


def is_truth(node: ast.expr, declared: frozenset[str]) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool" | "isinstance")):
            return True
        case ast.BoolOp(values=values):
            return any(is_truth(each, declared) for each in values)
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith")):
            return True
        case ast.Name(id=name) if name in declared:
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name.lstrip("_").startswith(("is_", "has_", "was_"))
    return False


def benchmarks() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT.parent / "benchmarks").rglob("*.py")):
        yield str(path.relative_to(ROOT.parent)), path.read_text(encoding="utf-8")


def test_truth_is_no_number() -> None:
    sources = (*installed(), *benchmarks(), *simulated())
    assert not [found for path, source in sources for found in counts_truth(path, source)]


def test_truth_that_is_taken_for_a_number_is_found() -> None:
    source = "a = 1 + (b > 2)\nc += not d\ne = sum(f is None for f in g)\nh = len(i) + bool(i)\nj = (k > 1) | (l > 2)\n"
    assert sorted(found.split(": ")[0] for found in counts_truth("x", source)) == ["x:1", "x:2", "x:3", "x:4"]
    named = "a = 's' * b.is_c\nd += e.has_f()\ng = sum(_was_h(i) for i in j)\nk = l - (m and is_n)\no = p + isle\n"
    assert sorted(found.split(": ")[0] for found in counts_truth("x", named)) == ["x:1", "x:2", "x:3", "x:4"]
    declared = "def f(a: bool, b: int) -> str:\n    return 's' * a + 't' * b\n\na = 's' * a\n"
    assert [found.split(": ")[0] for found in counts_truth("x", declared)] == ["x:2"]


def test_each_package_says_what_it_owns_what_it_must_not_and_where_to_start() -> None:
    packages = [(path, source) for path, source in (*installed(), *simulated()) if path.endswith("__init__.py")]
    unsaid = [path for path, source in packages if not is_sign(ast.get_docstring(ast.parse(source)) or "")]
    assert not unsaid


def is_sign(text: str) -> bool:
    owns = text.partition(".")[0].strip()
    return bool(owns and re.search(r"\bmust\s+not\b", text, re.IGNORECASE) and re.search(r"\b[Ss]tart\b", text))


def test_a_package_that_leaves_one_of_them_out_is_found() -> None:
    whole = "Names. Must not read. Start reading at `paths`."
    assert is_sign(whole)
    assert not any(map(is_sign, ("", whole.replace("Must not", "Does not"), whole.replace("Start", "Begin"))))


def test_imports_make_no_circle_also_counting_those_for_types() -> None:
    graph = grimp.build_graph("distcommit", "benchmarks", "tests", exclude_type_checking_imports=False, cache_dir=None)
    above = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle: {' -> '.join(error.args[1])}") from None


def of_names(path: str) -> bool:
    return path.startswith("protocol/paths/")


def test_names_of_files_and_folders_are_made_and_read_in_one_place() -> None:
    parts = r"\b(TEMPORARY|WRITING|OUTPUT_PROBE|STORE_PROBE|SET_ASIDE)\b|\.tmp-|\.writing\"|\.probe-|probe-[{\"]"
    for pattern in (
        r":0(10|12)d\}|/run=\{|bucket=\{\w+:|\"(\.tmp-|\.seg|\.probe-)\"",
        rf":04d\}}|epoch=\{{epoch_name|{parts}",
        r"\bstore(_root)?\}/[a-z_]|\"(task_states|plans|set_aside|store\.json)\"",
        r"\}/(ledgers|frames)\"",
    ):
        found = [path for path, source in product() if re.search(pattern, source)]
        assert found
        assert all(map(of_names, found)), found


NAMES_OF_OTHERS: dict[str, str] = {
    "app/migration/positions.py": "Gobblin's properties",
    "app/demo/count.py": "counts without the product's code",
    "app/demo/story.py": "what its commands print",
    "app/gobblin/properties.py": "Gobblin's job files",
    "app/reading/readers.py": "the endings by which Spark's readers know a format",
    "sinks/delta/tables.py": "Delta's log",
    "sinks/files/footer.py": "the endings of formats",
    "sinks/files/time_folders.py": "folders by time, which are a job file's",
    "sinks/iceberg/snapshots.py": "Iceberg's manifests",
    "sinks/iceberg/catalog/sql_tables.py": "Iceberg's metadata files",
    "sinks/base/target_files.py": "the one place for files that only sinks with a target of their own know",
    "sinks/databases/two_phase.py": "names of transactions",
}
"""Modules that make or read names like those of files, and why these are not the job's own."""


def names_made_or_read(path: str, source: str) -> Iterator[str]:
    """Where a file's name is made, or read: an ending, also in a pattern; a number with zeros before it; a name that is
    taken apart."""
    tree = ast.parse(source)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in said:
                is_name = re.search(r"\.(arrows?|avro|json|open|orc|parquet|path|seg|tombstone|writing)$", text)
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
                is_name = re.fullmatch(r"0\d+d?", spec)
            case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value="-"), *_]):
                is_name = re.fullmatch("r?(partition|split)", attr)
            case _:
                continue
        if is_name:
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_no_name_of_a_file_is_made_or_read_elsewhere() -> None:
    """`protocol/paths` has a function, or a constant, for each, whoever uses it."""
    found = {path: [*names_made_or_read(path, source)] for path, source in product() if not of_names(path)}
    elsewhere = {path: lines for path, lines in found.items() if lines}
    assert not [line for path, lines in elsewhere.items() if path not in NAMES_OF_OTHERS for line in lines]
    assert elsewhere.keys() == NAMES_OF_OTHERS.keys(), "a module that makes or reads none any more"


@pytest.mark.parametrize(
    "source",
    [
        'name = f"{phase}-{task:05d}.parquet"',
        'name = f"{number:05}"',
        '_NOTE = ".path"',
        '_NAME = re.compile(r"[0-9a-f]{32}\\.json")',
        'task = name.rsplit("-", 2)[0]',
        'phase = name.partition("-")[0]',
    ],
)
def test_a_name_that_is_made_or_read_elsewhere_is_found(source: str) -> None:
    assert [*names_made_or_read("x.py", source)]
    told = '"""Leaves `0001-x.json`."""\n\nname = f"{checksum:016x}{size:.3f}"\nhead, _, tail = urn.partition("@")\n'
    assert not [*names_made_or_read("x.py", told)]


PARTS = (Sink, SinkWriter, SinkCommitter, Source, Extractor, Extraction)
WHO_NAMES_THEM: dict[tuple[str, str], str] = {
    ("pipeline/task_flow.py", "FileSink"): "error branches are files, whatever the job's sinks are",
    ("pipeline/branches/branching.py", "AttemptFiles"): "the writer of error branches, which keeps what has no record",
    ("spark/frames.py", "SparkSource"): "the half of that source which asks Spark: sources do not know it",
    ("spark/frames.py", "StagedFrames"): "the same",
    ("spark/micro_batch.py", "SpooledBatch"): "the half of the source of micro-batches which asks Spark",
}
"""Where one built-in sink or source is named that is not the module's own, and why it has to be."""


def named_parts(path: str, source: str) -> Iterator[str]:
    """Concrete sinks and sources, their writers and readers, of packages that the module is not in; and where a type is
    compared with the name of one."""
    types = {*types_of("sink"), *types_of("source")}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if of_a_part(module):
                if path.startswith("/".join(module.split(".")[1:3]) + "/"):
                    continue  # its own
                for each in names:
                    found = getattr(importlib.import_module(module), each.name, None)
                    if inspect.isclass(found) and issubclass(found, PARTS):
                        yield each.name
            case ast.Compare(left=ast.Attribute(attr="type"), comparators=[ast.Constant(value=str(value))]):
                if value in types and not path.startswith(("sinks/", "sources/")):  # whose own settings have types
                    yield f"type {value}"


def of_a_part(module: str) -> bool:
    """Whether a module is in the package of a built-in sink or source."""
    match module.split("."):
        case ["distcommit", "sinks", name, *_]:
            return name in types_of("sink")
        case ["distcommit", "sources", name, *_]:
            return name in types_of("source")
    return False


def test_no_module_but_its_own_names_a_sink_or_a_source() -> None:
    """What one can do it says by its interface, so that adding one touches no other file."""
    named = {(path, name) for path, source in product() for name in named_parts(path, source)}
    console = {("sinks/console/sink.py", "FileSink")}  # in `pyproject.toml`: it shows what that has written
    assert named == WHO_NAMES_THEM.keys() | console


def test_a_sink_or_source_that_is_named_is_found() -> None:
    source = "from distcommit.sources.kafka.source import KafkaSource\n\nisinstance(config.source, KafkaSource)\n"
    assert list(named_parts("app/x.py", source)) == ["KafkaSource"]
    assert not list(named_parts("sources/kafka/x.py", source))
    assert not list(named_parts("app/x.py", "from distcommit.sinks.files.footer import Footer\n"))
    assert list(named_parts("app/x.py", 'found = config.source.type == "kafka"\n')) == ["type kafka"]


def contracts() -> dict[str, dict[str, Any]]:
    """Import contracts by their names."""
    text = (ROOT.parent / "pyproject.toml").read_text(encoding="utf-8")
    return {each["name"]: each for each in tomllib.loads(text)["tool"]["importlinter"]["contracts"]}


@pytest.mark.parametrize("section", ["sink", "source"])
def test_no_sink_or_source_is_left_out_where_they_must_not_know_each_other(section: Section) -> None:
    listed = contracts()[f"{section}s know nothing of each other"]["modules"]
    assert sorted(name.split(".")[2] for name in listed) == list(types_of(section))


def test_no_file_system_is_left_out_where_they_must_not_know_each_other() -> None:
    pattern = re.compile(r"^class \w+FileSystem\b", re.MULTILINE)
    found = [path for path, source in product() if path.startswith("fs/") and pattern.search(source)]
    listed = contracts()["file systems know nothing of each other"]["modules"]
    assert sorted(f"{name.removeprefix('distcommit.').replace('.', '/')}.py" for name in listed) == found


def test_no_room_is_left_out_where_spark_must_not_be_known() -> None:
    rooms = {f"distcommit.{path.parent.name}" for path in ROOT.glob("*/__init__.py")}
    know = {"distcommit.app", "distcommit.cli", "distcommit.spark", "distcommit.testing"}
    listed = contracts()["what lies below Spark does not reach it, not by others either"]["source_modules"]
    assert set(listed) == rooms - know


def test_who_alone_may_know_a_library_is_said_of_the_whole_package() -> None:
    """So that a new module is held to it without being listed; who may know it is an exception that has to be used."""
    only = [each for name, each in contracts().items() if name.startswith("only ")]
    assert len(only) == 9
    assert all(each["source_modules"] == ["distcommit"] for each in only)


def test_the_simulation_is_kept_from_each_library_that_the_product_confines() -> None:
    """Each but Arrow, in which records are; Spark is in a contract of its own."""
    confined = {
        library for name, each in contracts().items() if name.startswith("only ") for library in forbidden(each)
    }
    listed = contracts()["the simulation and the models reach clients and terminals by the product alone"]
    assert forbidden(listed) == confined - {"pyarrow", "pyspark", "py4j"}


def forbidden(contract: dict[str, Any]) -> set[str]:
    return set(contract["forbidden_modules"])


OF_DEVELOPERS = ("dev", "bench")


def declared() -> set[str]:
    """The packages that `pyproject.toml` asks for, for the product or an extra of it."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [wanted for name, wanted in project["optional-dependencies"].items() if name not in OF_DEVELOPERS]
    return {normal(re.split(r"[^\w.-]", each)[0]) for wanted in (project["dependencies"], *extras) for each in wanted}


def normal(name: str) -> str:
    """A package's name, of which there are several spellings."""
    return re.sub(r"[-_.]+", "-", name).lower()


packages_of_modules = cache(packages_distributions)


def undeclared(source: str, known: set[str]) -> Iterator[str]:
    """What is imported that no package has that is declared."""
    packages, no_package = packages_of_modules(), {"distcommit", "_typeshed", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [each.name for each in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        for top in {module.partition(".")[0] for module in modules} - no_package:
            if known.isdisjoint(map(normal, packages.get(top, [top]))):
                yield top


def test_what_the_product_imports_it_declares() -> None:
    """Not only a package that brings it along, and may do so no more."""
    known = declared()
    assert {(path, name) for path, source in product() for name in undeclared(source, known)} == set()


def test_an_import_that_is_not_declared_is_found() -> None:
    source = "import os\n\nfrom yaml import dump\n\ndef f():\n    import hypothesis.strategies\n"
    assert list(undeclared(source, declared())) == ["hypothesis"]
