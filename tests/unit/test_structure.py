"""Structure of the code: sizes and import cycles. The allowed imports are in pyproject.toml (import-linter)."""

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
from distcommit.app.job_file.built_in_types import Section, types_of
from distcommit.core.interfaces.committer import SinkCommitter
from distcommit.core.interfaces.sink import Sink, SinkWriter
from distcommit.core.interfaces.source import Extraction, Extractor, Source
from tests.checkers.structure import SMALL, siblings, structure

MODULE, CLASS, FUNCTION = 400, 250, 60
"""The largest numbers of lines."""
FOLDER = 14
"""The largest number of modules and packages in a folder."""
ROOT = Path(distcommit.__file__).parent


def installed() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def simulated() -> Iterator[tuple[str, str]]:
    """Yield the modules of the simulation and the models, which have the product's size limits."""
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


def test_modules_classes_and_functions_are_within_their_size_limits() -> None:
    assert len([*simulated()]) > 60
    assert not [violation for path, source in (*installed(), *simulated()) for violation in too_large(path, source)]


SMALL_MODULES: dict[str, str] = {
    "app/checks/password_setting.py": "job_check is near its size limit",
    "app/inspection/report_data/killed_runs.py": "one part of the report, as each module beside it",
    "app/job_file/yaml_without_duplicate_keys.py": "the one loader of YAML, which secrets and job files use",
    "app/migration/gobblin/classes_to_port.py": "five modules of the conversion add to it",
    "app/telemetry/service_events.py": "telemetry must not import the service, which sends the events",
    "cli/exit_codes.py": "the text that the help and a page share",
    "cli/views/log_view.py": "the view of one command",
    "cli/views/serving_view.py": "the views of one command group",
    "constructs/converters/filter.py": "each converter has a module with its name",
    "core/error_catalogue/catalogue.py": "it imports all entries, which import their class",
    "core/error_catalogue/entry.py": "all modules with entries import it",
    "core/error_handling/foreign_errors.py": "the one place that catches panics of native code",
    "core/interfaces/clock.py": "an interface, which must not read the time itself",
    "core/interfaces/provenance.py": "a part of the interface of sources that sinks use without the rest",
    "core/records/run_outcome.py": "stored values that four packages use without the record",
    "core/support/child_program_source.py": "two packages start child processes with it",
    "core/support/counts.py": "all messages with numbers use it",
    "core/support/storable_check.py": "three packages check values with it",
    "engine/reading/read_deadline.py": "the rule for the end of reading, which needs no task",
    "engine/system_clock.py": "the only implementation that reads the time; simulations replace it",
    "fs/checksumming_writer.py": "the base class of the writers of all file systems",
    "sinks/base/file_names.py": "the only module of sinks that may build file names",
    "sinks/base/retries.py": "the only module of sinks that may wait",
    "sinks/iceberg/altered_tables.py": "a rule of Iceberg's column ids",
    "fs/database_credentials.py": "sinks and sources share it",
    "sinks/postgresql/sink.py": "each sink has a module with its settings",
    "sources/kafka/batch_schema.py": "the settings use it without a Kafka client",
    "sources/missing_dataset_check.py": "two sources share it",
    "spark/java_check.py": "it must not import Spark",
    "stores/folders/folder_trees.py": "five packages use it",
    "testing/fakes/convert_batch.py": "tests of all converters use it",
}
"""Modules of fewer lines than `SMALL`, and why each is not a part of another one."""


def test_module_of_few_lines_has_a_reason() -> None:
    named = {
        path for path, source in installed() if source.count("\n") < SMALL and not Path(path).name.startswith("__")
    }
    assert sorted(named - SMALL_MODULES.keys()) == [], "move it into the module that it serves, or give a reason"
    assert sorted(SMALL_MODULES.keys() - named) == [], "remove modules that are not small any more"


