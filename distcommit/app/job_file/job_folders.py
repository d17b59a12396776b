"""The folders of a job, and its store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distcommit.app.job_file.fixed_settings import fixed_settings_of
from distcommit.app.job_file.folder_locations import open_folders, path_of, require_separate
from distcommit.app.job_file.job_config import JobConfig
from distcommit.core.commit_groups import CommitGroups
from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.fixed_settings import FixedSettings
from distcommit.stores.state.job_store import JobStore, Roots, has_store, open_store
from distcommit.stores.state.recorded_fixed_settings import require_settings


@dataclass(frozen=True, slots=True)
class JobFolders:
    """A job with the means to open its folders and store.

    Args:
        config: the job's settings.
        path: job file.
        overrides: the `--set` options, for commands in messages.
        throwaway: whether the folders are deleted after one run.
        tree: content of the job file with overrides, without values of environment variables.
        unset: unset environment variable that a setting names, by the setting's dotted key.
    """

    config: JobConfig
    path: Path | None = None
    overrides: Sequence[str] = ()
    throwaway: bool = False
    tree: Mapping[str, Any] = field(default_factory=dict)
    unset: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> CommitGroups:
        return CommitGroups(self.config.task_flow().grouping_sink)

    def roots(self) -> tuple[FileSystem, Roots]:
        """Return the file system of the job's folders, and the folders on it."""
        self.require_variables("job", "paths")
        paths = self.config.paths
        roots = Roots(path_of(paths.store), path_of(paths.staging), path_of(paths.output))
        durable = self.config.commit.durability == "fsync"
        return open_folders(paths.store, (paths.staging, paths.output), durable=durable), roots

    def has_store(self) -> bool:
        fs, roots = self.roots()
        return has_store(fs, roots)

    def open_store(self, *, create: bool) -> JobStore:
        """Open the job's store without comparing fixed settings. Create a missing store if `create` is set."""
        fs, roots = self.roots()
        return open_store(fs, roots, self.config.job, self.config.commit.buckets, create=create, groups=self.groups)

    def opened(self, *, create: bool = False) -> JobStore:
        """Open the job's store for an action that may change it. Create a missing store if `create` is set.

        Raises:
            ConfigurationError: if there is no store and `create` is not set, a fixed setting differs from the recorded
                one, an environment variable is not set, the source reads the job's folders, or the sink is of type
                console, which stores nothing.
        """
        self.require_variables()
        if self.config.tries_out and not self.throwaway:
            raise ConfigurationError(
                "the sink of type console is for trying out, and keeps nothing",
                id="JOB_FILE_INVALID",
                expected="`distcommit run` alone",
                todo="give this command the job's own sink",
            )
        require_separate(self.config.source, self.config.paths.model_dump())
        fixed_settings, store = self.fixed_settings(), self.open_store(create=create)
        require_settings(store, fixed_settings)
        return store

    def require_variables(self, *sections: str) -> None:
        """Raise ConfigurationError if a setting names an environment variable that is not set.

        Args:
            *sections: sections to check; all if none is given.
        """
        unset = {key: name for key, name in self.unset.items() if not sections or key.partition(".")[0] in sections}
        if unset:
            raise ConfigurationError(
                "the job file names environment variables that are not set",
                id="JOB_FILE_INVALID",
                path=str(self.path),
                found=", ".join(f"{key}: ${{{name}}}" for key, name in unset.items()),
                todo=f"set {', '.join(dict.fromkeys(unset.values()))}; this command uses the settings",
            )

    def fixed_settings(self) -> FixedSettings:
        return fixed_settings_of(self.config, self.path, self.overrides)
