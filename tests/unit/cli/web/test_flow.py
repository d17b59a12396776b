"""`distcommit check --offline` shows a job's task flow as text, JSON or drawing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from distcommit.app.checks.flow_description import FlowDescription, FlowPart, describe_flow
from distcommit.app.job_file.load_job_file import load_config
from distcommit.cli.main import app
from distcommit.cli.web.flow_svg import flow_svg
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.constructs import Converted, Converter, RowChecker
from distcommit.core.work_units import WorkUnit

PLAIN: Mapping[str, Any] = {
    "job": "orders",
    "source": {"type": "kafka", "brokers": "127.0.0.1:1", "topics": ["a", "b"]},
    "paths": {"store": "store", "staging": "staging", "output": "output"},
}
JSON = {"type": "json", "fields": {"id": "int64", "price": "float64", "tags": ["string"]}}
FORKED: Mapping[str, Any] = {
    **PLAIN,
    "converters": [JSON],
    "row_checkers": [
        {"type": "not_null", "columns": ["id"], "on_failure": "divert"},
        {"type": "not_null", "columns": ["price"], "level": "optional"},
    ],
    "fork": {
        "type": "first_match",
        "when": {"dear": {"column": "price", "op": ">=", "value": 1000}},
        "unmatched": "cheap",
        "branches": {
            "dear": {
                "sink": {"type": "files", "format": "avro"},
                "task_checkers": [
                    {"type": "unique", "columns": ["id"]},
                    {"type": "row_count", "min": 1, "level": "optional"},
                ],
            },
            "cheap": {
                "converters": [{"type": "explode", "column": "tags"}, {"type": "drop", "columns": ["price"]}],
                "row_checkers": [{"type": "in_set", "column": "tags", "values": ["x"], "on_failure": "drop"}],
            },
        },
    },
}


def job_file(folder: Path, tree: Mapping[str, Any]) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(dict(tree), sort_keys=False))
    return path


def described(folder: Path, tree: Mapping[str, Any]) -> FlowDescription:
    return describe_flow(load_config(job_file(folder, tree)))


def shown(folder: Path, tree: Mapping[str, Any], *options: str) -> str:
    """Return the output of the command."""
    done = CliRunner().invoke(app, ["check", str(job_file(folder, tree)), "--offline", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def heads(parts: Sequence[FlowPart]) -> list[tuple[str, str]]:
    return [(part.kind, part.name) for part in parts]


def test_flow_without_a_fork_has_one_branch(tmp_path: Path) -> None:
    result = described(tmp_path, PLAIN)
    assert heads(result.parts) == [("source", "kafka")]
    assert [heads(branch.parts) for branch in result.branches] == [[("sink", "files")]]
    assert (result.fork, result.errors) == (None, None)


def test_constructs_are_shown_in_their_order(tmp_path: Path) -> None:
    result = described(tmp_path, FORKED)
    assert heads(result.parts) == [
        ("source", "kafka"),
        ("converter", "json"),
        ("row checker", "not_null"),
        ("row checker", "not_null#2"),
    ]
    assert {branch.name: heads(branch.parts) for branch in result.branches} == {
        "dear": [("sink", "files"), ("task checker", "unique"), ("task checker", "row_count")],
        "cheap": [("converter", "explode"), ("converter", "drop"), ("row checker", "in_set"), ("sink", "files")],
    }


def test_optional_branch_is_marked(tmp_path: Path) -> None:
    fork = FORKED["fork"]
    dear = {**fork["branches"]["dear"], "optional": True}
    tree = {**FORKED, "fork": {**fork, "branches": {**fork["branches"], "dear": dear}}}
    result = described(tmp_path, tree)
    assert [(branch.name, branch.optional) for branch in result.branches] == [("dear", True), ("cheap", False)]
    assert [part.on_rejected for part in result.branches[0].parts if part.kind == "task checker"] == [
        "not passed: the branch fails",
        "not passed: only reported",
    ]
    assert result.errors is not None
    assert "branch dear (optional)" in flow_svg(result)


def test_outcome_of_rejected_records_is_shown_for_each_construct(tmp_path: Path) -> None:
    result = described(tmp_path, FORKED)
    dear, cheap = result.branches
    assert [part.on_rejected for part in result.parts[1:]] == [
        "not converted: the work unit fails",
        "expects id not null; else to the error branch",
        "expects price not null; else only counted",
    ]
    assert result.fork is not None
    assert result.fork.on_rejected == "unmatched: to branch cheap"
    fates = ["not passed: the attempt fails", "not passed: only reported"]
    assert [part.on_rejected for part in dear.parts[1:]] == fates
    assert [part.on_rejected for part in cheap.parts[:3]] == [
        "makes several records of one; not converted: the work unit fails",
        "not converted: the work unit fails",
        "expects tags in (x); else dropped, and counted",
    ]
    assert result.errors is not None


@pytest.mark.parametrize(
    ("more", "has_errors"),
    [
        ({"converters": [JSON]}, False),
        ({"converters": [JSON], "on_rejected": "divert"}, True),
        ({"row_checkers": [{"type": "not_null", "columns": ["key"], "level": "optional"}]}, False),
        ({"row_checkers": [{"type": "not_null", "columns": ["key"], "on_failure": "fail"}]}, False),
        ({"row_checkers": [{"type": "not_null", "columns": ["key"]}]}, True),
        ({"fork": {"type": "all", "branches": {"x": {}}}}, False),
        ({"fork": {"type": "all", "branches": {"x": {}}}, "on_rejected": "divert"}, True),
        ({"fork": {"type": "all", "branches": {"x": {}}, "unmatched": "drop"}, "on_rejected": "divert"}, False),
    ],
)
def test_error_branch_is_shown_only_if_a_construct_diverts_records(
    tmp_path: Path, more: Mapping[str, Any], has_errors: bool
) -> None:
    assert (described(tmp_path, {**PLAIN, **more}).errors is not None) == has_errors


def test_columns_are_shown_as_far_as_they_are_known(tmp_path: Path) -> None:
    text = shown(tmp_path, FORKED)
    assert "+ id int64, + price double, + tags list<item: string>, 7 unchanged" in " ".join(
        text.replace("│", "").split()
    )
    assert "columns: + tags string, 9 unchanged" in text
    assert "columns: - price, 9 unchanged" in text
    unknown = {
        **PLAIN,
        "converters": [{"type": "python", "class": f"{__name__}:Unknown"}, {"type": "select", "columns": ["a"]}],
    }
    text = shown(tmp_path, unknown)
    assert "columns: depend on the records" in text
    assert "columns: a ?\n" in text
    inferred = {**PLAIN, "converters": [{"type": "json"}, {"type": "rename", "columns": {"x": "y"}}]}
    text = shown(tmp_path, inferred)
    assert "columns: 7 unchanged, others depend on the records" in text
    assert "columns: + y ?, 7 unchanged, others depend on the records" in text


def test_settings_of_the_job_file_are_shown_without_defaults(tmp_path: Path) -> None:
    result = described(tmp_path, FORKED)
    assert result.parts[0].settings == "brokers: '127.0.0.1:1', topics: [a, b]"
    assert result.parts[2].settings == "columns: [id]"
    assert result.fork is not None
    assert result.fork.settings == "when: {dear: {column: price, op: '>=', value: 1000}}"
    assert [branch.parts[-1].settings for branch in result.branches] == ["min: 1", ""]


def test_flow_shows_no_secret(tmp_path: Path) -> None:
    secret = "correct horse battery"
    tree = {
        **PLAIN,
        "source": {**PLAIN["source"], "client": {"sasl.password": secret}},
        "converters": [
            {"type": "avro", "registry": {"url": "http://x:1", "client": {"basic.auth.user.info": secret}}},
            {"type": "hash", "columns": ["key"], "key": secret},
        ],
        "row_checkers": [{"type": "python", "class": f"{__name__}:Keyed", "options": {"url": f"http://me:{secret}@x"}}],
        "task_checkers": [{"type": "unique", "columns": ["http://me:geheim@x"]}],
    }
    drawn = tmp_path / "flow.svg"
    for text in (shown(tmp_path, tree, "--svg", str(drawn)), shown(tmp_path, tree, "--json"), drawn.read_text()):
        assert "horse" not in text
        assert "geheim" not in text
        assert "sasl.password" in text
        assert "url" in text


def test_constructs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    tree = {**PLAIN, "converters": [JSON, {"type": "drop", "columns": ["prize"]}]}
    with pytest.raises(ConfigurationError, match=r"drop can take, from json.*prize"):
        described(tmp_path, tree)
    chosen = {"type": "select", "columns": ["id", "value"]}
    behind = {**PLAIN, "converters": [{"type": "json"}, chosen, {"type": "mask", "columns": ["email"]}]}
    with pytest.raises(ConfigurationError, match=r"mask can take, from select.*'email'.*columns id, value"):
        described(tmp_path, behind)
    done = CliRunner().invoke(
        app, ["check", str(job_file(tmp_path, tree)), "--offline", "--svg", str(tmp_path / "flow.svg")]
    )
    assert done.exit_code == 2
    assert not (tmp_path / "flow.svg").exists()


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"format": "csv"}, "written to csv.*column=headers"),
        ({"partition_by": [{"field": "country"}]}, "partitioned by a field.*column=country"),
        ({"partition_by": {"column": "id"}}, "partitioned by time.*column=id"),
        ({"sort_by": [{"column": "prize"}]}, "sorted.*column=prize"),
        ({"columns": {"price": {"encoding": "delta_byte_array"}}}, "does not apply to this column.*column=price"),
    ],
)
def test_sink_that_cannot_store_its_columns_is_refused(tmp_path: Path, sink: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        described(tmp_path, {**PLAIN, "converters": [JSON], "sink": sink})


def test_layout_settings_of_files_are_shown(tmp_path: Path) -> None:
    sink = {"format": "jsonl", "partition_by": [{"field": "id"}], "sort_by": [{"column": "price"}]}
    (branch,) = described(tmp_path, {**PLAIN, "converters": [JSON], "sink": sink}).branches
    assert branch.parts[-1].settings == "format: jsonl, partition_by: [{field: id}], sort_by: [{column: price}]"


def test_json_output_has_all_columns(tmp_path: Path) -> None:
    document = json.loads(shown(tmp_path, FORKED, "--json"))["flow"]
    assert document["parts"][1]["columns"][-1] == {"name": "tags", "type": "list<item: string>"}
    assert [branch["name"] for branch in document["branches"]] == ["dear", "cheap"]


@pytest.mark.parametrize("tree", [PLAIN, FORKED])
def test_drawing_shows_every_part_without_overlaps(tmp_path: Path, tree: Mapping[str, Any]) -> None:
    result = described(tmp_path, tree)
    svg = ET.fromstring(flow_svg(result))
    words = " ".join(element.text or "" for element in svg.iter() if element.tag.endswith("text"))
    for part in (*result.parts, *(part for branch in result.branches for part in branch.parts)):
        assert part.name in words
        assert part.kind in words
    boxes, frames = ([rectangle(shape) for shape in svg.iter() if shape.get("class") == c] for c in ("box", "branch"))
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    for remaining, top, right, bottom in boxes:
        assert 0 <= remaining < right <= width
        assert 0 <= top < bottom <= height
    for (remaining, top, right, bottom), other in (*combinations(boxes, 2), *combinations(frames, 2)):
        assert right <= other[0] or other[2] <= remaining or bottom <= other[1] or other[3] <= top
    for text in svg.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.attrib["y"]) <= height
        assert len(text.text or "") * 6.65 <= width


def rectangle(box: ET.Element) -> tuple[float, float, float, float]:
    x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def test_hostile_names_are_escaped_in_the_drawing(tmp_path: Path) -> None:
    tree = {**PLAIN, "job": "<b>\x1b[31m&\u202e", "row_checkers": [{"type": "not_null", "columns": ["]]><script>"]}]}
    with pytest.raises(ConfigurationError, match="script"):
        described(tmp_path, tree)
    tree = {
        **PLAIN,
        "job": tree["job"],
        "converters": [{"type": "json"}],
        "task_checkers": [{"type": "unique", "columns": ["<script>\x07" + "x" * 5000]}],
    }
    svg = flow_svg(described(tmp_path, tree))
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert "\u202e" not in svg
    assert len(svg) < 12_000
    title = ET.fromstring(svg).find("{http://www.w3.org/2000/svg}title")
    assert title is not None
    assert title.text == r"task flow of job <b>\x1b[31m&\u202e"


class Unknown(Converter):
    """A converter whose schema depends on the records."""

    def convert(self, output_schema: pa.Schema | None, batch: pa.RecordBatch, unit: WorkUnit) -> Iterator[Converted]:
        yield Converted(batch)


class Keyed(RowChecker):
    """A checker with an option."""

    def __init__(self, url: str) -> None:
        self.url = url

    def check(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.repeat(True, batch.num_rows)

    def describe(self) -> str:
        return "anything"


def test_sink_without_atomic_commits_is_marked(tmp_path: Path) -> None:
    sink = {"type": "postgresql", "url": "postgresql://host/database"}
    for two_phase in (False, True):
        result = describe_flow(load_config(job_file(tmp_path, {**PLAIN, "sink": {**sink, "two_phase": two_phase}})))
        (part,) = result.branches[0].parts
        assert ("not atomic: readers may see a part" in part.on_rejected) is two_phase
        assert ("two_phase: true" in part.settings) is two_phase
