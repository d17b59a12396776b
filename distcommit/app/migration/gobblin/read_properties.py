"""The properties of a Gobblin job: from its own file, included files, and the folders above."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from distcommit.core.errors import ConfigurationError
from distcommit.core.redaction import HIDDEN
from distcommit.core.support.install_command import install_command

_VARIABLE = re.compile(r"\$\{([^${}]+)\}")
_UNPRINTABLE = re.compile(r"[\0-\x08\x0e-\x1f]")
_MAY_HAVE_SECRET = re.compile(r"password|secret|token|key=|//[^/]*@", re.IGNORECASE)
_INCLUDE = "include"


@dataclass(frozen=True, slots=True)
class Property:
    """One property of a Gobblin job.

    Attributes:
        name: the key.
        value: the value, with its defined variables replaced.
        file: path of the properties file.
        line: line in the file, from 1.
    """

    name: str
    value: str
    file: Path
    line: int

    @property
    def location(self) -> str:
        """The name of the file and the line."""
        return f"{self.file.name}:{self.line}"

    def wrong(self, problem: str, *, expected: str = "", todo: str = "") -> ConfigurationError:
        """Return an error that the property is invalid. It hides a value that may contain a secret."""
        text = f"{self.name}={self.value}"
        return ConfigurationError(
            problem,
            id="GOBBLIN_JOB_INVALID",
            path=self.file,
            line=self.line,
            expected=expected,
            found=text if not _MAY_HAVE_SECRET.search(text) else f"{self.name}={HIDDEN}",
            todo=todo,
        )


def read_properties(file: Path, *, sysconfig: Path | None = None, root: Path | None = None) -> dict[str, Property]:
    """Return the properties of a job by name, with variables substituted, as Gobblin's scheduler loads them.

    Precedence, highest first: the file, `.properties` files in its folder, those in the folders above, `sysconfig`.
    `${name}` stands for another property. `${env:NAME}` becomes `${NAME}`, an environment variable in a job file.

    Args:
        file: the job's file, `.pull`, `.job` or `.properties`.
        sysconfig: properties of all jobs, as for Gobblin's launcher, or the job's template.
        root: folder of all jobs' files; None to read only the file's own folder.

    Raises:
        ConfigurationError: with file and line, if a file is unreadable or ambiguous.
    """
    entries: dict[str, Property] = {}
    for item in (*([sysconfig] if sysconfig else []), *_of_folders(file, root), file):
        entries |= _read(item, ())
    return {name: replace(item, value=_filled(item, entries, (name,))) for name, item in entries.items()}


def _of_folders(file: Path, root: Path | None) -> Iterator[Path]:
    own = file.resolve().parent
    if root is not None and not own.is_relative_to(root.resolve()):
        raise ConfigurationError(
            "the job is not below the folder of all jobs", id="GOBBLIN_JOB_INVALID", path=file, expected=f"below {root}"
        )
    above = [own, *own.parents] if root is not None else [own]
    for folder in reversed([parent for parent in above if root is None or parent.is_relative_to(root.resolve())]):
        common = sorted(parent for parent in folder.glob("*.properties") if parent != file.resolve())
        if len(common) > 1:
            raise ConfigurationError(
                "a folder has several files of common properties",
                id="GOBBLIN_JOB_INVALID",
                path=folder,
                expected="at most one file *.properties, because Gobblin does not define which of several it reads",
                found=", ".join(parent.name for parent in common),
                todo="merge these files into one, or remove the files that do not apply to the job",
            )
        yield from common


def _read(file: Path, by: tuple[Path, ...]) -> dict[str, Property]:
    entries: dict[str, Property] = {}
    for entry in _parsed(file):
        if entry.name == _INCLUDE:
            other = file.parent / entry.value.strip()
            if other in (*by, file):
                raise entry.wrong("files include each other")
            if not other.is_file():
                raise entry.wrong("the included file is not there", expected=str(other))
            new = _read(other, (*by, file))
        else:
            new = {entry.name: entry}
        for name, later in new.items():
            before = entries.get(name)
            if before is not None and before.value != later.value:
                raise later.wrong(
                    f"the property is also at {before.location}, with another value",
                    expected="one value, because programs differ in which of two they use",
                    todo="remove one of the two lines",
                )
        entries |= new
    return entries


def _parsed(file: Path) -> Iterator[Property]:
    if file.suffix in (".conf", ".json", ".yaml", ".yml"):
        raise ConfigurationError(
            "the file is not a properties file",
            id="GOBBLIN_JOB_INVALID",
            path=file,
            expected=".pull, .job, .properties or .template",
        )
    javaproperties = _parser()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            "the properties can't be read", id="GOBBLIN_JOB_INVALID", path=file, found=str(error)
        ) from error
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # Java's default
    if (odd := _UNPRINTABLE.search(text)) is not None:
        line = text.count("\n", 0, odd.start()) + 1
        raise ConfigurationError(
            "the file is not text", id="GOBBLIN_JOB_INVALID", path=file, line=line, found=repr(odd[0])
        )
    line = 1
    try:
        for item in javaproperties.parse(text):
            if isinstance(item, javaproperties.KeyValue):
                entry = Property(item.key, item.value.strip(), file, line)
                if entry.value == "{" or entry.name == "}":
                    raise entry.wrong("the file is HOCON", expected="one property a line: `name=value`")
                yield entry
            line += item.source.count("\n") or 1
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigurationError(
            "an escape is cut short", id="GOBBLIN_JOB_INVALID", path=file, line=line, found=str(error)
        ) from error


def _parser() -> ModuleType:
    try:
        import javaproperties  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(
            "reading Gobblin's files needs a package",
            id="PACKAGE_MISSING",
            expected="javaproperties",
            todo=f"run `{install_command('gobblin')}`",
        ) from error
    return javaproperties


def _filled(of: Property, all_of_them: dict[str, Property], by: tuple[str, ...]) -> str:
    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("env:"):
            return "${" + name.removeprefix("env:") + "}"
        if name in by:
            raise of.wrong("variables name each other", expected=" -> ".join((*by, name)))
        if name in all_of_them:
            return _filled(all_of_them[name], all_of_them, (*by, name))
        return match[0]

    return _VARIABLE.sub(put, of.value)


def unfilled(value: str) -> str:
    """Return the first undefined variable of a value; empty if there is none."""
    return next((name for name in _VARIABLE.findall(value) if "." in name or name not in os.environ), "")
