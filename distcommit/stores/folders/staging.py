"""Task output: each attempt has its own staging folder, to which no other attempt writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import methodcaller

from distcommit.core.interfaces.file_system import FileSystem, FolderEntry
from distcommit.core.interfaces.sink import AttemptIdentity, StagingArea
from distcommit.core.support.parallel import run_parallel
from distcommit.core.work_units import BranchResult, StagedFile, TaskState
from distcommit.protocol.log_state import Fold
from distcommit.protocol.paths.shared_names import bucket_number, epoch_name
from distcommit.protocol.paths.staging import attempt_folder, bucket_folder, work_unit_of
from distcommit.steps.guarded_folders import GuardedFolders
from distcommit.stores.folders.folder_trees import delete_tree

_MISSING = -1


def prepare_bucket(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    fs.make_folders(f"{staging_root}/{bucket_folder(epoch, bucket)}")


def make_area(
    fs: FileSystem, staging_root: str, output_root: str, bucket: int, attempt: AttemptIdentity
) -> StagingArea:
    """Create the attempt's uniquely named staging folder, and return it.

    Raises:
        FileNotFoundError: if the bucket's folder is gone: the run is over, and this attempt is a zombie.
    """
    prefix = attempt_folder(attempt.epoch, bucket, attempt.work_unit_id, attempt.attempt)
    path = f"{staging_root}/{prefix}"
    if not fs.make_folder(path):
        raise FileExistsError(path)
    return StagingArea(fs, path, prefix, output_root)


def list_attempts(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> dict[str, list[str]]:
    """Return the folders of a run's attempts in a bucket, relative to the staging root, by work unit id."""
    folder = bucket_folder(epoch, bucket)
    attempts: dict[str, list[str]] = {}
    for entry in fs.list_folder(f"{staging_root}/{folder}"):
        if entry.is_folder:
            attempts.setdefault(work_unit_of(entry.name), []).append(f"{folder}/{entry.name}")
    return attempts


def remove_attempts(fs: FileSystem, staging_root: str, folders: Sequence[str]) -> int:
    return sum(run_parallel(fs.parallel_calls, lambda folder: delete_tree(fs, f"{staging_root}/{folder}"), folders))


