"""The job files in conf/ are ones that can be run, and their flows ones that can be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.job_file.config import load_config, parse_config
from distcommit.app.job_file.explain import explained
from tests.cluster.flow import flow_sections, mended

CONF = Path(__file__).parents[4] / "conf"
EXAMPLES = sorted(CONF.glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_a_job(path: Path) -> None:
    config = load_config(path)
    assert config.job in ("clicks", "events", "shop", "tickets")
    assert explained(config).parts


def test_the_flow_at_size_is_the_example_with_another_registry_and_can_be_mended(tmp_path: Path) -> None:
    example = load_config(CONF / "kafka-avro-fork.yaml")
    rest = {"job": "clicks", "paths": {name: name for name in ("store", "staging", "output")}}
    sections = flow_sections("http://localhost:8081")
    sections["source"] |= {"type": "kafka", "brokers": "localhost:9092"}
    sections.pop("sink")  # the job's own, which a test's job has
    found = [parse_config({**rest, **each}, tmp_path / "job.yaml") for each in (sections, mended(sections))]
    assert explained(found[0]).parts[1:] == explained(example).parts[1:]
    for flow in (each.task_flow() for each in found):
        assert [branch.name for branch in flow.branches] == ["lake", "archive"]
        assert [len(branch.stages) for branch in flow.branches] == [2, 0]
