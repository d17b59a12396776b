"""Faults to be planted: a foreign file or folder is treated as the job's own by its name or size."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

NAMES = (
    fault(
        FaultClass.NAME,
        "moved-by-its-name",
        "a file of a moved folder is there if one of its name is",
        (
            "steps.bulk_rename",
            "_is_in",
            "file_id != _MISSING and (not file_id or not step.file.file_id or file_id == step.file.file_id)",
            "file_id != _MISSING",
        ),
        (
            "steps.bulk_rename",
            "_Batch._missing_in",
            "{file.final_path[cut:]: file.file_id for file in files} == present",
            "{steps[index].file.final_path[cut:] for index in group.indices} == set(present)",
        ),
    ),
    fault(
        FaultClass.NAME,
        "published-by-its-size",
        "whatever file of the right size is at the target is ours",
        (
            "steps.rename_step",
            "FsRenameCommitStep._is_ours",
            "status.is_folder or status.size_bytes != f.size_bytes",
            "status.is_folder",
        ),
        (
            "steps.rename_step",
            "FsRenameCommitStep._is_ours",
            "self.context.fs.checksum(path) == f.checksum",
            "found.size_bytes == f.size_bytes",
        ),
    ),
    fault(
        FaultClass.NAME,
        "staged-by-its-name",
        "a staged file is there if one of its name is",
        (
            "stores.folders.staging",
            "StagedFiles._has_all_of",
            "file_id != file.file_id and (file_id == _MISSING or (file_id and file.file_id))",
            "file_id == _MISSING",
        ),
    ),
    fault(
        FaultClass.NAME,
        "abandoned-by-its-name",
        "abandoning takes away whatever file is at the target",
        (
            "steps.rename_step",
            "FsRenameCommitStep._remove",
            "status is not None and self._is_ours(path, status)",
            "status is not None",
        ),
    ),
    fault(
        FaultClass.NAME,
        "folder-taken-with-all-in-it",
        "replay moves a staged folder as a whole that holds more than its steps",
        (
            "steps.bulk_rename",
            "probe_all",
            "names == set(group.final_names(steps))",
            "names is not None and names >= set(group.final_names(steps))",
        ),
    ),
)
