"""The examples on the pages about custom parts meet the contract of each kind of part."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
import yaml

import distcommit
from distcommit import BranchCounts, Converter, ForkOperator, RowChecker, Source, TaskChecker
from distcommit.app.job_file.built_in_types import Section, settings_class
from distcommit.core.errors import SourceError
from distcommit.testing import contracts
from distcommit.testing.contracts import (
    ConverterContract,
    ForkContract,
    RowCheckerContract,
    SourceContract,
    TaskCheckerContract,
)
from distcommit.testing.fakes.convert_batch import convert_batch

GUIDES = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "guides"
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in sorted(GUIDES.glob("custom-*.md"))}


def blocks(page: str, language: str = "python") -> list[str]:
    """Return the code blocks of one page."""
    return re.findall(rf"^```{language}\n(.*?)^```", TEXTS[page], re.MULTILINE | re.DOTALL)


def module_of_pages() -> ModuleType:
    """Return the classes of the pages as an importable module, as pickling requires."""
    spec = spec_from_loader("distcommit_own_parts_page", loader=None)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    for page in ("custom-source.md", "custom-constructs.md"):
        for block in blocks(page):
            exec(compile(block, page, "exec"), module.__dict__)
    return module


PARTS = module_of_pages()


class TestLines(SourceContract):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        for name, lines in (("orders", 25_000), ("clicks", 3)):
            (tmp_path / f"{name}.log").write_bytes(b"".join(b"%d\n" % line for line in range(lines)) + b"half a li")

    def make_source(self) -> Source:
        part: Source = PARTS.Lines(str(self.folder))
        return part

    def holds(self) -> Mapping[str, Mapping[str, int]]:
        return {"orders": {"orders": 25_000}, "clicks": {"clicks": 3}}

    def test_missing_lines_fail_their_work_unit(self) -> None:
        source = self.make_source()
        plan = self.plan(source)["clicks"]
        (self.folder / "clicks.log").write_bytes(b"0\n")
        with pytest.raises(SourceError, match="lines are gone"):
            list(source.open().extract(plan.work_units[0]))


class TestWords(ConverterContract):
    def make_converter(self) -> Converter:
        part: Converter = PARTS.Words()
        return part

    def make_batch(self) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([b"a bc", b"d", None], pa.binary())})

    def test_each_word_becomes_a_record_and_invalid_text_is_rejected(self) -> None:
        batch = pa.record_batch({"value": pa.array([b"a bc", b"\xff", None], pa.binary())})
        (part,) = convert_batch(self.make_converter(), batch)
        assert part.records.column("word").to_pylist() == ["a", "bc"]
        assert part.rows is not None
        assert (part.rows.to_pylist(), list(part.rejected)) == ([0, 0], [1])


class TestStamped(ConverterContract):
    def make_converter(self) -> Converter:
        part: Converter = PARTS.Stamped()
        return part

    def make_batch(self) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([b"a", b"b", None], pa.binary())})


class TestShort(RowCheckerContract):
    def make_checker(self) -> RowChecker:
        part: RowChecker = PARTS.Short(3)
        return part

    def passing(self) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([b"abc", b""], pa.binary())})

    def failing(self) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([b"abcd", None], pa.binary())})


class TestSorted(TaskCheckerContract):
    def make_checker(self) -> TaskChecker:
        part: TaskChecker = PARTS.Sorted()
        return part

    def passes(self) -> tuple[Sequence[pa.RecordBatch], BranchCounts]:
        return [pa.record_batch({"value": [b"a", b"b"]}), pa.record_batch({"value": [b"c"]})], BranchCounts(3, 3, 0, 0)

    def fails(self) -> tuple[Sequence[pa.RecordBatch], BranchCounts]:
        return [pa.record_batch({"value": [b"a", b"c"]}), pa.record_batch({"value": [b"b"]})], BranchCounts(3, 3, 0, 0)


class TestByKey(ForkContract):
    def make_fork(self) -> ForkOperator:
        part: ForkOperator = PARTS.ByKey()
        return part

    def branches(self) -> Sequence[str]:
        return ["keyed", "all"]

    def batch(self) -> pa.RecordBatch:
        return pa.record_batch({"key": pa.array([b"k", None, b"l"], pa.binary())})


def sections() -> list[tuple[Section, dict[str, Any]]]:
    """Return the job-file sections with a custom class that the pages show."""
    kinds: dict[str, Section] = {
        "source": "source",
        "converters": "converter",
        "row_checkers": "row_checker",
        "task_checkers": "task_checker",
        "fork": "fork",
        "sink": "sink",
    }
    shown = (item for page in TEXTS for block in blocks(page, "yaml") for item in yaml.safe_load(block).items())
    return [(kinds[key], value[0] if isinstance(value, list) else value) for key, value in shown]


def test_job_file_sections_name_the_classes_of_the_pages() -> None:
    assert {kind for kind, _ in sections()} == {"source", "converter", "row_checker", "task_checker", "fork", "sink"}
    for kind, section in sections():
        name = section["class"].rpartition(":")[2]
        settings = {**section, "class": f"{PARTS.__name__}:{name}"}
        part = settings_class(kind, "python").model_validate({k: v for k, v in settings.items() if k != "branches"})
        if kind == "source":
            assert part.model_dump()["options"] == {"folder": "/data/logs"}
        elif kind != "sink":  # its page only sketches the class of the sink
            assert type(getattr(part, "instance")) is getattr(PARTS, name)  # noqa: B009 - settings are models to the type checker


def test_contracts_named_on_the_pages_exist() -> None:
    named = set(re.findall(r"`(\w+Contract)`", "".join(TEXTS.values())))
    assert len(named) == 8
    assert all(hasattr(contracts, name) for name in named)


def test_commit_steps_of_their_page_commit(tmp_path: Path) -> None:
    for folder in ("staging", "output"):
        (tmp_path / folder).mkdir()
    (tmp_path / "staging" / "a.parquet").write_bytes(b"a")
    block = blocks("custom-steps.md")[0]
    shown: dict[str, Any] = {}
    exec(block.replace("/data/", f"{tmp_path}/"), shown)
    assert (tmp_path / "output" / "orders" / "a.parquet").read_bytes() == b"a"
    assert shown["store"].watermark("my-job", "orders").positions == {"0": 100, "1": 200}
