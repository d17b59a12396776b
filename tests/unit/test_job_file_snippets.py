"""The YAML on the pages is accepted by the loader of job files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit.app.job_file.load_job_file import job_file_problems
from distcommit.sinks.kafka.topic_names import is_topic
from distcommit.testing.fakes.notes_sink import NotesSink
from tests.unit.test_custom_parts_page import PARTS
from tests.unit.test_pages import PAGES, ROOT

BASE: dict[str, Any] = {
    "job": "shop",
    "source": {"type": "kafka", "brokers": "localhost:9092", "topics": ["orders"]},
    "paths": {name: f"shop/{name}" for name in ("store", "staging", "output")},
}
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [(page, block) for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
SHOWN_MODULE = "my_package.my_module"


def merged(shown: dict[str, Any]) -> dict[str, Any]:
    """Return a whole job file: the shown sections, and those of a minimal job for what is not shown."""
    job = {**BASE, **shown}
    for name, section in BASE.items():
        part = shown.get(name)
        if isinstance(section, dict) and isinstance(part, dict) and "type" not in part:
            job[name] = {**section, **part}
    return job


@pytest.mark.parametrize(
    ("page", "block"), BLOCKS, ids=[f"{page.relative_to(ROOT)}-{n}" for n, (page, _) in enumerate(BLOCKS)]
)
def test_yaml_on_a_page_is_accepted_by_the_loader_of_job_files(
    page: Path, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r"\$\{(\w+)\}", block):
        monkeypatch.setenv(name, "https://localhost/value")
    monkeypatch.setitem(sys.modules, SHOWN_MODULE, PARTS)
    monkeypatch.setattr(PARTS, "MySink", NotesSink, raising=False)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(merged(yaml.safe_load(block))), encoding="utf-8")
    assert [str(problem) for problem in job_file_problems(file)] == []


def test_topics_on_pages_are_names_that_kafka_accepts() -> None:
    sources = [yaml.safe_load(block).get("source") or {} for _, block in BLOCKS]
    topics = {topic for source in sources for topic in source.get("topics", [])}
    assert "orders" in topics
    assert {topic for topic in topics if not is_topic(topic)} == set()


def test_pages_show_yaml_of_most_kinds_of_settings() -> None:
    shown = {key for _, block in BLOCKS for key in yaml.safe_load(block)}
    assert {"source", "sink", "converters", "row_checkers", "fork", "commit", "schedule", "alerts", "paths"} <= shown
