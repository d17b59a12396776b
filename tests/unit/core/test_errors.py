"""Errors can be pickled between processes and name a remedy."""

from __future__ import annotations

import pickle

import pytest

from distcommit.core import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DistcommitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_pickles_with_its_parts(kind: type[errors.DistcommitError]) -> None:
    error = kind("it failed", expected="a", found="b", todo="c", dataset="d", epoch=3)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "it failed [dataset=d, epoch=3]; expected a; found b. To do: c"


LONG = errors.StaleStoreError(
    "it failed", found="x" * 3000, todo="`distcommit store rebuild` repairs it. Then run again"
)


@pytest.mark.parametrize("limit", [250, 500, 1000, 2000])
def test_truncated_text_keeps_its_remedy_whole(limit: int) -> None:
    cut = errors.plain_text(LONG, limit)
    assert len(cut) <= limit
    assert cut.startswith("it failed; found xxx")
    assert cut.endswith("x.... To do: `distcommit store rebuild` repairs it. Then run again")
    assert errors.plain_text(cut, limit) == cut


def test_remedy_that_takes_most_of_the_space_is_truncated_itself() -> None:
    assert errors.plain_text(errors.LostError("it failed", todo="y" * 500), 300).startswith("it failed. To do: yyy")
    assert len(errors.plain_text(errors.LostError("it failed", todo="y" * 500), 300)) == 300
