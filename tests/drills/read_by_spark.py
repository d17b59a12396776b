"""A program that calls a source of Spark's readers directly, outside of a run."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.drills.drill import Drilled, NotBrokenError, Typed
from tests.drills.quick_drills import Here, Printed
from tests.drills.registry import drill_of

_DATASETS = ("a", "b")
_RECORDS = 10
_PROGRAMS = {
    "plan.py": """
from distcommit import Job, SourceState
list(Job.from_file("job.yaml").config.source.plan(lambda urn: True, SourceState()))
""",
    "open.py": """
from distcommit import Job
Job.from_file("job.yaml").config.source.open()
""",
    "run.py": """
from distcommit import Job
assert Job.from_file("job.yaml").run().succeeded
""",
}
"""Programs in the job's folder: two that call its source directly, and one that calls Job.run."""


def _put(situation: Here, dataset: str) -> None:
    """Write the Parquet file of a dataset that the job reads."""
    values = [b'{"dataset":"%s","n":%d}' % (dataset.encode(), number) for number in range(_RECORDS)]
    path = situation.folder / "in" / dataset
    path.mkdir(parents=True)
    pq.write_table(pa.table({"value": pa.array(values, pa.binary())}), path / "rows.parquet")
    situation.given.update(values)


@drill_of("SPARK_ROWS_NOT_STAGED", kinds=("command", "program"), quick=True)
def source_of_spark_called_by_a_program(folder: Path, by: str) -> Drilled:
    """The program then reads it as the error states: by `distcommit run`, or by Job.run."""
    situation = Here(folder)
    for dataset in _DATASETS:
        _put(situation, dataset)
    for name, text in _PROGRAMS.items():
        (folder / name).write_text(text, encoding="utf-8")
    datasets = {dataset: {"path": str(folder / "in" / dataset)} for dataset in _DATASETS}
    source = {"type": "spark", "format": "parquet", "datasets": datasets}
    situation.write(source=source, sink={"publish": "replace"}, commit={"buckets": 2})
    printed = Printed(situation)
    for name in ("plan.py", "open.py"):
        printed.refused(
            f"python {name}",
            "SPARK_ROWS_NOT_STAGED: the Spark source was called outside of a run.*with `distcommit run`, or",
            1,
        )
    if situation.output.exists():
        raise NotBrokenError("the output folder is there, although no run has begun")
    if by == "command":
        printed.type(f"distcommit run {situation.path}")
    else:
        done = situation.type("python run.py")
        printed.result.typed.append(Typed("python run.py", done.returncode))
        if done.returncode:
            printed.result.problems.append(f"Job.run ended with {done.returncode}: {done.stderr[-2000:]}")
    return printed.ended()
