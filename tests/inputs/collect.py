"""All cases: `CASES` of each module of this folder."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import tests.inputs
from tests.inputs.case import Case


def modules() -> Iterator[str]:
    """Yield the names of the modules that hold cases, sorted."""
    for module in sorted(pkgutil.iter_modules(tests.inputs.__path__), key=lambda module: module.name):
        if module.name not in {"__main__", "case", "collect"} and not module.name.startswith("test_"):
            yield f"tests.inputs.{module.name}"


def cases() -> list[Case]:
    """Return every case, sorted by module, in the order of its module."""
    return [case for name in modules() for case in importlib.import_module(name).CASES]
