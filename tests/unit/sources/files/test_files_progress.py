"""Progress through a dataset's files: no file is read twice, and no file above the remembered bound is skipped."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.support.storable_check import storable
from distcommit.core.watermark import Watermark, at_or_past
from distcommit.sources.files.progress import FilesWatermark, ListedFile, Progress

KIND = FilesWatermark()
FILES = st.lists(
    st.builds(ListedFile, st.just(0), st.integers(0, 400).map(str), st.just(1), st.integers(-2, 8)),
    max_size=12,
    unique_by=lambda file: file.path,
)
"""Files that arrive between two runs, with arbitrary modification times."""


@given(st.lists(st.tuples(FILES, st.integers(0, 8), st.integers(1, 6), st.booleans()), max_size=8))
def test_each_file_is_read_once_unless_it_arrives_below_the_remembered_bound(
    runs: list[tuple[list[ListedFile], int, int, bool]],
) -> None:
    """Each run reads up to its limit of files, the begun one first, and may begin the next."""
    progress, there, read, half = Progress(), dict[str, ListedFile](), list[ListedFile](), None
    for arrived, limit, remembered, begins in runs:
        floor = progress.floor
        new = [file for file in arrived if file.path not in there]
        there |= {file.path: file for file in new}
        waiting = progress.unread_files(there.values())
        assert (waiting.changed, waiting.half) == ([], half)
        files = sorted([*waiting.new, *waiting.late], key=lambda file: file.entry)
        assert all(file in files for file in new if file.entry[:2] > floor)
        order = [*([half] if half else []), *files]
        for file in order[:limit]:
            before, progress = progress, progress.after(file, remembered)
            assert at_or_past(KIND.to_position(progress), KIND.to_position(before))
            assert progress.floor >= before.floor
            read.append(file)
        if begins and order[limit:]:
            half = order[limit]
            progress = progress.within(half, progress.rows + 1, remembered)
        elif limit:
            half = None
        unread_files = progress.unread_files(there.values())
        assert sorted([*unread_files.new, *unread_files.late], key=lambda file: file.entry) == [
            file for file in order[limit:] if file is not half
        ]
        assert len(progress.recent) <= len(there)
    assert len({file.path for file in read}) == len(read) == progress.files


def test_remembered_entries_stay_bounded_if_files_are_begun_in_one_run_and_ended_in_the_next() -> None:
    progress, files = Progress(), [ListedFile(0, str(number), 1, number) for number in range(50)]
    for ended, begun in pairwise(files):
        progress = progress.after(ended, 3).within(begun, 1, 3)
        assert len(progress.recent) <= 3


def test_begun_file_that_changed_and_was_restored_counts_as_unread() -> None:
    begun, late = ListedFile(0, "a", 1, 10), ListedFile(0, "late", 1, 5)
    progress = Progress().within(begun, 2, 3)
    for step in (progress.after(late, 3), progress.within(late, 1, 3)):
        assert begun in step.unread_files([begun, late]).new


@given(FILES, st.integers(1, 3), st.integers(1, 9))
def test_stored_position_round_trips(files: list[ListedFile], remembered: int, rows: int) -> None:
    progress = Progress()
    for file in sorted(files, key=lambda file: file.entry):
        begun = progress.within(file, rows, remembered)
        for step in (begun, begun.after(file, remembered)):
            position = KIND.to_position(step)
            assert KIND.from_position(storable(Watermark({"": position})).positions[""]) == step
            assert at_or_past(position, KIND.to_position(progress))
            assert not at_or_past(KIND.to_position(progress), position)
            progress = step
        assert len(progress.recent) <= remembered


@given(FILES, st.integers(1, 9))
def test_half_read_file_is_always_remembered(files: list[ListedFile], rows: int) -> None:
    progress = Progress()
    for file in sorted(files, key=lambda file: file.path):
        begun = progress.within(file, rows, 1)
        assert begun.half == file.entry.name
        assert begun.unread_files([file]).half == file
        progress = progress.after(file, 1)


def test_changed_file_is_reported_until_it_is_read_again() -> None:
    old, new = ListedFile(0, "a", 1, 10), ListedFile(0, "a", 2, 20)
    for remembered in (1, 5):
        for first, second in ((old, new), (new, old)):
            progress = Progress().after(ListedFile(0, "b", 1, 15), remembered).after(first, remembered)
            if first.entry in progress.recent:
                assert progress.unread_files([second]).changed == [second]
            again = progress.after(second, remembered).unread_files([second])
            assert [*again.new, *again.late, *again.changed] == []


def test_files_of_equal_times_are_ordered_by_name() -> None:
    files = [ListedFile(0, str(number), 1, 5) for number in range(50)]
    progress = Progress()
    for file in sorted(files, key=lambda file: file.entry)[:30]:
        progress = progress.after(file, 3)
    assert len(progress.unread_files(files).new) == 20
