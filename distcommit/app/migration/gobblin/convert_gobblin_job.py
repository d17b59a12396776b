"""Convert the properties of a Gobblin job to a job file."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import yaml

from distcommit.app.job_file.load_job_file import parse_config
from distcommit.app.migration.gobblin.classes_to_port import PORTS
from distcommit.app.migration.gobblin.conversion_rules import RULES
from distcommit.app.migration.gobblin.folder_conversion import put_folders
from distcommit.app.migration.gobblin.job_file_draft import JobFileDraft, TranslatedProperty, UntranslatedProperty
from distcommit.app.migration.gobblin.read_properties import read_properties
from distcommit.app.migration.gobblin.untranslated_reasons import reason_of
from distcommit.core.errors import ConfigurationError, printable

_WIDTH = 118
_KAFKA_DEFAULTS = {
    "bootstrap.with.offset": "source.start is latest, as Gobblin's default is",
    "reset.on.offset.out.of.range": "source.expired_offsets is fail: Gobblin would pass over what expired (nearest)",
}
_DEFAULTS = {
    "data.publisher.final.dir": "paths.output is a folder beside the job file",
    "state.store.dir": "paths.store is beside the output",
}


class ConvertResult(msgspec.Struct, frozen=True):
    """A converted job.

    Attributes:
        job: name of the job.
        job_file: text of the job file.
        path: path of the written job file; empty if it was printed.
        translated: properties with a setting, in the order of conversion.
        untranslated: properties without a setting, by name.
        assumptions: settings that were assumed because their properties are missing.
        classes_to_write: Python classes that the job file names in place of Java classes, and that must be written.
    """

    job: str
    job_file: str
    path: str
    translated: list[TranslatedProperty]
    untranslated: list[UntranslatedProperty]
    assumptions: list[str]
    classes_to_write: list[str]


def convert_job(
    file: Path, output: Path | None = None, *, sysconfig: Path | None = None, root: Path | None = None
) -> ConvertResult:
    """Convert a Gobblin job into a job file. The job file is validated before it is written.

    Args:
        output: new job file, which must not exist; None to write none.
        sysconfig: properties of all jobs; see `read_properties`.
        root: folder of all jobs' files; see `read_properties`.

    Raises:
        ConfigurationError: with file and line, if a property is invalid or can't be converted into a valid job.
    """
    properties = read_properties(file, sysconfig=sysconfig, root=root)
    job = JobFileDraft(properties)
    name = job.pop("job.name")
    if name is None:
        raise ConfigurationError("the job has no name", id="GOBBLIN_JOB_INVALID", path=file, expected="job.name")
    job.put(name, "job", name.value)
    for rule in RULES:
        rule(job)
    put_folders(job, name.value)
    for entry in job.remaining():
        job.skip(entry, reason_of(entry.name))
    defaults = {**(_KAFKA_DEFAULTS if job.value("source.type") == "kafka" else {}), **_DEFAULTS}
    assumed = [f"no {name}: {value}" for name, value in defaults.items() if name not in properties]
    text = _text(job, file, assumed)
    _require_valid(yaml.safe_load(text), output or file)
    if output is not None:
        _write_new(output, text)
    untranslated = sorted(job.skipped, key=lambda row: row.name)
    classes = sorted(set(re.findall(rf"{PORTS}:\w+", text)))
    return ConvertResult(name.value, text, str(output or ""), job.translated, untranslated, assumed, classes)


def _require_valid(tree: dict[str, Any], path: Path) -> None:
    """Raise JobFileError if the job file is invalid, other than by a fork operator that must still be written."""
    match tree:
        case {"fork": {"class": str(name), "branches": branches}} if name.startswith(f"{PORTS}:"):
            tree = {**tree, "fork": {"type": "all", "branches": branches}}
    parse_config(tree, path, needs_variables=False)


def _text(job: JobFileDraft, file: Path, assumed: list[str]) -> str:
    lines = [f"Made of {file.name}, a job of Gobblin's."]
    lines += [f"{key}: {job.text(key)}" for key in ("job.group", "job.description") if job.text(key)]
    rows = sorted(job.skipped, key=lambda row: row.name)
    untranslated = {row.name: row.reason for row in rows if row.reason != "is kept as a comment"}
    lines += ["Not translated:"] if untranslated else []
    lines += [f"  {name}: {reason}" for name, reason in untranslated.items()]
    lines += ["Assumed:", *(f"  {text}" for text in assumed)] if assumed else []
    wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ")]
    noted = [f"  {row.setting.partition(':')[0]}: {row.note}" for row in job.translated if row.note]
    wrapped += [part for line in dict.fromkeys(noted) for part in textwrap.wrap(line, _WIDTH, subsequent_indent="    ")]
    body = yaml.safe_dump(job.tree, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return "".join(f"# {line}\n" for line in map(printable, wrapped)) + "\n" + body


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        raise ConfigurationError(
            "the job file exists already",
            path=path,
            expected="a path without a file",
            todo="give another path with --output, or remove the file",
        ) from None
    except OSError as error:
        raise ConfigurationError("the job file can't be written", path=path, found=str(error)) from error
