"""Reading a job file: YAML, overrides, variables, then the typed settings. All problems are reported at once."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from distcommit.app.job_file.environment_variables import texts_of, unset_in, with_variables
from distcommit.app.job_file.folder_locations import check_locations, keeps_access, normal_location, require_separate
from distcommit.app.job_file.job_config import JobConfig
from distcommit.app.job_file.problems.invalid_settings import Invalid, invalid_settings
from distcommit.app.job_file.problems.key_positions import KeyPositions
from distcommit.app.job_file.problems.renamed_settings import old_keys, with_new_names
from distcommit.app.job_file.problems.section_models import DEFAULT_TYPES
from distcommit.app.job_file.problems.setting_problems import JobFileError, SettingProblem
from distcommit.app.job_file.secrets import PLACES, secret_values, takes_secret_file, without_secrets
from distcommit.app.job_file.sections.folder_and_run_settings import PathSettings
from distcommit.app.job_file.yaml_without_duplicate_keys import load_yaml
from distcommit.core.errors import ConfigurationError
from distcommit.core.redaction import HIDDEN, redact
from distcommit.core.support.settings_model import Key

_IS_KEY = re.compile(r"\w+(\.\w+)*")


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> JobConfig:
    """Read a job file. `${NAME}` and `${NAME:-default}` in values are replaced from the environment. `${file:PATH}`
    names a file with a secret, which is read when the secret is used; `secrets.PLACES` lists the settings that accept
    it.

    Args:
        overrides: `section.key=value` texts that override the file; values are YAML. An override that sets another
            `type` replaces the whole section, whose other keys belong to the old type.

    Raises:
        JobFileError: with all problems of the file.
    """
    return parse_config(load_tree(path, overrides), Path(path), overrides)


def job_file_problems(path: str | Path, overrides: Sequence[str] = ()) -> tuple[SettingProblem, ...]:
    """Return all problems of a job file; none if `load_config` accepts the file. Connects to nothing.

    Rules between sections are checked only if each section is valid.
    """
    try:
        load_config(path, overrides)
    except JobFileError as error:
        return error.problems
    return ()


def load_tree(path: str | Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of a job file with overrides, without values of environment variables.

    Raises:
        JobFileError: if the file is missing, not YAML or not a mapping, or if an override is invalid.
    """
    file = str(path)
    try:
        tree = load_yaml(_text_of(file, Path(path).read_bytes()))
    except OSError as error:
        remedy = "name an existing file that this user may read"
        raise _file_error(file, "cannot be read", error.strerror or type(error).__name__, remedy) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise _file_error(file, "must be valid YAML", _fault(error), line=line, column=column) from None
    except yaml.YAMLError as error:
        raise _file_error(file, "must be valid YAML", _fault(error)) from None
    if not isinstance(tree, dict):
        raise _file_error(file, "must be a mapping of settings", "nothing" if tree is None else type(tree).__name__)
    ordered = sorted(overrides, key=lambda text: not text.partition("=")[0].endswith(".type"))
    if problems := [problem for override in ordered if (problem := _override(tree, override))]:
        raise JobFileError(problems)
    return tree


def parse_config(
    tree: Mapping[str, Any], file: Path, overrides: Sequence[str] = (), *, needs_variables: bool = True
) -> JobConfig:
    """Return the job that a tree of plain values describes. Relative paths are relative to the folder of `file`.

    Args:
        tree: settings, with overrides.
        file: job file, for positions in messages. It is read again if there is a problem.
        overrides: overrides in `tree`, for messages.
        needs_variables: whether an unset environment variable is a problem. If not, the setting keeps the reference
            `${NAME}`, so that commands that do not use the setting work.

    Raises:
        JobFileError: with all problems.
    """
    tree, problems = with_new_names(tree)
    texts = [*texts_of(tree)]
    unset = {keys: names for keys, text in texts if (names := unset_in(text))}
    problems += _misplaced_secrets(texts)
    tree = with_variables(tree)
    redact(secret_values(tree))
    config, invalid = _validated(tree, file)
    hidden = [keys for keys in unset if needs_variables or any(_overlap(keys, each.keys) for each in invalid)]
    problems += [_unset(keys, name) for keys in hidden for name in unset[keys]]
    problems += [each for each in invalid if not any(_overlap(each.keys, keys) for keys in hidden)]
    if problems or config is None:
        raise JobFileError(_positioned(problems, file, overrides))
    return config


def _validated(tree: Mapping[str, Any], file: Path) -> tuple[JobConfig | None, list[Invalid]]:
    try:
        config = JobConfig.model_validate(tree)
    except ValidationError as error:
        return None, invalid_settings(error, JobConfig, tree, without_secrets(tree))
    locations = dict[str, str]()
    problems = []
    for name, value in config.paths.model_dump().items():
        try:
            locations[name] = normal_location(value, file.parent)
        except ConfigurationError as error:
            problems.append(_of_error(error, "paths", name))
    if problems:
        return None, problems
    problems = [*_unfit_places(config, locations)]
    return config.model_copy(update={"paths": PathSettings(**locations)}), problems


