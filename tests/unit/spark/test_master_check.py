"""The check of a cluster's master, before Spark is started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from distcommit.app.checks.job_check import check_file
from distcommit.core.errors import TransientError
from distcommit.spark.master_check import check_master
from tests.servers.process import free_ports


@pytest.mark.parametrize(
    "form", ["spark://127.0.0.1:{}", "spark://127.0.0.1:{},127.0.0.1:{}", "k8s://https://127.0.0.1:{}"]
)
def test_master_accepts_connections_or_is_unavailable(form: str) -> None:
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert check_master(form.format(closed if form.count("{}") == 2 else port, port)) == (
            f"127.0.0.1:{port} accepts connections"
        )
    with pytest.raises(TransientError, match=r"does not accept connections.*refused.*correct spark.master") as failed:
        check_master(form.format(closed, closed))
    assert failed.value.id == "SPARK_UNAVAILABLE"


@pytest.mark.parametrize(
    "master", ["yarn", "k8s://https://host", "local-cluster[2,1,1024]", "spark://", "spark://h:99999"]
)
def test_masters_without_an_address_are_not_checked_and_impossible_ports_refused(master: str) -> None:
    if master.endswith("99999"):
        with pytest.raises(TransientError):
            check_master(master)
    else:
        assert check_master(master) == f"{master}: not checked before a run"


def test_check_reports_the_line_of_an_unavailable_master(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (port,) = free_ports(1)
    job = tmp_path / "job.yaml"
    job.write_text(
        "job: j\n"
        f"source: {{type: files, dataset: a, paths: ['{tmp_path}/in/*.csv'], format: csv}}\n"
        "paths: {store: store, staging: staging, output: output}\n"
        f"spark: {{master: 'spark://127.0.0.1:{port}'}}\n"
    )
    result = check_file(job)
    (problem,) = [problem for problem in result.problems if problem.setting == "spark.master"]
    assert (problem.line, problem.text.partition(":")[0]) == (4, "SPARK_UNAVAILABLE")
