"""Map Gobblin's folders to the job's."""

from __future__ import annotations

import re

from distcommit.app.gobblin.properties import Property
from distcommit.app.gobblin.translation import Translation

_OURS = "a folder of this job's own below it: nobody else's files may be there"


def put_folders(job: Translation, name: str) -> None:
    """Set `paths`: this job's own folders below Gobblin's, which jobs share, on one file system."""
    folder = re.sub(r"[^\w.-]+", "_", name)
    default = job.take("fs.uri")
    output = job.take("data.publisher.final.dir")
    systems = [job.take("data.publisher.fs.uri"), job.take("writer.fs.uri"), default]
    root = _root(next((each for each in systems if each is not None), None))
    for each in systems:
        job.leave(each, "is a part of paths")
    state, uri = job.take("state.store.dir"), job.take("state.store.fs.uri")
    job.leave(uri, "is a part of paths: all are on the output's file system")
    job.put(output, "paths.output", _place(root, output, folder) if output else "output", _OURS)
    elsewhere = uri is not None and _root(uri) != root
    if elsewhere:
        job.leave(state, "it is on another file system than the output, where paths.store has to be")
    store = None if elsewhere else state
    beside = f"{_place(root, output, '')}distcommit/{folder}" if output else ""
    ours = f"distcommit/{folder}/store"
    value = _place(root, store, ours) if store else f"{beside}/store" if beside else "store"
    job.put(store, "paths.store", value, _OURS)
    data = job.take("writer.staging.dir")
    task_data = job.take("task.data.root.dir")
    staging = data or task_data
    ours = f"distcommit/{folder}/staging"
    value = _place(root, staging, ours) if staging else f"{beside}/staging" if beside else "staging"
    job.put(staging, "paths.staging", value, _OURS)
    if data is not None:
        job.leave(task_data, "paths.staging holds all that is not published yet")


def _root(uri: Property | None) -> str:
    if uri is None or re.fullmatch(r"file:/*", uri.value):
        return ""
    return uri.value.rstrip("/")


def _place(root: str, of: Property, below: str) -> str:
    path = of.value.removeprefix("file://") if of.value.startswith("file:///") else of.value
    path = path if "://" in path or not root else f"{root}/{path.lstrip('/')}"
    return f"{path.rstrip('/')}/{below}"
