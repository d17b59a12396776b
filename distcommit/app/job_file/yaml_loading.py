"""Load YAML, reject duplicate keys, and find the line and column of a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.composer import ComposerError

from distcommit.core.support.setting_errors import Key


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in lines:
                problem = f"the key {key.value!r} is already in line {lines[key.tag, key.value]}"
                raise ComposerError(problem=problem, problem_mark=key.start_mark)
            lines[key.tag, key.value] = key.start_mark.line + 1
        return node


def load_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        yaml.YAMLError: if the text is not YAML, or a mapping has a key twice, of which YAML's own reader takes the
        last.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # of a date without such a day, or of a thousand brackets
        raise yaml.YAMLError(str(error)) from error


class Positions:
    """The line and column of each key of a YAML text."""

    def __init__(self, text: str) -> None:
        try:
            self._root = yaml.compose(text, yaml.SafeLoader)
        except (yaml.YAMLError, ValueError, RecursionError):
            self._root = None

    def of(self, keys: Key) -> tuple[int, int]:
        """Return the line and column of a key, from 1. For a missing key, return those of the nearest section around
        it.

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
