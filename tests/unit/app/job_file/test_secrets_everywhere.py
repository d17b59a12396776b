"""A secret in any setting that may hold one is not shown by anything that a failing load leaves."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from distcommit.app.job_file.load_job_file import load_config
from distcommit.app.job_file.secrets import secret_values, shown_override, without_secrets
from distcommit.core.errors import ConfigurationError, SourceError, error_text
from distcommit.core.redaction import redact
from tests.unit.app.job_file.settings_walk import Place, planted, settings

SECRET = "S3cr3t+planted/here"
SHOWN_MAPS = {"queries", "columns", "fields", "copies", "constants", "requires", "when", "branches", "overrides"}
"""Maps with keys chosen by the job file's author that go to no other system: statuses and errors show them."""


def may_hold_a_secret(place: Place, annotation: Any) -> bool:
    if annotation is SecretStr or place[-1] == "password" or (place[0] == "alerts" and annotation is str):
        return True
    return ("KEY" in place and place[place.index("KEY") - 1] not in SHOWN_MAPS) or "params" in place[:-1]


def places() -> list[tuple[str, Place]]:
    candidates = [(kind, place) for kind, place, annotation in settings() if may_hold_a_secret(place, annotation)]
    return [*dict.fromkeys(candidates), ("iceberg", ("sink", "catalog", "KEY"))]


EVERYWHERE = [pytest.param(*setting, id=".".join(setting[1])) for setting in places()]


def traces(job: Path, *overrides: str) -> Iterator[str]:
    """Yield all texts that a failing load shows."""
    with pytest.raises(ConfigurationError) as refused:
        load_config(job, overrides)
    yield str(refused.value)
    yield "".join(traceback.format_exception(refused.value))
    yield error_text(ValueError(f"login with {SECRET} was refused"))
    yield str(SourceError("no login", found=f"tried {SECRET}", login=SECRET))


def written(tmp_path: Path, tree: dict[str, Any]) -> Path:
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({"job": "j", "unknown": 1, **tree}), encoding="utf-8")
    return job


def test_many_settings_may_hold_a_secret() -> None:
    locations = {".".join(place) for _, place in places()}
    assert len(locations) >= 20
    assert locations >= {"spark.conf.KEY", "source.options.KEY", "source.client.KEY", "alerts.webhooks.0.url"}


@pytest.mark.parametrize(("kind", "place"), EVERYWHERE)
def test_failing_load_shows_no_secret_of_a_setting(kind: str, place: Place, tmp_path: Path) -> None:
    tree = planted(kind, place, SECRET)
    assert SECRET in secret_values(tree)
    assert SECRET not in json.dumps(without_secrets(tree))
    for text in traces(written(tmp_path, tree)):
        assert SECRET not in text


@pytest.mark.parametrize(("kind", "place"), EVERYWHERE)
def test_failing_load_shows_no_secret_of_an_override(kind: str, place: Place, tmp_path: Path) -> None:
    plain = place[: place.index("0")] if "0" in place else place
    value: Any = planted(kind, place, SECRET)
    for key in plain:
        value = value[key]
    override = f"{'.'.join(plain)}={json.dumps(value)}"
    assert SECRET not in shown_override(override)
    root = {plain[0]: {"type": kind}} if kind and plain[:1] != plain else {}
    for text in traces(written(tmp_path, root), override):
        assert SECRET not in text


def test_password_and_query_of_a_url_are_secret_in_every_setting_of_text() -> None:
    url = f"https://user:{SECRET.replace('/', '%2F')}@host/?token=T0ken-planted"
    texts = [(kind, place) for kind, place, annotation in settings() if annotation is str and place[-1] != "type"]
    assert len(texts) > 100
    for kind, place in texts:
        tree = planted(kind, place, url)
        assert {SECRET.replace("/", "%2F"), "T0ken-planted"} <= secret_values(tree) or url in secret_values(tree), place
        shown = json.dumps(without_secrets(tree))
        assert "planted" not in shown, place


@pytest.mark.parametrize(
    "value",
    ["timestamp", "-5", "10000000", "2024-01-01T00:00", "100000 ms", "/data/in", "s3://bucket/in", "a.b.Catalog"],
)
def test_harmless_value_of_an_option_is_shown(value: str) -> None:
    tree = {"source": {"type": "python", "options": {"x": value}}, "paths": {"store": "/data/jobs-1/store"}}
    assert not secret_values(tree)


def test_names_of_protocols_and_mechanisms_are_shown_and_a_password_like_one_is_not() -> None:
    client = {"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512", "sasl.password": "SCRAM-SHA-256"}
    assert secret_values({"source": {"type": "kafka", "client": client}}) == {"SCRAM-SHA-256"}


def test_value_that_the_job_file_shows_elsewhere_is_shown() -> None:
    tree = {"job": "orders-2", "spark": {"conf": {"spark.a": "orders-2", "spark.b": "orders-3"}}}
    assert secret_values(tree) == {"orders-3"}


def test_log_record_has_no_secret_whatever_handler_formats_it() -> None:
    redact([SECRET])
    logger = logging.getLogger("distcommit.test_secrets")
    try:
        raise ValueError(f"login with {SECRET} was refused")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logger.makeRecord("x", logging.WARNING, "f", 1, "failed: %s, %s", (SECRET, "100 %s"), info)
    text = logging.Formatter().format(record)
    assert SECRET not in text
    assert "failed: ***, 100 %s" in text
    assert "ValueError: login with *** was refused" in text


@pytest.mark.parametrize(
    "form", ["S3cr3t%2Bplanted%2Fhere", "S3cr3t+planted/here", '"quo\\"ted\\\\text"', "'quo\"ted\\\\text'"]
)
def test_secret_is_hidden_in_its_url_json_and_python_encodings(form: str) -> None:
    redact([SECRET, 'quo"ted\\text'])
    assert error_text(ValueError(form)).strip("'\"") in ("ValueError: ***", "ValueError: '***", 'ValueError: "***')
