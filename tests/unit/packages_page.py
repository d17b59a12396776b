"""Generator of conf/docs/reference/packages.md from the docstrings of packages.

Run `python -m tests.unit.packages_page`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import distcommit

ROOT = Path(distcommit.__file__).parent
PAGE = ROOT.parent / "conf" / "docs" / "reference" / "packages.md"
_HEAD = """\
# Packages

Every package of the code, with its contents and the module to read first. This page is made from the docstrings of the
packages: `python -m tests.unit.packages_page` writes it. [The tour](../design/tour.md) has the layers.

```bash
ls distcommit/stores
```

| package | contents | start at |
| --- | --- | --- |
"""


def packages_page() -> str:
    """Return the reference page of all packages, as Markdown."""
    return _HEAD + "".join(map(_row, packages()))


def packages() -> list[Path]:
    """Return the folders of all packages below `distcommit`."""
    return sorted(path.parent for path in ROOT.rglob("__init__.py") if path.parent != ROOT)


def _row(folder: Path) -> str:
    name, text = folder.relative_to(ROOT).as_posix(), docstring_of(folder)
    return f"| [`{name}`](../../../distcommit/{name}) | {_first_sentence(text)} | {start_of(text)} |\n"


def docstring_of(folder: Path) -> str:
    """Return a package's docstring in one line."""
    module = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return " ".join((ast.get_docstring(module) or "").split())


def start_of(text: str) -> str:
    """Return the modules to read first that a package's docstring names; empty if it names none."""
    return _first_sentence(text.partition("Start reading at ")[2])


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.) ", text)[0].removesuffix(".")


if __name__ == "__main__":
    PAGE.write_text(packages_page(), encoding="utf-8")
