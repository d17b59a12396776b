"""The probe of a file system before a store is created."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from distcommit.core.errors import ConfigurationError
from distcommit.core.interfaces.file_system import FileSystem, ProbedFileSystem
from distcommit.fs.separate_store import file_system_at
from distcommit.protocol.paths.temporary_and_probes import is_store_probe, store_probe_name
from distcommit.stores.folders.folder_trees import delete_entry, delete_tree

_PROBE_TRIES = 3
NO_PUT = "put-if-absent (of two writers of one name, one must lose)"
"""Description of the ability that a file system lacks if it replaces existing files."""


def probe_file_system(fs: FileSystem, store: str, staging: str, output: str, probe_id: str) -> None:
    """Check the abilities that the protocol needs: put-if-absent, rename without replacing, staging and output on one
    file system, case-sensitive names.

    A kind of file system that was never tested is checked for all other abilities as well. If the store is on another
    file system than the output, both are checked.

    If a file is missing, the probe is repeated, because another creator of the store may have deleted it.

    Raises:
        ConfigurationError: if an ability is missing.
    """
    roots = (store, staging, output)
    for root in roots:  # probes of a creation that crashed
        for entry in fs.list_folder(root):
            if is_store_probe(entry.name):
                delete_entry(fs, root, entry)
    names = [f"{root}/{store_probe_name(probe_id)}" for root in roots]
    problem: ConfigurationError | None = None
    for _ in range(_PROBE_TRIES):
        try:
            problem = _basic_problem(fs, roots, names)
            if problem is None:
                problem = _full_problem(fs, (store, output), store_probe_name(f"folder-{probe_id}"))
        except FileNotFoundError as error:
            problem = unsupported(fs, store, f"keeping a file that was just made ({error})")
        finally:
            for name in names:
                _delete_probe(fs, name)
        if problem is None:
            return
    if problem is not None:
        raise problem


def _delete_probe(fs: FileSystem, probe: str) -> None:
    try:
        fs.delete(probe)
    except OSError:  # the first delete may have succeeded, with its answer lost
        with suppress(OSError):
            fs.delete(probe)


def _basic_problem(fs: FileSystem, roots: Sequence[str], probes: Sequence[str]) -> ConfigurationError | None:
    (store, staging, output), (put, source, target) = roots, probes
    staged = fs.create(source, target)
    staged.write(b"3")
    staged.close_file(sync=True)
    for root, path in ((store, put), (output, target)):
        if not fs.put_if_absent(path, b"1") or fs.put_if_absent(path, b"2") or fs.read(path) != b"1":
            return unsupported(fs, root, NO_PUT)
    for path in (put, source, target):
        folder, _, name = path.rpartition("/")
        if fs.status(f"{folder}/{name.upper()}") is not None:
            return unsupported(fs, folder, "keeping names apart that differ only in case, as names of datasets may")
    try:
        fs.rename(source, target)
    except FileExistsError:
        fs.delete(target)
    except FileNotFoundError:
        raise
    except OSError as error:
        return unsupported(fs, output, f"rename from {staging} ({error})")
    else:
        return unsupported(fs, output, "rename without replacing an existing file")
    try:
        fs.rename(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        return unsupported(
            fs, output, f"rename from {staging} (staging and output must share one file system: {error})"
        )
    return None


def _full_problem(fs: FileSystem, roots: Sequence[str], name: str) -> ConfigurationError | None:
    for part, root in {file_system_at(fs, root): root for root in reversed(roots)}.items():
        if not isinstance(part, ProbedFileSystem):
            continue
        try:
            part.probe(f"{root}/{name}")
        except ConfigurationError as error:
            return error
        finally:
            delete_tree(part, f"{root}/{name}")
    return None


def unsupported(fs: FileSystem, root: str, subject: str) -> ConfigurationError:
    return ConfigurationError(
        f"this {file_system_at(fs, root).scheme} file system lacks an ability that exactly-once needs: {subject}",
        id="FILE_SYSTEM_UNSUPPORTED",
        path=root,
        todo="choose another file system for the job's folders",
    )
