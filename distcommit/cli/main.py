"""The command line `distcommit`: its groups and commands, which `cli.commands` implements."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import completion_init  # type: ignore[attr-defined]
from typer.core import TyperGroup

from distcommit.cli.command_decorators import show_version
from distcommit.cli.command_help import TERMS, HelpedCommand, write_example
from distcommit.cli.exit_codes import EXIT_CODES
from distcommit.cli.renamed_commands import reject_renamed
from distcommit.cli.terminal import Terminal
from distcommit.core.errors import ConfigurationError


class _Entry(NamedTuple):
    """A command: `module:function` below `cli.commands`, and the arguments of its example."""

    module: str
    example: str


class _Entries(NamedTuple):
    help: str
    example: str
    commands: Mapping[str, _Entry]


_DATASET = {
    "list": _Entry("inspection:datasets", "job.yaml --status quarantined --limit 0"),
    "steps": _Entry("inspection:steps", "job.yaml orders"),
    "files": _Entry("dataset_files:files", "job.yaml --dataset orders"),
    "release": _Entry("release_and_set_watermark:release", "job.yaml orders retry"),
    "quarantine": _Entry("release_and_set_watermark:quarantine", "job.yaml orders"),
    "set-watermark": _Entry("release_and_set_watermark:set_watermark", "job.yaml orders '{\"0\": 1200}'"),
    "reprocess": _Entry("running:reprocess", "job.yaml orders"),
    "expire": _Entry("running:expire", "job.yaml --older-than 90d --dry-run"),
    "compact": _Entry("running:compact", "job.yaml orders --dry-run"),
}
_STORE = {
    "verify": _Entry("audit_and_verify:verify_store", "job.yaml"),
    "repair": _Entry("running:repair", "job.yaml --dry-run"),
    "rebuild": _Entry("migration:rebuild", "job.yaml --dry-run"),
    "log": _Entry("audit_and_verify:log", "job.yaml --dataset orders"),
    "rebucket": _Entry("migration:rebucket", "job.yaml --buckets 256"),
}
_SCHEDULE = {
    "serve": _Entry("serving:serve_jobs", "jobs/ --metrics 9464"),
    "pause": _Entry("serving:pause", "job.yaml"),
    "resume": _Entry("serving:resume", "job.yaml"),
    "trigger": _Entry("serving:trigger", "job.yaml --wait 60"),
}
_MIGRATE = {
    "import-watermarks": _Entry("migration:import_watermarks", "job.yaml --from positions.csv"),
    "compare": _Entry("audit_and_verify:compare", "job.yaml OTHER.yaml"),
    "convert-gobblin": _Entry("migration:convert_gobblin", "FILE.pull -o job.yaml"),
}
COMMANDS: Mapping[str, _Entry | _Entries] = {
    "init": _Entry("check_and_init:init", "job.yaml --source kafka --sink files"),
    "check": _Entry("check_and_init:check", "job.yaml --plan"),
    "run": _Entry("running:run", "job.yaml"),
    "recover": _Entry("running:recover", "job.yaml --dry-run"),
    "cancel": _Entry("running:cancel", "job.yaml"),
    "status": _Entry("inspection:status", "job.yaml"),
    "runs": _Entry("inspection:runs", "job.yaml --limit 5"),
    "report": _Entry("report_and_ui:report", "job.yaml -o report.html"),
    "ui": _Entry("report_and_ui:ui", "job.yaml --port 8080"),
    "audit": _Entry("audit_and_verify:audit", "job.yaml --deep"),
    "demo": _Entry("demo:demo", ""),
    "dataset": _Entries("Inspect, release, reprocess, expire and compact datasets.", "list job.yaml", _DATASET),
    "store": _Entries("Verify, repair and rebuild the store of a job.", "verify job.yaml", _STORE),
    "schedule": _Entries("Run jobs by their schedules; pause, resume and trigger one.", "serve jobs/", _SCHEDULE),
    "migrate": _Entries("Move a job here from another system.", "convert-gobblin FILE.pull -o job.yaml", _MIGRATE),
}
"""All commands and groups, in the order in which help lists them."""


class _Commands(Mapping[str, Any]):
    """The commands of a group by name. A command's module is imported on first access, because imports take time."""

    def __init__(self, entries: Mapping[str, _Entry | _Entries], prefix: str) -> None:
        self._entries, self._prefix = entries, prefix
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            entry = self._entries[name]
            line = f"{self._prefix} {name}"
            if isinstance(entry, _Entries):
                group = _Group(name=name, help=entry.help, no_args_is_help=True, rich_markup_mode=None)
                self._built[name] = group.with_commands(entry.commands, line, f"{line} {entry.example}")
            else:
                self._built[name] = _built(name, entry, line)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _built(name: str, entry: _Entry, line: str) -> HelpedCommand:
    module, _, function = entry.module.partition(":")
    only = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    act = getattr(import_module(f"distcommit.cli.commands.{module}"), function)
    only.command(name, cls=HelpedCommand)(act)
    command: Any = typer.main.get_command(only)
    command.example = f"{line} {entry.example}".rstrip()
    return command  # type: ignore[no-any-return]


