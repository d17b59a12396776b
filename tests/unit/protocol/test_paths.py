"""Paths of steps are judged by their text alone."""

from __future__ import annotations

import itertools

import pytest

from distcommit.model.errors import ConfigurationError
from distcommit.protocol.paths import check_all_relative, check_relative


def test_every_short_path_is_judged_by_its_components() -> None:
    """The quick answer for many paths is the answer that looking at each component gives."""
    for length in range(8):
        for letters in itertools.product("a./\0", repeat=length):
            path = "".join(letters)
            if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
                for check in (check_relative, lambda path: check_all_relative(["b", path])):
                    with pytest.raises(ConfigurationError):
                        check(path)
            else:
                assert check_relative(path) == path
                check_all_relative(["b", path])
