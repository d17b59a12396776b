"""Processes that are killed before given lines of a file, or of all files of a folder, in threads too."""

from __future__ import annotations

import threading
from pathlib import Path

from distcommit.testing.contracts.killed_processes import fork_server
from tests.unit.testing.killed_processes import two_lines


def note_in_a_thread(folder: Path) -> None:
    thread = threading.Thread(target=two_lines.note, args=(folder,))
    thread.start()
    thread.join()


def noted(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_process_ends_before_a_line_of_a_thread_in_another_file_of_the_folder(tmp_path: Path) -> None:
    file = str(Path(two_lines.__file__))
    folder = str(Path(file).parent)
    with fork_server([]) as processes:
        assert processes.lines_of([file], note_in_a_thread, tmp_path) == 2
        assert processes.lines_of([folder], note_in_a_thread, tmp_path) == 5
        assert processes.lines_of([str(Path(folder).parent)], note_in_a_thread, tmp_path) == 0, "only its own files"
        for line, remaining in ((1, []), (2, ["first"])):
            place = tmp_path / str(line)
            place.mkdir()
            assert processes.killed_at(line, [file], note_in_a_thread, place)
            assert noted(place) == remaining
        assert processes.killed_at(5, [folder], note_in_a_thread, tmp_path)
        assert not processes.killed_at(6, [folder], note_in_a_thread, tmp_path)