LARGE_FOLDERS: dict[str, tuple[int, str]] = {
    ".": (17, "its packages are the layers, in one contract of import-linter"),
    "constructs/converters": (15, "each converter has a module with its name"),
    "core/interfaces": (15, "one module for each interface; sub-folders would have two modules each"),
    "spark": (15, "sessions, launches and checks of a session import each other"),
}
"""Folders with more modules and packages than `FOLDER`: their limit, and why they are not divided."""


def test_folder_is_within_its_limit_or_has_a_reason() -> None:
    packages = [path.parent for path in ROOT.rglob("__init__.py")]
    found = {str(each.relative_to(ROOT)): siblings(each).lines for each in packages}
    assert {name: number for name, number in found.items() if number > FOLDER} == {
        name: number for name, (number, _) in LARGE_FOLDERS.items()
    }
    assert structure().largest_folder.lines == max(number for number, _ in LARGE_FOLDERS.values())


def test_size_check_reports_functions_and_modules_that_are_too_large() -> None:
    body = "    pass\n" * FUNCTION
    assert list(too_large("x.py", f"def long():\n{body}")) == ["x.py: long has 61 lines"]
    assert len(list(too_large("x.py", "pass\n" * (MODULE + 1)))) == 1


def counts_truth(path: str, source: str) -> Iterator[str]:
    """Yield the places where a boolean is used as a number."""
    tree = ast.parse(source)
    bool_arguments = {
        argument: bools
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for bools in [bools_of(function)]
        for argument in ast.walk(function)
    }
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=remaining, right=right) if not isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor):
                operands = [remaining, right]
            case ast.AugAssign(value=value) if not isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor):
                operands = [value]
            case ast.Call(func=ast.Name(id="sum" | "int"), args=[ast.GeneratorExp(elt=value), *_]):
                operands = [value]
            case ast.Call(func=ast.Name(id="int"), args=[value, *_]):
                operands = [value]
            case _:
                continue
        if any(is_truth(operand, bool_arguments.get(node, frozenset())) for operand in operands):
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def bools_of(function: ast.FunctionDef) -> frozenset[str]:
    """Return the arguments that are declared as booleans."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return frozenset(
        argument.arg for argument in arguments if argument.annotation and ast.unparse(argument.annotation) == "bool"
    )


def is_truth(node: ast.expr, declared: frozenset[str]) -> bool:
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Call(func=ast.Name(id="bool" | "isinstance")):
            return True
        case ast.BoolOp(values=values):
            return any(is_truth(value, declared) for value in values)
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


def test_booleans_are_not_used_as_numbers() -> None:
    sources = (*installed(), *benchmarks(), *simulated())
    assert not [use for path, source in sources for use in counts_truth(path, source)]


def test_boolean_check_reports_booleans_used_as_numbers() -> None:
    source = "a = 1 + (b > 2)\nc += not d\ne = sum(f is None for f in g)\nh = len(i) + bool(i)\nj = (k > 1) | (l > 2)\n"
    assert sorted(use.split(": ")[0] for use in counts_truth("x", source)) == ["x:1", "x:2", "x:3", "x:4"]
    named = "a = 's' * b.is_c\nd += e.has_f()\ng = sum(_was_h(i) for i in j)\nk = l - (m and is_n)\no = p + isle\n"
    assert sorted(use.split(": ")[0] for use in counts_truth("x", named)) == ["x:1", "x:2", "x:3", "x:4"]
    declared = "def f(a: bool, b: int) -> str:\n    return 's' * a + 't' * b\n\na = 's' * a\n"
    assert [use.split(": ")[0] for use in counts_truth("x", declared)] == ["x:2"]


def test_docstring_of_each_package_states_its_content_its_limits_and_where_to_start() -> None:
    packages = [(path, source) for path, source in (*installed(), *simulated()) if path.endswith("__init__.py")]
    incomplete = [path for path, source in packages if not is_sign(ast.get_docstring(ast.parse(source)) or "")]
    assert not incomplete


def is_sign(text: str) -> bool:
    owns = text.partition(".")[0].strip()
    return bool(owns and re.search(r"\bmust\s+not\b", text, re.IGNORECASE) and re.search(r"\b[Ss]tart\b", text))


def test_package_docstring_check_reports_a_missing_part() -> None:
    whole = "Names. Must not read. Start reading at `paths`."
    assert is_sign(whole)
    assert not any(map(is_sign, ("", whole.replace("Must not", "Does not"), whole.replace("Start", "Begin"))))


def test_imports_have_no_cycle_including_type_checking_imports() -> None:
    graph = grimp.build_graph("distcommit", "benchmarks", "tests", exclude_type_checking_imports=False, cache_dir=None)
    above = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(above).prepare()
    except CycleError as error:
        raise AssertionError(f"import cycle: {' -> '.join(error.args[1])}") from None


def of_names(path: str) -> bool:
    return path.startswith("protocol/paths/")


def test_file_and_folder_names_are_built_only_in_protocol_paths() -> None:
    parts = r"\b(TEMPORARY|WRITING|OUTPUT_PROBE|STORE_PROBE|SET_ASIDE)\b|\.tmp-|\.writing\"|\.probe-|probe-[{\"]"
    for pattern in (
        r":0(10|12)d\}|/run=\{|bucket=\{\w+:|\"(\.tmp-|\.seg|\.probe-)\"",
        rf":04d\}}|epoch=\{{epoch_name|{parts}",
        r"\bstore(_root)?\}/[a-z_]|\"(task_states|plans|set_aside|store\.json)\"",
        r"\}/(ledgers|frames)\"",
    ):
        paths = [path for path, source in product() if re.search(pattern, source)]
        assert paths
        assert all(map(of_names, paths)), paths


FOREIGN_NAMES: dict[str, str] = {
    "app/migration/foreign_positions.py": "Gobblin's properties",
    "app/demo/count_published.py": "counts without the product's code",
    "app/demo/demo_run.py": "what its commands print",
    "app/migration/gobblin/read_properties.py": "Gobblin's job files",
    "app/reading/snapshot_reader.py": "the endings by which Spark's readers know a format",
    "core/support/install_command.py": "pip's record of an installation",
    "sinks/delta/tables.py": "Delta's log",
    "sinks/files/footer.py": "the endings of formats",
    "sinks/files/split_by_time.py": "time folders, which a job file configures",
    "sinks/iceberg/new_snapshot.py": "Iceberg's manifests",
    "sinks/iceberg/catalog/sql_tables.py": "Iceberg's metadata files",
    "sinks/base/file_names.py": "the one module for files known only to sinks with their own target",
    "sinks/databases/two_phase_commit/prepared_transactions.py": "names of transactions",
}
"""Modules that build or parse file-like names, and why these are not names of the job's files."""


