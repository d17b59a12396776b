"""Errors cross process borders and say what to do."""

from __future__ import annotations

import pickle

import pytest

from distcommit.model import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DistcommitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_pickles_with_its_parts(kind: type[errors.DistcommitError]) -> None:
    error = kind("it failed", expected="a", found="b", todo="c", dataset="d", epoch=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "it failed [dataset=d, epoch=3]; expected a; found b. To do: c"
