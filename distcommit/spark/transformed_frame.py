"""Application of `source.transform`, and the proof that it is row-wise, by Spark's plan.

Each row of a row-wise result comes from one row, with that row's watermark value. So the transform and the selection of
a range can be exchanged, and only such results may be published by ranges.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from distcommit.core.errors import DistcommitError, SourceError, kind_of, reason_text
from distcommit.sources.spark.source import SparkSource
from distcommit.sources.spark.transform import DATASET, FrameTransform
from distcommit.spark.job_failure_texts import failure_text
from distcommit.spark.task_launch import over_connect

_ONE_AT_A_TIME = threading.Lock()
"""Lock for one transform at a time: views belong to the session, and functions need not be thread-safe."""
_ROW_WISE = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View", "Repartition", "Sort"})
"""Operators of which each output row comes from one input row, or that only order rows."""
_GENERATORS = frozenset({"Explode", "PosExplode", "Inline"})
_FUNCTIONS_OF_ONE_ROW = frozenset({100, 101})
"""Evaluation types of Python functions that are called once for each row. Others get batches of rows."""


def transformed(read: DataFrame, source: SparkSource, urn: str) -> DataFrame:
    """Return the result of the transform; the rows as read if there is none.

    Raises:
        SourceError: if the transform fails, its result cannot be published, or the source has a watermark and the
            transform is not proved row-wise.
        ConfigurationError: if the function can't be imported.
    """
    transform = source.transform
    if transform is None:
        return read
    if over_connect(read.sparkSession):
        raise _invalid(urn, transform, "a session that is not of Spark Connect", "Spark Connect", "unset spark.remote")
    mark = f"distcommit_{uuid.uuid4().hex}"
    with _ONE_AT_A_TIME:
        result = _applied(read.alias(mark), source, transform, urn)
    names = result.columns
    if not names or (command := str(_plan(result).nodeName())).endswith("Command") or command == "CommandResult":
        raise _invalid(urn, transform, "a query", "a command", "return the result of a query")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        todo = "select or rename the columns individually"
        raise _invalid(urn, transform, "columns of different names", f"several {', '.join(repeated)}", todo)
    if column := source.watermark:
        if operation := _first_not_row_wise(result, mark):
            expected = "operations on single rows, such as select, filter and explode"
            todo = (
                "leave the operation out, or remove source.watermark and row_wise and set sink.publish to replace, so"
                " that each run publishes the whole result"
            )
            raise _invalid(urn, transform, expected, f"operation {operation}", todo)
        if not _keeps(column, read, result):
            found = "a computed column of that name" if column in names else f"columns {', '.join(names)}"
            todo = "select the column itself, and compute under other names"
            raise _invalid(urn, transform, f"the dataset's own column {column!r}", found, todo)
    return result


def _applied(read: DataFrame, source: SparkSource, transform: FrameTransform, urn: str) -> DataFrame:
    try:
        result = _queried(read, source, transform) if transform.sql else transform.load()(read)
    except (DistcommitError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit: it ends the dataset, not the run
        cause = source.without_password(f"{kind_of(error)}: {failure_text(str(error))}", urn)
        raise not_published(urn, transform, "a result", reason_text(cause, 1000)) from error
    if not isinstance(result, DataFrame) or result.isStreaming:
        found = "a streaming DataFrame" if isinstance(result, DataFrame) else f"a {type(result).__name__}"
        raise _invalid(urn, transform, "a DataFrame", found, "return a DataFrame from the function")
    return result


def _queried(read: DataFrame, source: SparkSource, transform: FrameTransform) -> DataFrame:
    spark, views = read.sparkSession, list[str]()
    try:
        spark._jsparkSession.sessionState().sqlParser().parseQuery(transform.query)  # spark.sql executes commands
        for name, frame in [(DATASET, read), *_tables(spark, source, transform)]:
            frame.createTempView(name)
            views.append(name)
        return spark.sql(transform.query)
    finally:
        for name in views:
            spark.catalog.dropTempView(name)


def _tables(spark: SparkSession, source: SparkSource, transform: FrameTransform) -> Iterator[tuple[str, DataFrame]]:
    for name, own in transform.tables.items():
        yield name, spark.read.format(source.format).options(**source.options_with(own)).load()


def _first_not_row_wise(result: DataFrame, mark: str) -> str:
    plan = _plan(result)
    if not plan.subqueriesAll().isEmpty():
        return "a subquery in an expression"
    if not plan.deterministic():
        return "with another result at each execution, such as rand"
    while (name := str(plan.nodeName())) in _ROW_WISE:
        if name == "SubqueryAlias" and plan.alias() == mark:
            return ""
        if name == "Generate" and (generator := str(plan.generator().nodeName())) not in _GENERATORS:
            return generator
        if name == "Repartition" and plan.shuffle():
            return name
        if any(map(_takes_several_rows, _elements(plan.expressions()))):
            return "of a pandas or Arrow function, which receives several rows at once"
        plan = plan.child()
    return name


def _takes_several_rows(expression: Any) -> bool:
    if str(expression.nodeName()) == "PythonUDF" and expression.evalType() not in _FUNCTIONS_OF_ONE_ROW:
        return True
    return any(map(_takes_several_rows, _elements(expression.children())))


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.size()))


def _keeps(column: str, read: DataFrame, result: DataFrame) -> bool:
    ids = [
        {str(attribute.exprId()) for attribute in _elements(_plan(frame).output()) if attribute.name() == column}
        for frame in (read, result)
    ]
    return bool(ids[0]) and ids[0] == ids[1]


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def not_published(urn: str, transform: FrameTransform, expected: str, found: str) -> SourceError:
    return _invalid(urn, transform, expected, found, f"correct {transform.name}")


def _invalid(urn: str, transform: FrameTransform, expected: str, found: str, todo: str) -> SourceError:
    return SourceError(
        f"the result of {transform.name} cannot be published",
        id="SOURCE_SETTINGS_INVALID",
        dataset=urn,
        expected=expected,
        found=found,
        todo=todo,
    )
