"""Generator of conf/docs/reference/errors.md from the error catalogue.

Run `python -m tests.unit.core.errors_page`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import distcommit
from distcommit.core.error_catalogue import ERRORS, ErrorEntry
from distcommit.core.errors import DistcommitError

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "errors.md"
_HEAD = """\
# Errors

One entry for each kind of error, by the id that its text begins with. This page is made from the catalogue in
`distcommit.core.error_catalogue`: `python -m tests.unit.core.errors_page` writes it. A text names the dataset, the path
and the actual value, and ends with a remedy (`To do: …`). That remedy is more specific than the action here. Errors of
Python and of libraries begin with their class name instead.

With `--json` a command that fails prints `{"error": {"id", "title", "text", "cause", "action", "command",
"exit_code"}}`. In Python, `error.id` is the id. The class of an error determines its [exit
code](../operate/exit-codes.md). [Problems](problems.md) that `status` reports have ids of their own.
"""


def classes_by_name() -> dict[str, type[BaseException]]:
    """Return the error classes that entries name. The last two are defined beside their sources."""
    for module in ("plan_error", "sql.plan_table"):
        import_module(f"distcommit.sources.{module}")
    return {"Exception": Exception, **{kind.__name__: kind for kind in _own_classes(DistcommitError)}}


def errors_page() -> str:
    """Return the reference page of all errors, as Markdown."""
    classes = classes_by_name()
    return _HEAD + "".join(_section(entry, classes[entry.error]) for entry in ERRORS.values())


def _own_classes(kind: type[DistcommitError]) -> list[type[DistcommitError]]:
    below = [child for child in kind.__subclasses__() if child.__module__.startswith("distcommit.")]
    return [kind, *(item for child in below for item in _own_classes(child))]


def _section(entry: ErrorEntry, kind: type[BaseException]) -> str:
    rows = {
        "Cause": entry.cause,
        "Impact": entry.impact,
        "Action": entry.action,
        "Command": f"`distcommit {entry.command}`" if entry.command else "",
        "Class": f"`{entry.error}`, exit code {getattr(kind, 'exit_code', 1)}",
    }
    return f"\n## `{entry.id}`\n\n**{entry.title}.**\n\n" + "".join(
        f"- *{name}*: {text}\n" for name, text in rows.items() if text
    )


if __name__ == "__main__":
    PAGE.write_text(errors_page(), encoding="utf-8")
