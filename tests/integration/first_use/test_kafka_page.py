"""The tutorial for Kafka: its job file, commands and snippets work as printed, on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.first_use.test_quickstart import ROOT, program_of
from tests.servers.kafka import KafkaServer

PAGE = ROOT / "conf" / "docs" / "get-started" / "kafka-to-parquet.md"
SERVER_BLOCK = "```bash\npip install -e .\npython -m tests.servers kafka\n```"


@pytest.mark.timeout(600)
def test_kafka_tutorial_runs_as_printed(tmp_path: Path, kafka_server: KafkaServer) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SERVER_BLOCK in page
    page = page.replace(SERVER_BLOCK, "").replace("localhost:9092", kafka_server.bootstrap_servers)
    (job_file,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = program_of(page).replace("echo '### 1'", f"cat > job.yaml <<'YAML'\n{job_file}YAML", 1)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "160",
    }
    done = subprocess.run(
        ["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    output = " ".join(done.stdout.split())
    assert "1,001 records" in output, output
    assert "[1000 rows x " in output, output
    # Which rows pandas shows depends on the order of the files.
    assert re.search(r"2026-01-01 \d\d:00:00\+00:00", output), output
    assert output.count("not JSON") >= 1, output