def sweep_epoch(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> int:
    """Delete an older run's staged files in a bucket; return their number."""
    folders = [folder for group in list_attempts(fs, staging_root, epoch, bucket).values() for folder in group]
    files = remove_attempts(fs, staging_root, folders)
    remove_empty(fs, staging_root, epoch, bucket)
    return files


def staged_buckets(fs: FileSystem, staging_root: str, epoch: int) -> list[int]:
    """Return the buckets with staged files of a run, also above the present number of buckets."""
    buckets = (bucket_number(e.name) for e in fs.list_folder(f"{staging_root}/{epoch_name(epoch)}") if e.is_folder)
    return sorted(bucket for bucket in buckets if bucket is not None)


def remove_empty(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    """Remove the empty folders of a bucket and its epoch, so that a zombie of that epoch cannot write there."""
    remove_empty_bucket(fs, staging_root, epoch, bucket)
    remove_empty_epoch(fs, staging_root, epoch)


def remove_empty_bucket(fs: FileSystem, staging_root: str, epoch: int, bucket: int) -> None:
    fs.delete_folder(f"{staging_root}/{bucket_folder(epoch, bucket)}")


def remove_empty_epoch(fs: FileSystem, staging_root: str, epoch: int) -> None:
    fs.delete_folder(f"{staging_root}/{epoch_name(epoch)}")


def staged_epochs(fs: FileSystem, staging_root: str) -> list[int]:
    return sorted(epoch for e in fs.list_folder(staging_root) if (epoch := epoch_of(e)) is not None)


def epoch_of(entry: FolderEntry) -> int | None:
    is_number = entry.is_folder and entry.name.isascii() and entry.name.isdecimal()
    return int(entry.name) if is_number and entry.name == epoch_name(int(entry.name)) else None


def swept_epochs(staged: Iterable[int], epoch: int, fold: Fold) -> list[int]:
    """Return the staged epochs that a run may sweep in a bucket: older ones without an open sequence in its log."""
    open_epochs = {state.sequence.epoch for state in fold.datasets.values() if state.sequence is not None}
    return [older for older in staged if older < epoch and older not in open_epochs]


class StagedFiles:
    """Check which staged files exist, with one listing for each folder."""

    def __init__(self, fs: FileSystem, staging_root: str) -> None:
        self._fs, self._root = fs, staging_root
        self._folders = GuardedFolders(fs, staging_root)
        self._listed: dict[str, dict[str, int]] = {}
        self._whole: set[tuple[str, str, str]] = set()

    def list_folders_of(self, states: Iterable[TaskState]) -> None:
        results = [result for state in states for result in state.branches]
        folders = {file.staged_path.rpartition("/")[0] for result in results for file in result.files}
        run_parallel(self._fs.parallel_calls, self._names_in, sorted(folders))

    def has_all_of(self, state: TaskState) -> bool:
        """Return whether all files of a task state exist. If both file ids are known, they must be equal."""
        return all(self._has_all_of(state, result) for result in state.branches)

    def _has_all_of(self, state: TaskState, result: BranchResult) -> bool:
        outputs, is_complete, observed = result.files, True, 0
        name_of_result = (state.work_unit_id, state.attempt, result.branch)
        if outputs and self._is_exactly(outputs):  # nearly always true, and much cheaper
            self._whole.add(name_of_result)
            return True
        while observed < len(outputs):  # one folder after the other
            first = outputs[observed]
            folder, slash, _ = first.staged_path.rpartition("/")
            target, target_slash, _ = first.final_path.rpartition("/")
            staged_in, final_in = folder + slash, target + target_slash
            names, begin = self._names_in(folder), observed
            while observed < len(outputs):
                file = outputs[observed]
                name, final_name = file.staged_path[len(staged_in) :], file.final_path[len(final_in) :]
                if "/" in name or not file.staged_path.startswith(staged_in):
                    break
                file_id = names.get(name, _MISSING)
                if file_id != file.file_id and (file_id == _MISSING or (file_id and file.file_id)):
                    return False
                is_complete = is_complete and name == final_name and file.final_path.startswith(final_in)
                observed += 1
            is_complete = is_complete and len(names) == observed - begin
        if is_complete:
            self._whole.add(name_of_result)
        return True

    def _is_exactly(self, outputs: Sequence[StagedFile]) -> bool:
        first = outputs[0]
        folder, slash, _ = first.staged_path.rpartition("/")
        target, target_slash, _ = first.final_path.rpartition("/")
        staged_in, final_in = folder + slash, target + target_slash
        paths = [file.staged_path for file in outputs]
        names = [path[len(staged_in) :] for path in paths]
        return (
            dict(zip(names, [file.file_id for file in outputs], strict=True)) == self._names_in(folder)
            and all(map(methodcaller("startswith", staged_in), paths))
            and [file.final_path for file in outputs] == [final_in + name for name in names]
        )

    def is_complete(self, state: TaskState, result: BranchResult) -> bool:
        """Return whether each folder of a branch can be renamed as a whole.

        It must contain exactly the branch's files, with final names for one folder. Call it only after `has_all_of` has
        returned true.
        """
        return (state.work_unit_id, state.attempt, result.branch) in self._whole

    def _names_in(self, folder: str) -> dict[str, int]:
        names = self._listed.get(folder)
        if names is None:
            path = f"{self._root}/{folder}"
            self._folders.check(path)
            entries = self._fs.list_folder(path)
            names = self._listed[folder] = {e.name: _MISSING if e.is_folder else e.file_id for e in entries}
        return names
