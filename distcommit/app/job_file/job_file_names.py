"""Which files of a folder are job files."""

from __future__ import annotations

from pathlib import Path

from distcommit.core.errors import ConfigurationError


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
