"""Checks that constructs accept the known columns before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.constructs.construct_settings import CheckerSettings, ConverterSettings
from distcommit.core.errors import ConfigurationError, split_remedy
from distcommit.core.interfaces.constructs import Converter, RowChecker, TaskChecker
from distcommit.schemas.known_columns import Columns


def columns_behind(construct: Converter | RowChecker, columns: Columns) -> Columns:
    """Return known columns behind a construct; raises ConfigurationError if it rejects the columns before it."""
    match construct:
        case ConverterSettings():
            return construct.convert_columns(columns)
        case Converter():
            schema = columns.full_schema()
            return Columns.of(None if schema is None else construct.convert_schema(schema, None))
        case RowChecker():
            check_columns(construct, columns)
    return columns


def check_columns(checker: RowChecker | TaskChecker, columns: Columns) -> None:
    """Raise ConfigurationError if columns can't be checked. Custom checkers are asked only if all columns are known."""
    if isinstance(checker, CheckerSettings):
        checker.check_columns(columns)
    elif (schema := columns.full_schema()) is not None:
        checker.check_schema(schema)


@contextmanager
def constructs_fit(name: str, before: str) -> Iterator[None]:
    """Add both constructs to a ConfigurationError, unless a class or package is missing."""
    try:
        yield
    except ConfigurationError as error:
        if error.id in ("PACKAGE_MISSING", "CUSTOM_CLASS_INVALID"):
            raise
        raise ConfigurationError(
            "two constructs do not fit together",
            id="CONSTRUCT_SETTINGS_INVALID",
            expected=f"records that {name} can take, from {before}",
            found=str(error),
            todo=split_remedy(str(error))[1] or "correct one of the two",
        ) from error
