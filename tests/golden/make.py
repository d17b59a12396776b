"""Writes the golden files: `python -m tests.golden.make [folder]`.

They are made once for each format version and then never again: what is committed is what that version wrote. Bytes are
the same each time, with one version of pyarrow.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import msgspec

from distcommit.stores.documents import encode_document
from distcommit.stores.segment import encode_segment
from distcommit.stores.tables import encode_plan, encode_task_states
from distcommit.testing import samples
from tests.golden.job import make_job

GOLDEN = Path(__file__).parent / "v1"


def make(folder: Path) -> None:
    """Writes all golden files into a folder that has none yet."""
    (folder / "segments").mkdir(parents=True)
    for name, segment in samples.SEGMENTS.items():
        (folder / "segments" / f"{name}.seg").write_bytes(encode_segment(segment))
    (folder / "plan.parquet").write_bytes(encode_plan(samples.PLAN))
    (folder / "task_states.parquet").write_bytes(encode_task_states(samples.TASK_STATES))
    (folder / "manifest.json").write_bytes(encode_document(samples.MANIFEST))
    (folder / "store.json").write_bytes(encode_document(samples.MARKER))
    (folder / "lock.json").write_bytes(msgspec.json.encode(samples.LOCK))
    (folder / "footer.txt").write_text(samples.footer().to_metadata()["distcommit"], encoding="utf-8")
    (folder / "offsets.txt").write_text(samples.offsets().to_text(), encoding="utf-8")
    make_job(folder / "job")
    shutil.rmtree(folder / "job" / "store" / "progress", ignore_errors=True)  # display only, no format of ours


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    if target.exists():
        sys.exit(f"{target} is there: golden files are never overwritten; delete it first if that is what you want")
    make(target)
