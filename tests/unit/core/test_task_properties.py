"""Limits and types of the properties of a task state."""

from __future__ import annotations

from typing import Any

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.core.task_properties import MOST_KEY_BYTES, MOST_PROPERTIES, MOST_TOTAL_BYTES, with_properties


def test_properties_of_several_parts_are_kept_apart_with_their_types() -> None:
    own = {"text": "ü", "number": -(2**63), "ratio": 0.5, "flag": True}
    both = with_properties(with_properties({}, "source", own), "lake.avro", {"text": 1})
    assert both == {"source": own, "lake.avro": {"text": 1}}
    assert [type(value) for value in both["source"].values()] == [str, int, float, bool]
    assert with_properties(both, "json", {}) is both


@pytest.mark.parametrize(
    ("properties", "expected", "found"),
    [
        ({f"key-{n}": n for n in range(MOST_PROPERTIES + 1)}, f"at most {MOST_PROPERTIES} properties", "52"),
        ({"ü" * (MOST_KEY_BYTES // 2 + 1): 1}, f"a key of at most {MOST_KEY_BYTES} bytes", "102 bytes"),
        ({"large": "x" * (MOST_TOTAL_BYTES + 1)}, "at most 4,096 bytes of properties", "4,097 bytes"),
        ({f"key-{n}": "x" * 200 for n in range(20)}, "at most 4,096 bytes of properties", " bytes"),
        ({"list": [1]}, "a text, a boolean", "list [1]"),
        ({"none": None}, "a text, a boolean", "NoneType None"),
        ({"large": 2**63}, "an integer of 64 bits", "int 9223372036854775808"),
        ({"not a number": float("nan")}, "a finite number", "float nan"),
        ({"text": "\ud800"}, "a text of valid Unicode", "surrogates not allowed"),
        ({"\ud800": 1}, "a key of valid Unicode", "surrogates not allowed"),
        ({"": 1}, "at least one character", "str"),
        ({1: 1}, "a key that is a text", "int"),
    ],
)
def test_property_beyond_a_limit_raises_an_error_that_names_part_key_limit_and_size(
    properties: dict[Any, Any], expected: str, found: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        with_properties({"source": {"etag": "a"}}, "lake.avro", properties)
    error = raised.value
    assert (error.id, error.ids["construct"]) == ("TASK_PROPERTY_INVALID", "lake.avro")
    assert "property" in error.ids
    assert expected in error.expected
    assert found in error.found


def test_limits_apply_to_the_parts_of_a_work_unit_together() -> None:
    before = with_properties({}, "source", {f"key-{n}": n for n in range(MOST_PROPERTIES)})
    with pytest.raises(ConfigurationError, match="51"):
        with_properties(before, "json", {"one": 1})
