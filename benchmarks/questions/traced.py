"""A program for strace: one drain of a prepared run, between two marks.

Arguments: datasets, files, buckets, seed, folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.questions.operations import drain_here
from benchmarks.workloads.counting import CountingCalls
from benchmarks.workloads.tree import Shape

if __name__ == "__main__":
    drain_here(Shape(*map(int, sys.argv[1:5])), Path(sys.argv[5]), CountingCalls())
