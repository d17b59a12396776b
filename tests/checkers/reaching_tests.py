"""The unit tests that reach given lines of the product, and the quickest of them.

They are measured once, on the sound product. A mutant is first tried on the tests that reach its changed lines. Most
mutants are noticed by the first of these, and the order of tests affects nothing but the time.
"""

from __future__ import annotations

import ast
import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from pathlib import Path
from typing import Any

import coverage
import msgspec
import pytest

from tests.checkers.mutant_sources import MODULES, Mutant, path_of

_OF_A_LINE = 12
_OF_A_MUTANT = 24


class Reached(msgspec.Struct, frozen=True):
    """Tests by path below the repository and line, the quickest few of each line first."""

    tests: Mapping[str, Mapping[int, Sequence[str]]]

    def first(self, mutant: Mutant, originals: Mapping[str, str]) -> list[str]:
        """Return the tests to try a mutant on first, quickest first. `originals`: its modules before the change."""
        seconds: dict[str, int] = {}
        for path, source in mutant.sources.items():
            tests_of_file = self.tests.get(path, {})
            for line in changed_lines(originals[path], source):
                for place, test in enumerate(tests_of_file.get(line, ())):
                    seconds[test] = min(place, seconds.get(test, place))
        return sorted(seconds, key=lambda test: seconds[test])[:_OF_A_MUTANT]


class Recorder:
    """A pytest plugin that records which test reaches which line of the mutated modules."""

    def __init__(self, root: Path) -> None:
        self._root, self._took = root, dict[str, float]()
        paths = [str(root / path_of(module)) for module in dict.fromkeys(MODULES)]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=paths)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Start with the first test; earlier imports belong to none."""
        if not self._took:
            self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        began = time.process_time()
        result = yield
        self._took[item.nodeid] = time.process_time() - began
        return result

    def reached(self) -> Reached:
        """Return the recorded lines."""
        self._coverage.stop()
        data, tests = self._coverage.get_data(), {}
        for path in data.measured_files():
            by_line = data.contexts_by_lineno(path)
            tests[str(Path(path).relative_to(self._root))] = {
                line: nsmallest(_OF_A_LINE, filter(self._took.__contains__, names), key=self._took.__getitem__)
                for line, names in by_line.items()
            }
        return Reached(tests)


def changed_lines(before: str, after: str) -> set[int]:
    """Return the lines of `before` that `after` changes or removes.

    They come with all lines of the innermost simple statements, or heads of compound ones, that they belong to. For
    insertions the lines around them are returned.
    """
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    changed = set[int]()
    for kind, begin, end, _, _ in matcher.get_opcodes():
        if kind != "equal":
            changed |= set(range(begin + 1, end + 1)) or {begin, begin + 1}
    return changed.union(*(lines for lines in _statements(before) if not lines.isdisjoint(changed)))


def _statements(source: str) -> Iterator[frozenset[int]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            body: list[Any] = getattr(node, "body", None) or [None]
            end = body[0].lineno - 1 if isinstance(body[0], ast.stmt) else node.end_lineno or node.lineno
            yield frozenset(range(node.lineno, max(end, node.lineno) + 1))
