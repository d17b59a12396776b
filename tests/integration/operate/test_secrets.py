"""A failing run leaves none of its secrets behind, for each setting that may hold one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
IN_FILE = "planted-in-a-file"
PLANTED = {
    "option": "planted-as-option",
    "override": "planted-by-override",
    "conf": "planted-in-spark-conf",
    "plain": "planted-under-a-plain-name",
    "hook": "planted-in-webhook",
    "header": "planted-in-header",
}


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = [sys.executable, "-m", "distcommit", *words]
    return subprocess.run(run, capture_output=True, text=True, cwd=cwd, env=env, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_failing_run_leaves_no_planted_secret_behind(tmp_path: Path) -> None:
    given, leavings = tmp_path / "given", tmp_path / "left"
    for folder in (given, leavings, leavings / "events", leavings / "notes"):
        folder.mkdir()
    (given / "secret").write_text(f"{IN_FILE}\n", encoding="utf-8")
    in_file = f"${{file:{given}/secret}}"
    tree = {
        "job": "leaks",
        "source": {
            "type": "python",
            "class": "tests.integration.parts.leaking_source:LeakingSource",
            "options": {"label": PLANTED["option"], "ps": f"{leavings}/ps", "notes": f"{leavings}/notes"},
        },
        "paths": {name: str(leavings / name) for name in ("store", "staging", "output")},
        "spark": {
            "master": "local[2,4]",
            "conf": {
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": f"file://{leavings}/events",
                "spark.hadoop.fs.x.secret": PLANTED["conf"],
                "spark.hadoop.fs.x.account": in_file,
                "spark.hadoop.fs.x.label": PLANTED["plain"],
            },
        },
        "task": {"attempts": 1},
        "alerts": {
            "after_failed_runs": 1,
            "commands": [{"command": ["sh", "-c", f"cat > {leavings}/alert.json"]}],
            "webhooks": [{"url": f"http://127.0.0.1:9/{PLANTED['hook']}", "headers": {"X": PLANTED["header"]}}],
        },
    }
    job = given / "job.yaml"
    job.write_text(yaml.safe_dump(tree), encoding="utf-8")
    override = ("--set", f"source.options.label={PLANTED['override']}")
    for words in (("run", str(job)), ("run", "--verbose", *override, str(job))):
        done = command(*words, cwd=leavings)
        assert done.returncode == 1, done.stderr
        (leavings / f"output-of-{len(list(leavings.iterdir()))}").write_text(
            done.stdout + done.stderr, encoding="utf-8"
        )
    for name in ("status", "runs", "dataset list", "store verify"):
        done = command(*name.split(), *override, str(job), "--json", cwd=leavings)
        (leavings / f"shown-by-{name}").write_text(done.stdout + done.stderr, encoding="utf-8")
    alert = json.loads((leavings / "alert.json").read_text())
    assert alert["job"] == "leaks"
    assert "***" in alert["reason"] + " ".join(alert["commands"])
    assert b"SparkSubmit" in (leavings / "ps").read_bytes()
    assert any((leavings / "events").iterdir())
    secrets = {name: value.encode() for name, value in {**PLANTED, "file": IN_FILE}.items()}
    leaks = [
        (name, str(path.relative_to(leavings)), line[:300])
        for path in leavings.rglob("*")
        if path.is_file()
        for line in path.read_bytes().splitlines()
        for name, secret in secrets.items()
        if secret in line
    ]
    assert not leaks