class _Group(TyperGroup):
    """A group of commands. Its help begins with an example and lists each command in one line."""

    example = ""

    def with_commands(self, entries: Mapping[str, _Entry | _Entries], line: str, example: str) -> _Group:
        """Set the commands. `line`: the words that precede a command's name in a shell."""
        self.commands: Any = _Commands(entries, line)
        self.example = example
        return self

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_example(formatter, self.example)
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(self.commands[name])) for name in self.commands])
        names = (option for parameter in self.get_params(ctx) for option in parameter.opts if option.startswith("--"))
        formatter.write(f"\nOptions: {', '.join(names)}\n")


def commands_by_name() -> Mapping[str, Any]:
    """Return all commands by their full names, such as `dataset list`."""
    group: Any = typer.main.get_command(app)
    results: dict[str, Any] = {}
    for name, command in group.commands.items():
        below = command.commands.items() if isinstance(command, _Group) else ()
        results |= {f"{name} {item}": within for item, within in below} or {name: command}
    return results


def _first_line(command: Any) -> str:
    return str(command.help).partition("\n")[0]


class _Main(_Group):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.with_commands(COMMANDS, "distcommit", "distcommit run job.yaml")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        reject_renamed(args)
        return super().resolve_command(ctx, args)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        words = tuple(args)
        with _usage_errors(words):
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors(ctx.meta[_WORDS]):
            return super().invoke(ctx)


_WORDS = "distcommit.words"
"""Key of the words of the command line in a context's `meta`."""
_UsageError: Any = typer.BadParameter.__base__


@contextmanager
def _usage_errors(words: Sequence[str]) -> Iterator[None]:
    """Report an unknown command or option, or a missing argument, as the error ARGUMENT_INVALID."""
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # prints the help of a group
            raise
        text = error.format_message().replace(". Did you mean", "; did you mean").rstrip(".?")
        with Terminal(as_json="--json" in words, verbose=False).command():
            raise ConfigurationError(
                text[:1].lower() + text[1:],
                id="ARGUMENT_INVALID",
                todo=f"read `{error.ctx.command_path if error.ctx else 'distcommit'} --help`",
            ) from None


app = typer.Typer(
    name="distcommit",
    cls=_Main,
    help="Ingest datasets exactly once into files, tables and topics, on Spark.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show(text: str) -> Any:
    def show(requested: bool) -> None:
        if requested:
            sys.stdout.write(text)
            raise typer.Exit

    return show


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=show_version)] = False,
    exit_codes: Annotated[bool, typer.Option("--exit-codes", is_eager=True, callback=_show(EXIT_CODES))] = False,
    terms: Annotated[bool, typer.Option("--terms", is_eager=True, callback=_show(TERMS))] = False,
) -> None: ...


def main() -> None:
    """Run the command line, or complete one for a shell. The caller handles signals and output streams."""
    if "_DISTCOMMIT_COMPLETE" in os.environ:
        completion_init()
    app(prog_name="distcommit")
