"""YAML without duplicate keys: YAML's own reader silently takes the last of two."""

from __future__ import annotations

from collections import Counter
from typing import Any

import yaml
from yaml.composer import ComposerError


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for (_, name), count in Counter(keys).items():
            if count > 1:
                raise ComposerError(problem=f"the key {name!r} is there {count} times", problem_mark=node.start_mark)
        return node


def load_yaml(text: str) -> Any:
    """Return the content of a YAML text.

    Raises:
        yaml.YAMLError: if it is not YAML, or a mapping has a key twice.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # of a date without such a day, or of a thousand brackets
        raise yaml.YAMLError(str(error)) from error