def _unfit_places(config: JobConfig, locations: Mapping[str, str]) -> Iterator[Invalid]:
    try:
        check_locations(locations)
        if not config.source.is_imported:
            require_separate(config.source, locations)
    except ConfigurationError as error:
        yield _of_error(error, "paths")
    for section, sink in config.sink_sections().items():
        if sink.file_access and not keeps_access(locations["output"]):
            yield Invalid(
                (*section.split("."), "access"),
                f"must not be set, because files have no owner and mode at {locations['output']}",
                remedy="remove it; the policy of the bucket, or of the share, determines access",
            )


def _of_error(error: ConfigurationError, *keys: str) -> Invalid:
    ids = "".join(f" {value}" for value in error.ids.values())
    required = f"must be valid: {error.failure}{ids}" + (f"; expected {error.expected}" if error.expected else "")
    return Invalid(keys, required, error.found, error.todo)


def _misplaced_secrets(texts: Sequence[tuple[Key, str]]) -> list[Invalid]:
    required = f"must not contain ${{file:PATH}}, which is only for {', '.join(PLACES)}"
    return [
        Invalid(keys, required, remedy="write the value itself")
        for keys, text in texts
        if "${file:" in text and not takes_secret_file(tuple(key for key in keys if isinstance(key, str)))
    ]


def _unset(keys: Key, name: str) -> Invalid:
    return Invalid(keys, f"names the environment variable {name}, which is not set", remedy="set it")


def _overlap(keys: Key, others: Key) -> bool:
    shared = min(len(keys), len(others))
    return keys[:shared] == others[:shared]


def _positioned(problems: Sequence[Invalid], file: Path, overrides: Sequence[str]) -> list[SettingProblem]:
    try:
        positions = KeyPositions(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):  # a tree without a file
        positions = KeyPositions("")
    set_by = [text.partition("=")[0] for text in overrides]
    results = []
    for invalid in problems:
        key = ".".join(map(str, invalid.keys))
        override = next((name for name in set_by if key == name or key.startswith(f"{name}.")), "")
        line, column = (0, 0) if override else max(positions.of(invalid.keys), positions.of(old_keys(invalid.keys)))
        values = (invalid.required, invalid.found, invalid.remedy)
        results.append(SettingProblem(key, *values, str(file), line, column, override))
    return sorted(results, key=lambda problem: (problem.line, problem.column))


def _text_of(file: str, data: bytes) -> str:
    """Return the text of a job file. Raises JobFileError if it is not encoded in UTF-8."""
    required, encoding = "must be encoded in UTF-8", _other_encoding(data)
    if encoding:
        remedy = f"save it as UTF-8, for example: iconv -f {encoding} -t UTF-8 {shlex.quote(file)} > utf-8.yaml"
        raise _file_error(file, required, encoding, remedy)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        actual = f"byte 0x{data[error.start]:02x}, as in ISO-8859-1 or windows-1252"
        raise _file_error(file, required, actual, "save it as UTF-8 in the editor", line=line) from None


def _other_encoding(data: bytes) -> str:
    """Return the encoding that the byte order mark, or the NUL bytes of the first characters, show; empty for UTF-8."""
    if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    return {b"\0": "UTF-16BE"}.get(data[:1]) or {b"\0": "UTF-16LE"}.get(data[1:2], "")


def _file_error(
    file: str, required: str, actual: str, remedy: str = "", *, line: int = 0, column: int = 0
) -> JobFileError:
    return JobFileError([SettingProblem("", required, actual, remedy, file, line, column)])


def _fault(error: Exception) -> str:
    """Return the message of a YAML error without the quoted lines, which may contain secrets."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return type(error).__name__
    return str(error.problem or error.context or "a syntax error")


def _override(tree: dict[str, Any], text: str) -> SettingProblem | None:
    key, separator, value = text.partition("=")
    if not separator or not key:
        shown = text if _IS_KEY.fullmatch(text) else HIDDEN
        return SettingProblem("", "must have the form section.key=value", override=shown)
    *sections, last = key.split(".")
    holder: Any = tree
    for section in sections:
        if isinstance(holder, list):  # one of a list, by its number
            holder = holder[int(section)] if section.isdecimal() and int(section) < len(holder) else None
        else:
            holder = holder.setdefault(section, {}) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        return SettingProblem(key, "must be a key of a section", override=key)
    try:
        parsed = load_yaml(value)
    except yaml.YAMLError as error:
        return SettingProblem(key, "must have a value of valid YAML", _fault(error), override=key)
    if last == "type" and holder.get("type", DEFAULT_TYPES.get(sections[-1] if sections else "", parsed)) != parsed:
        holder.clear()
    holder[last] = parsed
    return None


def is_job_file(path: Path) -> bool:
    """Return whether a path has the name of a job file."""
    return path.suffix.lower() in (".yaml", ".yml")


def job_files_in(folder: Path) -> list[Path]:
    """Return the absolute paths of a folder's job files, sorted. Hidden files and subfolders are not included.

    Raises:
        ConfigurationError: if the folder can't be read.
    """
    try:
        return sorted(
            path for path in folder.absolute().iterdir() if is_job_file(path) and path.name[0] != "." and path.is_file()
        )
    except OSError as error:
        raise ConfigurationError(
            "the folder of job files can't be read", id="SERVED_JOBS_INVALID", path=folder, found=str(error)
        ) from error
