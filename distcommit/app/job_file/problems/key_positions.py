"""The line and column of each key of a job file, for the positions of problems."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from distcommit.core.support.settings_model import Key


class KeyPositions:
    """The line and column of each key of a YAML text."""

    def __init__(self, text: str) -> None:
        try:
            self._root = yaml.compose(text, yaml.SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError):
            self._root = None

    def of(self, keys: Key) -> tuple[int, int]:
        """Return the line and column of a key, from 1. For a missing key, return the position of the nearest enclosing
        section.

        An item of a list is at its value, the document itself at its first key. Both numbers are 0 if the text is not
        YAML.
        """
        node = self._root
        if node is None:
            return 0, 0
        mark = node.start_mark
        for key in keys:
            below = _child(node, key)
            if below is None:
                break
            node, mark = below
        return mark.line + 1, mark.column + 1


def _child(node: yaml.Node, key: str | int) -> tuple[yaml.Node, yaml.Mark] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((value, name.start_mark) for name, value in _entries(node) if name.value == str(key)), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and 0 <= key < len(node.value):
        return node.value[key], node.value[key].start_mark
    return None


def _entries(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield the keys of a mapping with their values. Own keys come before those that `<<` merges."""
    merged: list[yaml.Node] = []
    for name, value in node.value:
        if name.tag == "tag:yaml.org,2002:merge":
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        else:
            yield name, value
    for below in merged:
        yield from _entries(below) if isinstance(below, yaml.MappingNode) else ()
