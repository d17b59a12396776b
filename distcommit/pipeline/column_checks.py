"""Checks that constructs accept the columns before them, as far as columns are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distcommit.constructs.construct_settings import CheckerSettings, ConverterSettings
from distcommit.core.errors import ConfigurationError, split_remedy
from distcommit.core.interfaces.constructs import Converter, RowChecker, TaskChecker
from distcommit.schemas.known_columns import Columns


def columns_behind(construct: Converter | RowChecker, columns: Columns) -> Columns:
    """Return the known columns behind a construct.

    Raises:
        ConfigurationError: if it does not accept the columns before it.
    """
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
    """Raise ConfigurationError if a checker cannot check these columns. Custom checkers are asked only if all are
    known.
    """
    if isinstance(checker, CheckerSettings):
        checker.check_columns(columns)
    elif (schema := columns.full_schema()) is not None:
        checker.check_schema(schema)


@contextmanager
def constructs_fit(name: str, before: str) -> Iterator[None]:
    """Name two constructs in a ConfigurationError of the block: `name`, and the one before it. An error of a class or a
    package that can't be imported stays as it is.
    """
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
