"""The printed `pip install` lines name distcommit from where it was installed."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from distcommit.core.support.install_command import _requirement, install_command, pip_install

_CHECKOUT = Path(__file__).parents[4]


def test_checkout_is_installed_editable_by_the_running_interpreter() -> None:
    words = shlex.split(install_command("iceberg", "s3"))
    assert words == [sys.executable, "-m", "pip", "install", "-e", f"{_CHECKOUT}[iceberg,s3]"]


@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        ({"url": "file:///src/my%20checkout", "dir_info": {}}, ["/src/my checkout[sql]"]),
        (
            {"url": "file:///tmp/distcommit-0.1.0-py3-none-any.whl", "archive_info": {}},
            ["/tmp/distcommit-0.1.0-py3-none-any.whl[sql]"],
        ),
        (
            {"url": "https://example.org/distcommit.whl", "archive_info": {}},
            ["distcommit[sql] @ https://example.org/distcommit.whl"],
        ),
        (
            {"url": "https://example.org/d.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            ["distcommit[sql] @ git+https://example.org/d.git@abc"],
        ),
        (
            {"url": "file:///src/d.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            ["distcommit[sql] @ git+file:///src/d.git@abc"],
        ),
        ({}, ["distcommit[sql]"]),
    ],
)
def test_installation_without_checkout_is_named_by_its_recorded_url(
    record: dict[str, object], arguments: list[str]
) -> None:
    assert _requirement("[sql]", Path("/site-packages"), json.dumps(record)) == arguments


def test_arguments_are_quoted_for_a_shell() -> None:
    assert shlex.split(pip_install("hdfs[kerberos]"))[-1] == "hdfs[kerberos]"
    assert pip_install("hdfs[kerberos]").endswith("'hdfs[kerberos]'")
