"""Programs of child processes, which run in isolated interpreters without importing this package first."""

from __future__ import annotations

from importlib.abc import InspectLoader
from importlib.util import find_spec
from types import ModuleType

from distcommit.core.errors import ConfigurationError


def program_text(module: ModuleType) -> str:
    """Return the source text of a module, which may be in a folder or in an archive.

    Raises:
        ConfigurationError: if only the compiled module is installed.
    """
    name = module.__name__
    spec = find_spec(name)
    source = spec.loader.get_source(name) if spec is not None and isinstance(spec.loader, InspectLoader) else None
    if source is None:
        raise ConfigurationError(
            "the source text of a module is missing",
            expected=f"the source of {name}",
            found="no source text",
            todo="install distcommit with its source files",
        )
    return source
