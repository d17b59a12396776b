"""An error of two constructs that do not fit together keeps the remedy of its cause."""

from __future__ import annotations

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.pipeline.column_checks import constructs_fit


def _raised(error: ConfigurationError) -> str:
    with pytest.raises(ConfigurationError) as raised, constructs_fit("sql", "cast"):
        raise error
    return str(raised.value)


@pytest.mark.parametrize("id_", ["PACKAGE_MISSING", "CUSTOM_CLASS_INVALID"])
def test_construct_that_cannot_be_imported_is_not_reported_as_one_that_does_not_fit(id_: str) -> None:
    assert _raised(ConfigurationError("it can't be imported", id=id_)) == f"{id_}: it can't be imported"


@pytest.mark.parametrize(("todo", "printed"), [("name column b", "name column b"), ("", "correct one of the two")])
def test_remedy_of_the_cause_precedes_the_general_one(todo: str, printed: str) -> None:
    assert _raised(ConfigurationError("column a is missing", id="CONSTRUCT_SETTINGS_INVALID", todo=todo)) == (
        "CONSTRUCT_SETTINGS_INVALID: two constructs do not fit together; expected records that sql can take, from cast;"
        f" found CONSTRUCT_SETTINGS_INVALID: column a is missing. To do: {printed}"
    )
