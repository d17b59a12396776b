"""Lines of settings in a job file."""

from __future__ import annotations

from pathlib import Path

import yaml


class Positions:
    """The lines of a job file's settings.

    Args:
        path: the file. If it is missing or not YAML, it has no lines.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._root = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
        except (OSError, ValueError, yaml.YAMLError):
            self._root = None

    def line_of(self, setting: str) -> int:
        """Return the line of a dotted key, or of the nearest section around it, from 1; 0 if none is in the file."""
        node, line = self._root, 0
        for key in setting.split("."):
            if isinstance(node, yaml.MappingNode):
                found = next(((name, value) for name, value in node.value if name.value == key), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
                node = node.value[int(key)]
                line = node.start_mark.line + 1
            else:
                break
        return line
