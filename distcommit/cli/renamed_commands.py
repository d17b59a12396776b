"""Former names of commands and options. Their use is an error that states the new name."""

from __future__ import annotations

from collections.abc import Sequence

from distcommit.cli.terminal import Terminal
from distcommit.core.errors import ConfigurationError

_RENAMED = {
    "gc": "recover",
    "explain": "check",
    "serve": "schedule serve",
    "datasets": "dataset list",
    "steps": "dataset steps",
    "files": "dataset files",
    "release": "dataset release",
    "quarantine": "dataset quarantine",
    "set-watermark": "dataset set-watermark",
    "reprocess": "dataset reprocess",
    "retain": "dataset expire",
    "verify-store": "store verify",
    "repair": "store repair",
    "rebuild": "store rebuild",
    "log": "store log",
    "rebucket": "store rebucket",
    "pause": "schedule pause",
    "resume": "schedule resume",
    "trigger": "schedule trigger",
    "import-watermarks": "migrate import-watermarks",
    "compare": "migrate compare",
    "convert-gobblin": "migrate convert-gobblin",
}
_RENAMED_OPTIONS = {("schedule", "--look"): "--poll", ("dataset", "--when-unread"): "--keep-snapshots"}
"""New names of options, by group of commands and former name."""


def reject_renamed(words: Sequence[str]) -> None:
    """End the process with exit code 2 if a command line uses the former name of a command or an option."""
    if not words:
        return
    with Terminal(as_json="--json" in words, verbose=False).command():
        if name := _RENAMED.get(words[0]):
            raise ConfigurationError(
                f"the command `distcommit {words[0]}` was renamed",
                id="COMMAND_RENAMED",
                todo=f"use `distcommit {name}`",
            )
        for word in words[1:]:
            old = word.partition("=")[0]
            if new := _RENAMED_OPTIONS.get((words[0], old)):
                raise ConfigurationError(
                    f"the option {old} of `distcommit {words[0]}` was renamed", id="COMMAND_RENAMED", todo=f"use {new}"
                )
