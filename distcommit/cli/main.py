"""The command `distcommit`: thin over `distcommit.app`. `cli.commands` has what each command does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from distcommit.cli.help_texts import EXIT_CODES, WORDS
from distcommit.cli.options import say_version

_FUNCTIONS = {
    "Run a job": {
        "run": "running:run",
        "recover": "running:recover",
        "cancel": "running:cancel",
        "reprocess": "running:reprocess",
        "gc": "running:gc",
        "retain": "running:retain",
        "demo": "demo:demo",
    },
    "Run jobs by their schedules": {
        "serve": "serving:serve_jobs",
        "pause": "serving:pause",
        "resume": "serving:resume",
        "trigger": "serving:trigger",
    },
    "Look at a job, also beside a live run": {
        "status": "inspection:status",
        "datasets": "inspection:datasets",
        "steps": "inspection:steps",
        "runs": "inspection:runs",
        "report": "reporting:report",
        "ui": "reporting:ui",
        "files": "readers:files",
        "log": "checking:log",
        "explain": "running:explain",
    },
    "Decide what becomes of a dataset": {
        "release": "operator_actions:release",
        "quarantine": "operator_actions:quarantine",
        "set-watermark": "operator_actions:set_watermark",
    },
    "Check and mend": {
        "audit": "checking:audit",
        "verify-store": "checking:verify_store",
        "repair": "running:repair",
        "rebuild": "migration:rebuild",
    },
    "Come from elsewhere, or move on": {
        "import-watermarks": "migration:import_watermarks",
        "compare": "checking:compare",
        "convert-gobblin": "migration:convert_gobblin",
        "rebucket": "migration:rebucket",
    },
}
"""Commands by what they are for, in the order in which help lists them: the module of `cli.commands`, and the function
in it."""
_PLACES = {name: place for commands in _FUNCTIONS.values() for name, place in commands.items()}
_PANELS = {name: panel for panel, commands in _FUNCTIONS.items() for name in commands}
_USAGES = {"release": "[--all] [OPTIONS]"}


class _Commands(Mapping[str, Any]):
    """Commands by their names. Each is imported as it is asked for: who looks at a job waits for what looks alone."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            module, _, function = _PLACES[name].partition(":")
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
            act = getattr(import_module(f"distcommit.cli.commands.{module}"), function)
            usage, panel = _USAGES.get(name, "[OPTIONS]"), _PANELS[name]
            alone.command(name, options_metavar=usage, rich_help_panel=panel)(act)
            self._known[name] = typer.main.get_command(alone)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()


app = typer.Typer(
    name="distcommit",
    cls=_Group,
    help="Exactly-once ingestion of many datasets, such as Kafka topics, to files, tables and topics, on Spark.",
    epilog=f"{WORDS}\n\n{EXIT_CODES}",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", is_eager=True, callback=say_version)
    ] = False,
) -> None:
    """The options of the command itself."""


def main() -> None:
    """The console entry point."""
    app(prog_name="distcommit")
