"""Command lines for a job, quoted for a shell, which messages and pages recommend."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.secrets import shown_override
from distcommit.core.errors import printable

Command = Callable[..., str]
GROUPS = frozenset({"dataset", "store", "schedule", "migrate"})
"""Command groups. A command in a group is named by the group and its own name, such as `store verify`."""


def command_for(folders: JobFolders) -> Command:
    """Return a function that formats command lines with the job's file and overrides. Secret values become `***`."""
    job_file = str(folders.path) if folders.path else "JOB.yaml"
    changes = [part for text in folders.overrides for part in ("--set", shown_override(text))]

    def command(name: str, *words: str, named: bool = False) -> str:
        """Return the command line. With `named`, words are names even if they begin with a dash."""
        if name in GROUPS:
            name, words = f"{name} {words[0]}", words[1:]
        options = [] if named else [word for word in words if word.startswith("-")]
        names = [word for word in words if word not in options]
        separator = ["--"] if any(word.startswith("-") for word in names) else []
        return " ".join(map(_quoted, ["distcommit", *name.split(), *changes, *options, job_file, *separator, *names]))

    return command


def _quoted(word: str) -> str:
    """Quote a word for a shell. Control characters become escapes that the shell decodes."""
    if printable(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if printable(character) == character:
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
