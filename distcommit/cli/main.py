"""The command `distcommit`: thin over `distcommit.app`. What each command does stands in the modules beside this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.options import say_version

_FUNCTIONS = {
    "run": "running:run",
    "recover": "running:recover",
    "gc": "running:gc",
    "cancel": "running:cancel",
    "explain": "running:explain",
    "reprocess": "running:reprocess",
    "retain": "running:retain",
    "repair": "running:repair",
    "serve": "serving:serve_jobs",
    "pause": "serving:pause",
    "resume": "serving:resume",
    "trigger": "serving:trigger",
    "status": "looking:status",
    "datasets": "looking:datasets",
    "steps": "looking:steps",
    "runs": "looking:runs",
    "report": "reporting:report",
    "ui": "reporting:ui",
    "files": "readers:files",
    "log": "checking:log",
    "verify-store": "checking:verify_store",
    "audit": "checking:audit",
    "release": "by_hand:release",
    "quarantine": "by_hand:quarantine",
    "set-watermark": "by_hand:set_watermark",
    "import-watermarks": "moving:import_watermarks",
    "compare": "checking:compare",
    "convert-gobblin": "moving:convert_gobblin",
    "rebuild": "moving:rebuild",
    "rebucket": "moving:rebucket",
    "demo": "demonstrating:demo",
}
"""By command, in the order in which help lists them: the module beside this, and the function in it."""
_USAGES = {"release": "[--all] [OPTIONS]"}


class _Commands(Mapping[str, Any]):
    """Commands by their names. Each is imported as it is asked for: who looks at a job waits for what looks alone."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            module, _, function = _FUNCTIONS[name].partition(":")
            alone = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
            act = getattr(import_module(f"distcommit.cli.{module}"), function)
            alone.command(name, options_metavar=_USAGES.get(name, "[OPTIONS]"))(act)
            self._known[name] = typer.main.get_command(alone)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_FUNCTIONS)

    def __len__(self) -> int:
        return len(_FUNCTIONS)


class _Group(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()


app = typer.Typer(
    name="distcommit",
    cls=_Group,
    help="Exactly-once ingestion of many datasets, from Kafka to files, on Spark.",
    epilog=EXIT_CODES,
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
