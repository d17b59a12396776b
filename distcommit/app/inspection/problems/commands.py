"""Commands on a job, quoted for a shell, for messages and pages."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from distcommit.app.job_file.job_folders import JobFolders
from distcommit.app.job_file.secrets import shown_override
from distcommit.core.errors import printable

Command = Callable[..., str]
GROUPS = frozenset({"dataset", "store", "schedule", "migrate"})
"""Groups of commands: the name of a command in a group follows the name of the group."""


def command_for(folders: JobFolders) -> Command:
    """Return a function that makes commands with the job's file and overrides. Values that may be secret are `***`."""
    job_file = str(folders.path) if folders.path else "JOB.yaml"
    changes = [part for text in folders.overrides for part in ("--set", shown_override(text))]

    def command(name: str, *words: str, named: bool = False) -> str:
        """Return the command line. `name`: the command's, after its group's. If `named`, words are names even if they
        look like options."""
        if name in GROUPS:
            name, words = f"{name} {words[0]}", words[1:]
        options = [] if named else [word for word in words if word.startswith("-")]
        names = [word for word in words if word not in options]
        separator = ["--"] if any(word.startswith("-") for word in names) else []
        return " ".join(map(_quoted, ["distcommit", *name.split(), *changes, *options, job_file, *separator, *names]))

    return command


def _quoted(word: str) -> str:
    """Quote a word for a shell. Control characters become escapes that the shell undoes."""
    if printable(word) == word:
        return shlex.quote(word)
    return "$'" + "".join(map(_escaped, word)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if printable(character) == character:
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
