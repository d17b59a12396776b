"""Duplicate keys of a job file are refused, where YAML's own reader silently takes the last one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from distcommit.app.job_file.load_job_file import load_config
from distcommit.app.job_file.yaml_without_duplicate_keys import load_yaml
from distcommit.core.errors import ConfigurationError


@pytest.mark.parametrize(
    "text",
    ["a: 1\nb: 2\na: 1", "x: {a: 1, a: 2}", "x: [{a: 1, 'a': 2}]", "x: &x {a: 1}\ny: {<<: *x, b: 1, b: 2}"],
)
def test_duplicate_key_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match=r"the key '[ab]' is already in line"):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a: 1\nb: {a: 1}", {"a": 1, "b": {"a": 1}}),
        ("1: a\n'1': b", {1: "a", "1": "b"}),
        ("x: &x {a: 1, b: 2}\ny: &y {<<: *x, b: 3}\nz: {<<: *y, a: 4}", None),
    ],
)
def test_documents_without_duplicate_keys_are_read_as_by_yaml(text: str, read: object) -> None:
    assert load_yaml(text) == (yaml.safe_load(text) if read is None else read)


def test_error_for_a_duplicate_key_names_the_key_and_the_job_file(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("job: j\npaths: {store: s, staging: t, output: o}\njob: other\n")
    with pytest.raises(
        ConfigurationError, match=r"job.yaml:3:1: must be valid YAML; found the key 'job' is already in line 1"
    ):
        load_config(job)


@pytest.mark.thorough
@pytest.mark.parametrize("value", ["2024-13-45", "!!int abc", "[" * 5000])
def test_invalid_yaml_value_is_refused_in_the_job_file_and_in_an_override(value: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"job: j\non_rejected: {value}\n")
    with pytest.raises(ConfigurationError, match="must be valid YAML"):
        load_config(job)
    job.write_text("job: j\n")
    with pytest.raises(ConfigurationError, match="on_rejected must have a value of valid YAML"):
        load_config(job, [f"on_rejected={value}"])


@pytest.mark.parametrize("section", ["alerts: somebody", "lock: {lease_ttl_s: .inf}"])
def test_section_with_an_invalid_value_is_refused_with_its_name(section: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(f"job: j\n{section}\n")
    with pytest.raises(ConfigurationError, match=rf"job.yaml:2:\d+: {section.partition(':')[0]}\b"):
        load_config(job)
