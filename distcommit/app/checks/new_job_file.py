"""Write new job files from a template of the source and a template of the sink.

Each source and sink package has a `template.yaml`. In it, `@FOLDER@` stands for the absolute folder of the job file,
and `@JOB@` for the job's name.
"""

from __future__ import annotations

import difflib
import importlib.resources
import json
import re
from pathlib import Path

import msgspec

from distcommit.app.checks.check_result import CheckProblem
from distcommit.app.checks.job_check import check_file
from distcommit.app.job_file.built_in_types import Section, types_of
from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import ConfigurationError

_COMMENT_COLUMN = 40
_COMMENT = re.compile(r"^(\S.*?|  .*?\S) {2,}# ", re.MULTILINE)
_HEAD = """\
# A job: {source} to {sink}. Check it with `distcommit check {file}`, run it with `distcommit run {file}`.
# ${{NAME}} and ${{NAME:-default}} are variables of the environment. All settings: conf/docs/reference/configuration.md

job: {job}                              # one store belongs to one job

"""
_TAIL = """
on_rejected: divert                     # records that can't be converted go to files below _rejected in the output;
                                        # fail: one such record stops its dataset

paths:                                  # relative to this file, absolute, or URLs
  store: {job}/store                    # watermarks and commit logs
  staging: {job}/staging
  output: {job}/output                  # published and rejected files
"""


class NewJobFile(msgspec.Struct, frozen=True):
    """A job file that was written.

    Attributes:
        job_file: path of the file.
        problems: problems that a check without connecting found; empty if the file is valid.
    """

    job_file: str
    problems: list[CheckProblem]


def write_job_file(path: Path, source: str, sink: str) -> NewJobFile:
    """Write a job file from templates, and check it without connecting.

    Raises:
        ConfigurationError: if the source or sink is unknown or has no template, or the file exists.
        DistcommitError: if the file can't be written.
    """
    text = job_file_text(path, source, sink)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(
            "the job file exists and is not replaced", path=path, todo="name another file, or remove this one"
        ) from error
    except OSError as error:
        raise storage_error(error, "the job file can't be written", path=str(path)) from error
    return NewJobFile(str(path), check_file(path, connect=False).problems)


def job_file_text(path: Path, source: str, sink: str) -> str:
    """Return the text of a new job file at `path`.

    Raises:
        ConfigurationError: if the source or sink is unknown or has no template.
    """
    job = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-") or "job"
    folder = json.dumps(str(path.absolute().parent), ensure_ascii=False)[1:-1]
    parts = _template("source", source), _template("sink", sink)
    text = "\n".join(part.replace("@FOLDER@", folder).replace("@JOB@", job) for part in parts)
    names = {"source": source, "sink": sink, "file": path.name, "job": job}
    return _aligned(_HEAD.format(**names) + text + _TAIL.format(**names))


def _aligned(text: str) -> str:
    return _COMMENT.sub(lambda match: f"{match[1]:{_COMMENT_COLUMN - 1}} # ", text)


def _template(section: Section, name: str) -> str:
    if name not in types_of(section):
        near = difflib.get_close_matches(name, types_of(section), n=1)
        raise ConfigurationError(
            f"the type of the {section} is unknown",
            found=name,
            expected=f"one of {', '.join(types_of(section))}",
            todo=f"use --{section} {near[0]}" if near else f"choose one with --{section}",
        )
    template = importlib.resources.files(f"distcommit.{section}s.{name}") / "template.yaml"
    try:
        return template.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"the {section} type {name!r} has no template for a job file",
            expected=f"template.yaml in the package distcommit.{section}s.{name}",
            found="no such file",
            todo=f"write the job file yourself, or choose another type with --{section}",
        ) from error
