"""Operations are counted at their place, and the two ways of counting agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.questions.operations import calls_in_window, operations


def test_operations_as_slopes(tmp_path: Path) -> None:
    results = operations([40, 80], 3, buckets=2, seed=1, folder=tmp_path, tell=lambda text: None)
    ratios = results.ratios
    assert ratios["renames_per_dataset"] == 1, "its folder"
    assert ratios["mkdirs_per_dataset"] == ratios["rmdirs_per_dataset"] == ratios["stats_per_dataset"] == 0
    assert ratios["other_calls_per_added_dataset"] == 2, "a listing before the seal, and one after the rename"
    assert ratios["into_folders_renames_per_dataset"] == 3, "each file, and no folder once one was seen to be there"
    assert (ratios["into_folders_mkdirs_per_dataset"], ratios["into_folders_stats_per_dataset"]) == (0, 1), "that look"
    assert ratios["into_folders_rmdirs_per_dataset"] == 1
    assert 0 < ratios["log_bytes_per_dataset"] < 600
    assert 0 < ratios["at_least_once_log_bytes_over_exactly_once"] < 0.5, "no steps are written ahead"
    assert 0.5 < ratios["at_least_once_calls_over_exactly_once"] < 1
    assert 0.5 < ratios["into_folders_at_least_once_calls_over_exactly_once"] < 1
    if results.skipped:
        pytest.skip(results.skipped["strace"])
    renames = [value for name, value in ratios.items() if name.startswith("strace_rename")]
    assert sum(renames) == pytest.approx(1)


def test_calls_of_a_trace() -> None:
    trace = """
7 openat(AT_FDCWD, "/etc/x", O_RDONLY) = 3
7 stat("/begin-of-the-window", 0x7ff) = -1 ENOENT
7 mkdir("/a", 0777) = 0
8 rename("/a", "/b" <unfinished ...>
8 <... rename resumed>) = 0
8 +++ exited with 0 +++
7 rename("/b", "/c") = 0
7 stat("/end-of-the-window", 0x7ff) = -1 ENOENT
7 close(3) = 0
"""
    assert calls_in_window(trace) == {"mkdir": 1, "rename": 2}
