"""Generator of the lists in conf/docs/reference/python-api.md from signatures and docstrings.

Run `python -m tests.unit.api_page`. The lines `::: NAME` of a section, which the site replaces by whole docstrings,
determine its list.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from typing import Any

import distcommit

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "python-api.md"
_NAMES = re.compile(r"\n\n+(?:^ *- .*\n)*\n*((?:^::: .*\n)+)", re.MULTILINE)


def api_page(page: str) -> str:
    """Return the page with the list of each section up to date."""
    return _NAMES.sub(lambda found: "\n\n" + "".join(_items(found[1])) + "\n" + found[1], page)


def _items(directives: str) -> Iterator[str]:
    for name in re.findall(r"(\w+)$", directives, re.MULTILINE):
        part = getattr(distcommit, name)
        yield f"- {_shown(name, part)}\n"
        if not inspect.isfunction(part):
            yield from (f"    - {_shown(name, method)}\n" for name, method in _public(part))


def _public(part: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public functions of a module, or those of a class and of its bases that are not on the page."""
    for owner in inspect.getmro(part) if inspect.isclass(part) else (part,):
        if owner is not part and (
            owner.__name__ in distcommit.__all__ or not owner.__module__.startswith("distcommit")
        ):
            continue
        module = getattr(owner, "__module__", owner.__name__)
        for name, value in vars(owner).items():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and function.__module__ == module and function.__doc__ and name[0] != "_":
                yield name, getattr(part, name)


def _shown(name: str, part: Any) -> str:
    text = " ".join((part.__doc__ or "").split())
    sentence = re.match(r".*?\.(?= |$)", text)
    return f"`{name}{_parameters(part)}`: {sentence[0] if sentence else text}"


def _parameters(part: Any) -> str:
    if inspect.ismodule(part) or isinstance(part, EnumType):
        return ""
    try:
        parameters = inspect.signature(part).parameters.values()
    except ValueError:  # its constructor is that of a class in C, such as an exception or a mapping
        return ""
    shown = (str(one.replace(annotation=one.empty)) for one in parameters if one.name != "self")
    return f"({', '.join(re.sub(r'=<.*>', '=...', one) for one in shown)})"


if __name__ == "__main__":
    PAGE.write_text(api_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
