"""Help of commands: an example first. Each page fits a screen of 24 lines and 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

TERMS = """\
  dataset      data that is read and published as one, such as a topic
  watermark    position up to which a dataset is published; reading resumes there
  epoch        fencing number of a run, greater than that of every earlier run
  staged       written to a folder that readers do not read
  sealed       staged, and recorded in the log with the steps that publish it
  replay       finishing what earlier runs sealed; every run does this first
  bucket       share of the datasets; each bucket has one commit log
  snapshot     state of all datasets at one moment, as readers see it
  quarantined  skipped by runs until `distcommit dataset release`
"""


class HelpedCommand(TyperCommand):
    """A command whose help begins with an example."""

    example = ""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_example(formatter, self.example)
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the command."""
        arguments = (parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument")
        return ["[OPTIONS]", *(_usage(argument) for argument in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters: Sequence[Any] = self.get_params(ctx)
        shown = [parameter for parameter in parameters if not parameter.hidden]
        arguments = [(_metavar(item), item.help) for item in shown if item.param_type_name == "argument"]
        options = [(_names(item), _help(item)) for item in shown if item.param_type_name == "option"]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def write_example(formatter: Any, example: str) -> None:
    """Write the first lines of help: an example that can be copied into a shell."""
    formatter.write(f"Example: {example}\n\n")


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _names(option: Any) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {_metavar(option)}"


def _help(option: Any) -> str:
    if option.required:
        return f"{option.help} [required]"
    default = option.default if option.show_default else None
    return f"{option.help} [default: {default}]" if default else str(option.help)


def _usage(argument: Any) -> str:
    return _metavar(argument) if argument.required else f"[{_metavar(argument)}]"
