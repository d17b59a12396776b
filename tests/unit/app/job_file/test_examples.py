"""The example job files in conf/jobs can be loaded, and their flows can be described."""

from __future__ import annotations

from pathlib import Path

import pytest

from distcommit.app.checks.flow_description import describe_flow
from distcommit.app.job_file.load_job_file import load_config, parse_config
from distcommit.sinks.kafka.topic_names import is_topic
from tests.cluster.flow import flow_sections, repaired

CONF = Path(__file__).parents[4] / "conf" / "jobs"
EXAMPLES = sorted(CONF.glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_job_file_is_a_valid_job(path: Path) -> None:
    config = load_config(path)
    assert config.job in ("clicks", "events", "shop", "tickets")
    assert describe_flow(config).parts


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_topics_of_an_example_are_names_that_kafka_accepts(path: Path) -> None:
    topics = getattr(load_config(path).source, "topics", [])
    assert [topic for topic in topics if not is_topic(topic)] == []


def test_flow_of_the_size_benchmark_is_the_example_with_another_registry_and_can_be_repaired(tmp_path: Path) -> None:
    example = load_config(CONF / "kafka-avro-fork.yaml")
    common = {"job": "clicks", "paths": {name: name for name in ("store", "staging", "output")}}
    sections = flow_sections("http://localhost:8081")
    sections["source"] |= {"type": "kafka", "brokers": "localhost:9092"}
    sections.pop("sink")  # a sink of the job itself, beside those of its branches
    configs = [parse_config({**common, **config}, tmp_path / "job.yaml") for config in (sections, repaired(sections))]
    assert describe_flow(configs[0]).parts[1:] == describe_flow(example).parts[1:]
    for flow in (config.task_flow() for config in configs):
        assert [branch.name for branch in flow.branches] == ["lake", "archive"]
        assert [len(branch.stages) for branch in flow.branches] == [2, 0]
