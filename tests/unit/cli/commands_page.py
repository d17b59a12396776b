"""conf/docs/reference/commands.md: the help of every command. `python -m tests.unit.cli.commands_page` writes it."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

import distcommit
from distcommit.cli.main import app, commands_by_name

PAGE = Path(distcommit.__file__).parents[1] / "conf" / "docs" / "reference" / "commands.md"
_BEGIN = """# Commands

The help of each command. This page is generated: `python -m tests.unit.cli.commands_page` writes it.

"""


def commands_page() -> str:
    """Return the page: the list of commands, exit codes, terms, and the help of each command."""
    parts = ["--help", "--exit-codes", "--terms"]
    sections = [_section(part, part) for part in parts]
    sections += [_section(name, f"{name} --help") for name in commands_by_name()]
    return _BEGIN + "\n".join(sections)


def _section(name: str, words: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, words.split(), prog_name="distcommit")
    assert result.exit_code == 0, result.output
    lines = (line.rstrip() for line in result.output.strip("\n").splitlines())
    return f"## distcommit {name}\n\n```\n{chr(10).join(lines)}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
