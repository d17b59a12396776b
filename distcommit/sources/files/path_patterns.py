"""Path patterns of source files, and the listing of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from distcommit.core.errors import ConfigurationError, SourceError, error_text
from distcommit.core.support.settings_model import UNSET_VARIABLE, SettingError
from distcommit.fs.fsspec_based.input_files import InputFile, InputFolder

DATASET = "{dataset}"
_ANY_DEPTH = "**"
_WILD = re.compile(r"[*?\[{]")
_HIDDEN = (".", "_")


@dataclass(frozen=True, slots=True)
class PathPattern:
    """Pattern of paths: `*` and `?` within a name, `[...]` for a character, `**` (once) for folders at any depth,
    `{dataset}` (once) within a name.

    Names that begin with `.` or `_` match only a part that begins likewise.

    Attributes:
        folder: absolute path or URL before the first wildcard.
        parts: one pattern for each level below the folder.
    """

    folder: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """Parse an absolute path or URL. Raises SettingError if it is not a valid pattern."""
        scheme, separator, remainder = text.partition("://")
        if not separator and not text.startswith(("/", "${")):
            raise SettingError("must be an absolute path or a URL")
        authority, _, path = remainder.partition("/") if separator else ("", "", text)
        if ":" in authority.rpartition("@")[0]:
            raise SettingError("must not contain a password", remedy=f"set FSSPEC_{scheme.upper()}_PASSWORD instead")
        parts = [part for part in path.split("/") if part]
        plain = next((n for n, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1)
        if not parts or text.endswith("/") or parts[-1] == _ANY_DEPTH:
            raise SettingError("must end with a file name, not with a folder")
        if any(part in (".", "..") or (_ANY_DEPTH in part and part != _ANY_DEPTH) for part in parts):
            raise SettingError("must not have the parts `.` and `..`, nor `**` within a name")
        if text.count(_ANY_DEPTH) > 1 or text.count(DATASET) > 1:
            raise SettingError(f"must have each of `**` and {DATASET} once at most")
        if _WILD.search(authority) or re.search(r"[{}]", UNSET_VARIABLE.sub("", text).replace(DATASET, "")):
            raise SettingError(f"must not have a wildcard in its host, nor braces other than {DATASET}")
        head = f"{scheme}://{authority}/" if separator else "/"
        pattern = cls((head + "/".join(parts[:plain])).rstrip("/") or "/", tuple(parts[plain:]))
        for part in pattern.parts:
            _compiled(part)
        return pattern

    @property
    def names_datasets(self) -> bool:
        return any(DATASET in part for part in self.parts)

    def may_match_in(self, folder: str, least: int = 1) -> bool:
        """Return whether files at least `least` levels below a folder may match."""
        own = self.folder if "://" in self.folder else os.path.realpath(self.folder)
        if _is_within(own, folder):
            return True
        if not _is_within(folder, own):
            return False
        names = [name for name in folder[len(own) :].split("/") if name]
        return _may_lead_to(self.parts, names, least)

    def __str__(self) -> str:
        return "/".join(self.parts)


def _may_lead_to(parts: Sequence[str], names: Sequence[str], least: int) -> bool:
    if not names:
        return len(parts) >= least or _ANY_DEPTH in parts
    if len(parts) < 2:
        return False
    if names[0].startswith(_HIDDEN) and not parts[0].startswith(_HIDDEN):
        return False
    if parts[0] == _ANY_DEPTH:
        return _may_lead_to(parts, names[1:], least) or _may_lead_to(parts[1:], names, least)
    return _compiled(parts[0]).fullmatch(names[0]) is not None and _may_lead_to(parts[1:], names[1:], least)


def _compiled(part: str) -> re.Pattern[str]:
    expression, index = "", 0
    while index < len(part):
        remainder = part[index:]
        if remainder.startswith(DATASET):
            expression, index = expression + "(?P<dataset>.+)", index + len(DATASET)
        elif group := re.match(r"\[(!?)([^\]]+)\]", remainder):
            inner = re.sub(r"([\\^\[&~|])", r"\\\1", group[2])
            expression, index = f"{expression}[{'^' if group[1] else ''}{inner}]", index + group.end()
        else:
            expression, index = expression + {"*": ".*", "?": "."}.get(remainder[0], re.escape(remainder[0])), index + 1
    try:
        return re.compile(expression, re.DOTALL)
    except re.error as error:
        raise ValueError(f"{part!r} is not a pattern: {error}") from None


@dataclass(slots=True)
class Listing:
    """Result of a listing, by dataset.

    Attributes:
        files: files by the index of their pattern and their path below the pattern's folder.
        problems: why a dataset cannot be read: one of its folders cannot be listed, or two patterns match a file.
    """

    files: dict[str, dict[tuple[int, str], InputFile]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    _patterns: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(self, urn: str, index: int, path: str, name: str, file: InputFile) -> None:
        """Add a file, or record a problem if another pattern has matched it."""
        if self._patterns.setdefault((urn, name), index) != index:
            self.problems[urn] = f"two of source.paths match a file, which would be read twice: {name}"
        self.files.setdefault(urn, {})[index, path] = file


def listed(patterns: Sequence[PathPattern], named: str, owned: Callable[[str], bool]) -> Listing:
    """List the files of owned datasets. Folders of other datasets are skipped.

    Args:
        named: the dataset of patterns without `{dataset}`.

    Raises:
        SourceError: if a pattern's folder is missing, or a folder above several datasets cannot be listed. The error of
            a dataset's folder is a problem of that dataset.
    """
    listing = Listing()
    for index, pattern in enumerate(patterns):
        urn = "" if pattern.names_datasets else named
        if not urn or owned(urn):
            folder = InputFolder(pattern.folder)
            folder.refresh()
            _Walk(index, folder, owned, listing).into("", pattern.parts, urn)
    return listing


def check_folder(url: str) -> None:
    """Raise SourceError if a folder cannot be listed, ConfigurationError if no file system supports its URL."""
    try:
        InputFolder(url).entries("")
    except ConfigurationError:
        raise
    except FileNotFoundError as error:
        raise _unlistable(url, "the folder does not exist") from error
    except Exception as error:
        raise _unlistable(url, error_text(error)) from error


@dataclass(slots=True)
class _Walk:
    index: int
    folder: InputFolder
    owned: Callable[[str], bool]
    listing: Listing

    def into(self, path: str, parts: tuple[str, ...], urn: str) -> None:
        """List the matching files below a folder; `urn` is empty until the path names the dataset."""
        try:
            entries = sorted(self.folder.entries(path), key=lambda entry: entry[0])
        except FileNotFoundError as error:
            if path:
                return  # removed in the meantime, with its files
            raise _unlistable(self.folder.url, "the folder does not exist") from error
        except Exception as error:
            if not urn:
                raise _unlistable(self.folder.name_of(path), error_text(error)) from error
            self.listing.problems[urn] = str(_unlistable(self.folder.name_of(path), error_text(error)))
            return
        if parts[0] == _ANY_DEPTH:
            for name, file in entries:
                if file is None and not name.startswith(_HIDDEN):
                    self.into(_joined(path, name), parts, urn)
            parts = parts[1:]
        matches = _compiled(parts[0])
        for name, file in entries:
            if (file is None) is (len(parts) == 1) or (name.startswith(_HIDDEN) and not parts[0].startswith(_HIDDEN)):
                continue
            if match := matches.fullmatch(name):
                whose = match.groupdict().get("dataset") or urn
                if whose != urn and not self.owned(whose):
                    continue
                if file is None:
                    self.into(_joined(path, name), parts[1:], whose)
                else:
                    below = _joined(path, name)
                    self.listing.add(whose, self.index, below, self.folder.name_of(below), file)


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _unlistable(path: str, actual: str) -> SourceError:
    return SourceError(
        "a folder of source files cannot be listed",
        id="SOURCE_FILE_UNREADABLE",
        path=path,
        found=actual,
        todo="create it, or correct source.paths",
    )


def _is_within(folder: str, other: str) -> bool:
    return (folder.rstrip("/") + "/").startswith(other.rstrip("/") + "/")
