"""The output of a failing command contains no secret, with and without `--verbose`, as text and as JSON."""

from __future__ import annotations

import logging

import pytest

from distcommit.cli.terminal import Terminal
from distcommit.core.redaction import redact

SECRET = "S3cr3t+of-a-command"


def fail() -> None:
    try:
        raise ValueError(f"login with {SECRET} was refused")
    except ValueError as error:
        logging.getLogger("distcommit.tests").warning("%s", SECRET, exc_info=True, extra={"login": SECRET})
        raise RuntimeError(f"the source refused {SECRET}") from error


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_failing_command_prints_no_secret(*, verbose: bool, as_json: bool, capfd: pytest.CaptureFixture[str]) -> None:
    redact([SECRET])
    with pytest.raises(SystemExit), Terminal(as_json=as_json, verbose=verbose).command():
        fail()
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err
    assert "the source refused ***" in shown.err
