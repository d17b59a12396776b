"""Any exception of a custom class before records are read becomes an error that names the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from distcommit.constructs.custom_constructs import PythonConverter, PythonFork, PythonRowChecker, PythonTaskChecker
from distcommit.core.errors import ConfigurationError, DistcommitError, TransientError
from distcommit.core.interfaces.constructs import Converter, ForkOperator, RowChecker, TaskChecker
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.sinks.python.sink import PythonSink
from distcommit.sources.python.source import PythonSource
from distcommit.testing.fakes.convert_batch import unit_of

ROWS = pa.schema([("id", pa.int64())])
ERRORS = [KeyError("price"), RuntimeError("no"), SystemExit(3), BaseException("a panic")]
RAISED: list[BaseException] = []
"""The error that the hostile classes raise."""


@contextmanager
def raising(error: BaseException) -> Iterator[None]:
    RAISED.append(error)
    try:
        yield
    finally:
        RAISED.pop()


def _raises(*_: object, **__: object) -> Any:
    raise RAISED[-1]


def _hostile(kind: type, *methods: str, **more: object) -> Any:
    """Return a minimal subclass whose given methods raise."""
    abstract = dict.fromkeys(kind.__abstractmethods__, lambda self, *args, **options: None)  # type: ignore[attr-defined]
    return type(f"Hostile{kind.__name__}", (kind,), {**abstract, **dict.fromkeys(methods, _raises), **more})


HostileConverter = _hostile(Converter, "convert_schema", "begin_work_unit")
HostileRowChecker = _hostile(RowChecker, "check_schema", "describe")
HostileTaskChecker = _hostile(TaskChecker, "check_schema", "begin")
HostileFork = _hostile(ForkOperator, "accepts", "check_branches")
HostileSink = _hostile(Sink, "check_schema", "required_columns", "announce", name="hostile")
HostileSource = _hostile(Source, batch_schema=property(_raises), position_problems=_raises)
HostileToMake = _hostile(Converter, "__init__")


def instance(kind: Any, name: str) -> Any:
    return kind.model_validate({"type": "python", "class": f"{__name__}:{name}"})


CALLS: list[tuple[str, str, Callable[[], object]]] = [
    ("converter", "HostileConverter", lambda: instance(PythonConverter, "HostileConverter").convert_schema(ROWS, None)),
    (
        "converter",
        "HostileConverter",
        lambda: instance(PythonConverter, "HostileConverter").begin_work_unit(unit_of("d")),
    ),
    ("converter", "HostileToMake", lambda: instance(PythonConverter, "HostileToMake").instance),
    ("row checker", "HostileRowChecker", lambda: instance(PythonRowChecker, "HostileRowChecker").check_schema(ROWS)),
    ("row checker", "HostileRowChecker", lambda: instance(PythonRowChecker, "HostileRowChecker").describe()),
    (
        "task checker",
        "HostileTaskChecker",
        lambda: instance(PythonTaskChecker, "HostileTaskChecker").check_schema(ROWS),
    ),
    ("task checker", "HostileTaskChecker", lambda: instance(PythonTaskChecker, "HostileTaskChecker").begin()),
    ("fork", "HostileFork", lambda: instance(PythonFork, "HostileFork").accepts("b", ROWS)),
    ("fork", "HostileFork", lambda: instance(PythonFork, "HostileFork").check_branches(["b"])),
    ("sink", "HostileSink", lambda: instance(PythonSink, "HostileSink").check_schema(ROWS)),
    ("sink", "HostileSink", lambda: instance(PythonSink, "HostileSink").required_columns()),
    ("sink", "HostileSink", lambda: instance(PythonSink, "HostileSink").announce(["d"], ROWS, "r")),
    ("source", "HostileSource", lambda: instance(PythonSource, "HostileSource").batch_schema),
    ("source", "HostileSource", lambda: instance(PythonSource, "HostileSource").position_problems({})),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("section", "name", "call"), CALLS, ids=[f"{n}-{i}" for i, (_, n, _) in enumerate(CALLS)])
def test_exception_of_a_custom_class_names_the_class(
    section: str, name: str, call: Callable[[], object], error: BaseException
) -> None:
    with raising(error), pytest.raises(ConfigurationError, match=f"the {section}'s class") as caught:
        call()
    assert caught.value.ids["class_name"] == f"{__name__}:{name}"
    assert type(error).__name__ in caught.value.found


@pytest.mark.parametrize("error", [ConnectionRefusedError("no server"), TimeoutError("too slow")])
def test_connection_error_of_a_custom_class_is_transient(error: OSError) -> None:
    with raising(error), pytest.raises(TransientError, match="the source's class"):
        _ = instance(PythonSource, "HostileSource").batch_schema


def test_typed_error_of_a_custom_class_is_raised_unchanged() -> None:
    with (
        raising(DistcommitError("no such column")),
        pytest.raises(DistcommitError, match=r"^OPERATION_FAILED: no such column$"),
    ):
        instance(PythonConverter, "HostileConverter").convert_schema(ROWS, None)
