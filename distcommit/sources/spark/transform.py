"""Settings of the transform of the source `spark`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from distcommit.core.support.settings_model import SettingError, SettingsModel, errors_of, rule
from distcommit.custom_class import load_function
from distcommit.fs.secret_files import check_secret_files, with_secret_files_in
from distcommit.sources.query_checks import Query, tables_in

DATASET = "source"
"""Table name of the dataset's rows in SQL."""
_DIALECT = "spark"
_TABLE_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
Option = bool | int | float | str


class FrameTransform(SettingsModel):
    """SQL or a function. A run publishes its result instead of the dataset's rows.

    Attributes:
        sql: one `SELECT` (or `WITH`) in Spark's SQL. The table `source` has the rows of the dataset.
        function: `package.module:function`. The driver calls it with the DataFrame of a dataset and with `options`. It
            must return a DataFrame.
        options: keyword arguments of the function. Values may be `${file:PATH}`.
        tables: further tables of the SQL by name, with reader options that override `source.options`. Each run reads
            them as a whole. The SQL may also name tables of Spark's catalogs. A `password` may be `${file:PATH}`.
        row_wise: whether each row of the result is computed from one row of the dataset alone, and has that row's
            unchanged value of `source.watermark`. Required with `source.watermark`. Before a run reads a dataset, it
            verifies this in Spark's plan of the result.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    sql: str = ""
    function: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    tables: dict[str, dict[str, Option]] = Field(default_factory=dict)
    row_wise: bool = False

    _check_files = field_validator("options", "tables")(check_secret_files)

    @rule
    def _has_one_text(self) -> Iterator[SettingError]:
        if bool(self.sql) is bool(self.function):
            yield SettingError("must have either sql or function")
        if self.options and not self.function:
            yield SettingError("must not be set without function", "options")
        if self.tables and not self.sql:
            yield SettingError(
                "must not be set without sql", "tables", remedy="read the tables in the function: frame.sparkSession"
            )

    @rule
    def _has_table_names(self) -> Iterator[SettingError]:
        for name in self.tables:
            if not _TABLE_NAME.fullmatch(name) or name.lower() == DATASET:
                yield SettingError(
                    f"must be a name of letters, digits and _, and not {DATASET}", "tables", name, actual=name
                )

    @rule
    def _is_query_of_dataset(self) -> Iterator[SettingError]:
        if not self.sql:
            return
        if "${" in self.sql:
            yield SettingError(
                "must not contain ${, because Spark would replace it by a setting whose changes are not recognized",
                "sql",
                remedy="if it is an environment variable of the job file, set the variable",
            )
        yield from (errors := [*errors_of(lambda: Query.of(self.sql, _DIALECT), "sql")])
        if errors:
            return
        tables = [".".join(filter(None, table)) for table in tables_in(self.sql, _DIALECT)]
        if DATASET not in map(str.lower, tables):
            yield SettingError(f"must read the table {DATASET}, which has the rows of the dataset", "sql")
        elif self.row_wise and len(tables) > 1:
            yield SettingError(
                f"must read only the table {DATASET}, and only once, with row_wise",
                "sql",
                actual=", ".join(tables),
                remedy="remove source.watermark and row_wise, and set sink.publish to replace",
            )

    @property
    def name(self) -> str:
        """Name of the applied setting, for messages."""
        return f"source.transform.{'sql' if self.sql else 'function'}"

    @property
    def identity(self) -> list[Any]:
        """The settings that may change a row-wise result."""
        return [Query.of(self.sql, _DIALECT).id] if self.sql else [self.function, self.options]

    @property
    def query(self) -> str:
        """The SQL without outer comments and `;`."""
        return Query.of(self.sql, _DIALECT).body

    def load(self) -> Callable[[Any], Any]:
        """Import the function with its options.

        Raises:
            ConfigurationError: if a secret file is unreadable, or the function can't be imported or called.
        """
        options = with_secret_files_in(self.options)
        return partial(load_function("source.transform", self.function, options), **options)
