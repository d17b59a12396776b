"""The page of the SQL source: its example fills a table of a real server, which the printed section reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from distcommit.app.checks.job_check import check_file
from tests.integration.first_use.test_quickstart import ROOT
from tests.servers.postgresql import PostgresServer

PAGE = ROOT / "conf" / "docs" / "connectors" / "source-sql.md"


def test_table_of_the_page_is_planned_by_its_quick_example(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("URL", postgres_server.url)
    monkeypatch.setenv("PASSWORD", postgres_server.password)
    exec(program, {})
    quick_example = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    source: dict[str, Any] = yaml.safe_load(quick_example)["source"]
    source |= {"url": postgres_server.url, "password": "${PASSWORD}", "lookback": 0}
    paths = {name: name for name in ("store", "staging", "output")}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"job": "shop", "source": source, "paths": paths}))
    result = check_file(tmp_path / "job.yaml", plan=True)
    with postgres_server.connect() as connection:
        connection.execute("DROP TABLE orders")
    assert result.passed, result.problems
    assert result.plan is not None
    assert [dataset.dataset for dataset in result.plan.datasets] == ["orders"]
