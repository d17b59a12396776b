"""Options of custom classes are checked against the types of their parameters before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pydantic import BaseModel

from distcommit.core.errors import ConfigurationError
from distcommit.custom_class import create_custom

if TYPE_CHECKING:
    from fractions import Fraction


class Part:
    """A custom class with typed parameters."""


class Plain(Part):
    def __init__(self, most: int, words: Sequence[str] = (), since: date | None = None, **others: Any) -> None:
        self.given = most, words, since, others


@dataclass
class Fields(Part):
    most: int = 1


class Model(BaseModel, Part):
    most: int = 1


class Untyped(Part):
    def __init__(self, most) -> None:  # type: ignore[no-untyped-def]
        self.most = most


class UnresolvableType(Part):
    """A custom class with a parameter whose type can't be imported at run time."""

    def __init__(self, most: Fraction) -> None:
        self.most = most


class Quacks(Protocol):
    def quack(self) -> None: ...


class Odd(Part):
    """A custom class with a parameter type that no job file value has."""

    def __init__(self, most: Quacks) -> None:
        self.most = most


def make(name: str, **options: Any) -> Any:
    return create_custom(Part, "part", f"{__name__}:{name}", options)


def test_options_match_the_parameter_types() -> None:
    plain = make("Plain", most=3, words=["a"], since="2024-02-29", more=[1])
    assert plain.given == (3, ["a"], date(2024, 2, 29), {"more": [1]})
    assert (make("Fields", most=2).most, make("Model", most=2).most) == (2, 2)
    assert [make(name, most="x").most for name in ("Untyped", "UnresolvableType", "Odd")] == ["x"] * 3


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("Plain", {"most": "a lot"}, r"option most is a str: Input should be a valid integer"),
        ("Plain", {"most": 1, "words": [1]}, r"option words is a list: Input should be a valid string"),
        ("Plain", {"most": 1, "since": "soon"}, r"option since is a str: Input should be a valid date"),
        ("Plain", {}, "missing 1 required positional argument: 'most'"),
        ("Fields", {"most": None}, "option most is a NoneType: Input should be a valid integer"),
        ("Fields", {"least": 1}, "unexpected keyword argument 'least'"),
        ("Model", {"most": "a lot"}, "Input should be a valid integer"),
    ],
)
def test_option_of_the_wrong_type_is_reported_with_its_class(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"the part's class cannot be used .*{name}.*{problem}"):
        make(name, **options)