def names_made_or_read(path: str, source: str) -> Iterator[str]:
    """Yield the places where a file name is built or parsed: a suffix, a zero-padded number, or a name that is
    split."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                is_name = re.search(r"\.(arrows?|avro|json|open|orc|parquet|path|seg|tombstone|writing)$", text)
            case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
                is_name = re.fullmatch(r"0\d+d?", spec)
            case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value="-"), *_]):
                is_name = re.fullmatch("r?(partition|split)", attr)
            case _:
                continue
        if is_name:
            yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_file_names_are_not_built_or_parsed_outside_protocol_paths() -> None:
    """`protocol/paths` has a function or a constant for each name."""
    places = {path: [*names_made_or_read(path, source)] for path, source in product() if not of_names(path)}
    elsewhere = {path: lines for path, lines in places.items() if lines}
    assert not [line for path, lines in elsewhere.items() if path not in FOREIGN_NAMES for line in lines]
    assert elsewhere.keys() == FOREIGN_NAMES.keys(), "remove modules that build or parse no such names any more"


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
def test_file_name_check_reports_names_that_are_built_or_parsed(source: str) -> None:
    assert [*names_made_or_read("x.py", source)]
    harmless = (
        '"""Leaves `0001-x.json`."""\n\nname = f"{checksum:016x}{size:.3f}"\nhead, _, tail = urn.partition("@")\n'
    )
    assert not [*names_made_or_read("x.py", harmless)]


PARTS = (Sink, SinkWriter, SinkCommitter, Source, Extractor, Extraction)
ALLOWED_USES: dict[tuple[str, str], str] = {
    ("pipeline/task_flow.py", "FileSink"): "error branches are files, whatever the job's sinks are",
    (
        "pipeline/branches/all_branches.py",
        "AttemptFiles",
    ): "the writer of error branches, which also stores offsets without a record",
    (
        "pipeline/branches/error_branches.py",
        "AttemptFiles",
    ): "the writer of error branches, which also stores offsets without a record",
    (
        "pipeline/maintenance/compaction_source.py",
        "FileSink",
    ): "merged files are written by the same sink as the files that they replace",
    ("spark/staged_frames.py", "SparkSource"): "the Spark half of that source: sources must not import Spark",
    ("spark/staged_frames.py", "StagedFrames"): "the Spark half of that source: sources must not import Spark",
    ("spark/transformed_frame.py", "SparkSource"): "the Spark half of that source: sources must not import Spark",
    ("spark/spool_micro_batch.py", "SpooledBatch"): "the Spark half of the micro-batch source",
}
"""Modules that name a built-in sink or source of another package, and the reason."""


def named_parts(path: str, source: str) -> Iterator[str]:
    """Yield concrete sinks and sources, their writers and readers, that a module imports from another package.

    Comparisons of a type with the name of a built-in sink or source are included.
    """
    types = {*types_of("sink"), *types_of("source")}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if of_a_part(module):
                if path.startswith("/".join(module.split(".")[1:3]) + "/"):
                    continue  # the module's own package
                for alias in names:
                    imported = getattr(importlib.import_module(module), alias.name, None)
                    if inspect.isclass(imported) and issubclass(imported, PARTS):
                        yield alias.name
            case ast.Compare(left=ast.Attribute(attr="type"), comparators=[ast.Constant(value=str(value))]):
                if value in types and not path.startswith(("sinks/", "sources/")):  # their settings have a type
                    yield f"type {value}"


def of_a_part(module: str) -> bool:
    """Return whether a module is in the package of a built-in sink or source."""
    match module.split("."):
        case ["distcommit", "sinks", name, *_]:
            return name in types_of("sink")
        case ["distcommit", "sources", name, *_]:
            return name in types_of("source")
    return False


def test_modules_name_no_sink_or_source_of_another_package() -> None:
    """The abilities of a sink or source are part of its interface, so that a new one touches no other file."""
    named = {(path, name) for path, source in product() for name in named_parts(path, source)}
    console = {("sinks/console/sink.py", "FileSink")}  # `pyproject.toml` allows it: the console shows written files
    assert named == ALLOWED_USES.keys() | console


def test_part_check_reports_a_named_sink_or_source() -> None:
    source = "from distcommit.sources.kafka.source import KafkaSource\n\nisinstance(config.source, KafkaSource)\n"
    assert list(named_parts("app/x.py", source)) == ["KafkaSource"]
    assert not list(named_parts("sources/kafka/x.py", source))
    assert not list(named_parts("app/x.py", "from distcommit.sinks.files.footer import Footer\n"))
    assert list(named_parts("app/x.py", 'found = config.source.type == "kafka"\n')) == ["type kafka"]


def contracts() -> dict[str, dict[str, Any]]:
    """Return the import contracts by name."""
    text = (ROOT.parent / "pyproject.toml").read_text(encoding="utf-8")
    return {contract["name"]: contract for contract in tomllib.loads(text)["tool"]["importlinter"]["contracts"]}


@pytest.mark.parametrize("section", ["sink", "source"])
def test_import_contract_of_independent_parts_lists_every_sink_and_source(section: Section) -> None:
    listed = contracts()[f"{section}s know nothing of each other"]["modules"]
    assert sorted(name.split(".")[2] for name in listed) == list(types_of(section))


def test_import_contract_of_independent_file_systems_lists_every_file_system() -> None:
    pattern = re.compile(r"^class \w+FileSystem\b", re.MULTILINE)
    paths = [path for path, source in product() if path.startswith("fs/") and pattern.search(source)]
    listed = contracts()["file systems know nothing of each other"]["modules"]
    assert sorted(f"{name.removeprefix('distcommit.').replace('.', '/')}.py" for name in listed) == paths


def test_import_contract_without_spark_lists_every_other_package() -> None:
    packages = {f"distcommit.{path.parent.name}" for path in ROOT.glob("*/__init__.py")}
    may_import_spark = {"distcommit.app", "distcommit.cli", "distcommit.spark", "distcommit.testing"}
    listed = contracts()["what lies below Spark does not reach it, not by others either"]["source_modules"]
    assert set(listed) == packages - may_import_spark


def test_import_contracts_of_libraries_cover_the_whole_package() -> None:
    """New modules are then covered without being listed, and each exception must be used."""
    only = [contract for name, contract in contracts().items() if name.startswith("only ")]
    assert len(only) == 9
    assert all(contract["source_modules"] == ["distcommit"] for contract in only)


def test_import_contract_of_the_simulation_forbids_every_library_confined_in_the_product() -> None:
    """Arrow is allowed, because records are Arrow data. Spark has a contract of its own."""
    confined = {
        library for name, contract in contracts().items() if name.startswith("only ") for library in forbidden(contract)
    }
    listed = contracts()["the simulation and the models reach clients and terminals by the product alone"]
    assert forbidden(listed) == confined - {"pyarrow", "pyspark", "py4j"}


def forbidden(contract: dict[str, Any]) -> set[str]:
    return set(contract["forbidden_modules"])


OF_DEVELOPERS = ("dev", "bench")


def declared() -> set[str]:
    """Return the packages that `pyproject.toml` requires for the product or one of its extras."""
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [required for name, required in project["optional-dependencies"].items() if name not in OF_DEVELOPERS]
    return {
        normalized(re.split(r"[^\w.-]", requirement)[0])
        for required in (project["dependencies"], *extras)
        for requirement in required
    }


def normalized(name: str) -> str:
    """Return the normalized name of a package, which may be spelled in several ways."""
    return re.sub(r"[-_.]+", "-", name).lower()


packages_of_modules = cache(packages_distributions)


def undeclared(source: str, declared_packages: set[str]) -> Iterator[str]:
    """Yield imported modules whose package is not declared."""
    packages, no_package = packages_of_modules(), {"distcommit", "_typeshed", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        for top in {module.partition(".")[0] for module in modules} - no_package:
            if declared_packages.isdisjoint(map(normalized, packages.get(top, [top]))):
                yield top


def test_every_import_of_the_product_is_declared() -> None:
    """A package that only another dependency installs is not sufficient, because that may change."""
    declared_packages = declared()
    assert {(path, name) for path, source in product() for name in undeclared(source, declared_packages)} == set()


def test_import_check_reports_an_undeclared_package() -> None:
    source = "import os\n\nfrom yaml import dump\n\ndef f():\n    import hypothesis.strategies\n"
    assert list(undeclared(source, declared())) == ["hypothesis"]


def batched_functions() -> set[str]:
    """Return the names of the product's functions that always return a `BatchedWork`, which does nothing until run."""
    returns: dict[str, set[bool]] = {}
    for _, source in installed():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                is_batched = node.returns is not None and ast.unparse(node.returns).startswith("BatchedWork[")
                returns.setdefault(node.name, set()).add(is_batched)
    return {name for name, kinds in returns.items() if kinds == {True}}


def test_batched_work_is_never_discarded() -> None:
    """A call that is a statement of its own does nothing: it needs `yield from` or `run_alone`."""
    batched = batched_functions()
    assert {"commit_ready", "fence_bucket", "record_failures"} <= batched
    discarded = [
        f"{path}:{node.lineno}"
        for path, source in installed()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "attr", getattr(node.value.func, "id", "")) in batched
    ]
    assert discarded == []
