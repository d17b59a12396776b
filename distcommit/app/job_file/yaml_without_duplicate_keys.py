"""YAML without duplicate keys, of which PyYAML silently takes the last."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import ComposerError


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
        yaml.YAMLError: if the text is not YAML, or a mapping has a key twice.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # of a date without such a day, or of a thousand brackets
        raise yaml.YAMLError(str(error)) from error
