"""Commands on the pages exist with their options.

Commands that need neither Spark nor a server are run as printed, on a job on the local disk. Those that need Spark run
in `tests/integration/first_use/test_commands_with_spark.py`.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

import distcommit
from distcommit.cli.main import app, commands_by_name
from distcommit.engine.driver.run import run
from distcommit.engine.driver.run_recorder import recorded_run
from distcommit.stores.logs.fencing import end_run
from tests.unit.app.reading.test_snapshot_reader import Place
from tests.unit.cli.commands_page import PAGE, commands_page
from tests.unit.test_pages import PAGES

ROOT = Path(distcommit.__file__).parents[1]
COMMANDS = commands_by_name()
READS_ONLY = {
    *("status", "runs", "audit", "check", "migrate compare", "store log", "store verify"),
    *("dataset list", "dataset steps", "dataset files", "report"),
}
CHANGES = {
    *("dataset release", "dataset quarantine", "dataset set-watermark"),
    *("cancel", "schedule pause", "schedule resume", "schedule trigger"),
    *("init", "migrate convert-gobblin", "migrate import-watermarks", "store rebucket", "store rebuild"),
}
WITHOUT_SPARK = {"recover", "dataset compact", "dataset expire", "store repair"}  # with --dry-run
WITH_SPARK = {"run", "dataset reprocess", *WITHOUT_SPARK}
RUN_ELSEWHERE = {
    "demo": "tests/integration/first_use/test_demo.py",
    "schedule serve": "tests/integration/runs/test_serve.py",
    "ui": "tests/unit/cli/web/test_ui.py",
}
"""Tests of the commands that do not end, or need an extra of their own."""
NEW_FILES = {"init", "migrate convert-gobblin"}  # commands that write a new job file
NAMES = ["d1", "items", "orders"]


def codes(page: Path) -> Iterator[str]:
    """Yield the lines of code blocks, and inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline_text = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += [line.strip() for line in re.findall(r"^    .*$", inline_text, re.MULTILINE)]
    yield from (part.strip() for line in lines for part in line.split("&&"))
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", inline_text))


def shown(begin: str) -> list[str]:
    """Return all commands on the pages that begin with `begin`, without their explanations."""
    commands = {
        re.split(r"\s{2,}|\s#\s", code.removeprefix(".venv/bin/"))[0]: None
        for page in PAGES
        for code in codes(page)
        if re.match(begin, code.removeprefix(".venv/bin/"))
    }
    return list(commands)


def examples_of_help() -> list[str]:
    """The first example of each command, from the page of commands."""
    return re.findall(r"^Example: (distcommit [a-z].*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


SHOWN = list(dict.fromkeys([*examples_of_help(), *shown(r"distcommit [a-z]")]))
WHOLE = [text for text in SHOWN if ".yaml" in text and "..." not in text]


def test_page_of_commands_is_up_to_date_and_has_each_command() -> None:
    assert PAGE.read_text(encoding="utf-8") == commands_page(), "python -m tests.unit.cli.commands_page writes it"
    assert {split(text)[0] for text in examples_of_help()} == set(COMMANDS)
    assert len(WHOLE) > 30


@pytest.mark.parametrize("text", SHOWN)
def test_command_on_a_page_exists_with_its_options(text: str) -> None:
    name, *words = split(text)
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options | {"--help"}
    if text in WHOLE:
        COMMANDS[name].make_context(name, [filled(word) for word in words])


def split(text: str) -> list[str]:
    """Return the name and the words of a printed command; a group alone means its first command."""
    first, *words = shlex.split(text)[1:]
    if first in COMMANDS or not words:
        return [next(name for name in COMMANDS if name == first or name.startswith(f"{first} ")), *words]
    return [f"{first} {words[0]}", *words[1:]]


def filled(word: str) -> str:
    """Replace a placeholder of a command by a value."""
    numbers = {"60": "0", "N": "2", "EPOCH": "2", "1234": "2", "SECONDS": "0", "HOW": "retry", "POSITIONS": '{"0": 3}'}
    if word in numbers:
        return numbers[word]
    if word.startswith("--") and "=" in word:
        option, _, value = word.partition("=")
        return f"{option}={filled(value)}"
    return "d1" if re.fullmatch(r"[A-Z@]+", word) and word != "FILE" else word


class Job:
    """A job with three datasets and one run, and files that its commands may name."""

    def __init__(self, folder: Path) -> None:
        place = Place(folder)
        settings = place.begin(dict.fromkeys(NAMES, 3))
        with recorded_run(settings, "run", "somebody") as recorder:
            assert run(place.launch, settings, observer=recorder).succeeded
        end_run(settings.store, settings.epoch, clean=True)
        self.folder = folder
        self.file = self._write("job.yaml", "output")
        self._write("OTHER.yaml", "output")
        (folder / "positions.csv").write_text("dataset,partition,next_offset\nd1,0,3\n")
        (folder / "FILE.pull").write_text("job.name=j\nkafka.brokers=b:9092\nsource.class=KafkaSimpleSource\n")

    def _write(self, name: str, output: str) -> Path:
        file = self.folder / name
        file.write_text(
            "job: job\nsource: {type: python, class: 'tests.integration.parts.named_source:NamedSource',"
            f" options: {{names: {NAMES}}}}}\npaths: {{store: store, staging: staging, output: {output}}}\n"
            "commit: {durability: none}\nschedule: {interval_s: 30}\n"
        )
        return file

    def put(self, word: str) -> str:
        """Replace a file name of the pages by a file of this job."""
        file_names = {
            "OTHER.yaml": "OTHER.yaml",
            "FILE.pull": "FILE.pull",
            "FILE": "positions.csv",
            "positions.csv": "positions.csv",
            "POSITIONS.csv": "positions.csv",
            "export.json": "positions.csv",
        }
        if word.endswith((".svg", ".html")):
            return str(self.folder / word)
        if word in file_names or word == "later-positions.csv":
            return str(self.folder / file_names.get(word, "positions.csv"))
        return str(self.file) if word.endswith(".yaml") else filled(word)

    def run(self, text: str) -> None:
        """Run the command as printed. It may report the state of this job, but neither a usage error nor an unexpected
        one."""
        name, *shown = split(text)
        words = [*name.split(), *(self.put(word) for word in shown)]
        if name in NEW_FILES:
            words = [str(self.folder / "new.yaml") if word.endswith(".yaml") else word for word in words]
        words = [word.replace("d1", "another") for word in words] if "--new" in words else words
        words = [word.replace('{"":', '{"0":') for word in words]  # this source names its partitions in another way
        result = CliRunner().invoke(app, words)
        assert result.exit_code in (0, 1, 3, 5, 6), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output


def is_complete(text: str) -> bool:
    """Return whether the command names neither a setting of another source nor one to be filled in."""
    return not re.search(r"--kafka-group|--set[ =](paths\.|source\.|SETTING)|kafka-to-s3", text)


def runs_here(text: str) -> bool:
    name, *words = split(text)
    return is_complete(text) and (name in READS_ONLY | CHANGES or (name in WITHOUT_SPARK and "--dry-run" in words))


HERE = [text for text in WHOLE if runs_here(text)]
ON_SPARK = [text for text in WHOLE if not runs_here(text) and is_complete(text) and split(text)[0] in WITH_SPARK]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


@pytest.mark.parametrize("text", [text for text in HERE if split(text)[0] not in CHANGES])
def test_inspection_command_on_a_page_runs_as_printed(job: Job, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.folder)  # a report without a name goes into the current folder
    job.run(text)


@pytest.mark.parametrize("text", [text for text in HERE if split(text)[0] in CHANGES])
def test_operator_command_on_a_page_runs_as_printed(tmp_path: Path, text: str) -> None:
    Job(tmp_path).run(text)


def test_pages_show_each_command_that_runs_without_spark() -> None:
    assert {split(text)[0] for text in HERE} == READS_ONLY | CHANGES | WITHOUT_SPARK


def test_each_command_of_the_pages_is_run_by_a_test() -> None:
    assert {split(text)[0] for text in ON_SPARK} == WITH_SPARK
    left = [text for text in WHOLE if text not in HERE and text not in ON_SPARK and is_complete(text)]
    assert {split(text)[0] for text in left} <= set(RUN_ELSEWHERE)
    assert {split(text)[0] for text in SHOWN} == READS_ONLY | CHANGES | WITH_SPARK | set(RUN_ELSEWHERE)
    assert [test for test in RUN_ELSEWHERE.values() if not (ROOT / test).is_file()] == []


APPS = ("benchmarks", "tests.checkers", "tests.cluster")


def commands_in(module: str) -> dict[str, Any]:
    place = "benchmarks.cli" if module == "benchmarks" else f"{module}.__main__"
    return dict(getattr(typer.main.get_command(import_module(place).app), "commands"))  # noqa: B009


@pytest.mark.thorough
@pytest.mark.parametrize("text", shown(r"python -m [a-z]"))
def test_module_command_on_a_page_exists_with_its_arguments(text: str) -> None:
    module, *words = text.partition("-m ")[2].split()
    assert find_spec(module), text
    if module == "tests.servers":
        assert set(words[0].split("|")) <= set(import_module("tests.servers.__main__").SERVERS)
    elif module in APPS and words and not words[0].isupper():
        for name in words[0].split("|"):
            arguments = [word for word in words[1:] if word not in (">", "FILE")]
            commands_in(module)[name].make_context(name, ["FILE" if word == "FILES" else word for word in arguments])


@pytest.mark.parametrize(
    ("page", "begin", "module", "others"),
    [
        ("benchmarks/README.md", "| question | it asks |", "benchmarks", {"report"}),
        ("tests/README.md", "`python -m tests.checkers` followed", "tests.checkers", set[str]()),
    ],
)
def test_page_lists_each_command_of_a_module(page: str, begin: str, module: str, others: set[str]) -> None:
    table = (ROOT / page).read_text(encoding="utf-8").partition(begin)[2].partition("| --- | --- |\n")[2]
    listed = re.findall(r"^\| `([\w-]+)` \|", table.partition("\n\n")[0], re.MULTILINE)
    assert set(listed) == set(commands_in(module)) - others


def test_extras_named_on_pages_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = (page.read_text(encoding="utf-8") for page in [*PAGES, *(ROOT / "conf" / "jobs").glob("*.yaml")])
    named = {
        extra
        for text in texts
        for extras in re.findall(r"(?:distcommit|-e '\.)\[([\w,-]+)\]", text)
        for extra in extras.split(",")
    }
    assert named <= set(project["optional-dependencies"])
    assert len(named) > 8


def blocks_of_python() -> list[tuple[Path, str]]:
    blocks_by_page = (
        (page, re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)) for page in PAGES
    )
    return [(page, block) for page, blocks in blocks_by_page for block in blocks]


@pytest.mark.parametrize(("page", "block"), blocks_of_python(), ids=lambda part: getattr(part, "name", ""))
def test_imports_of_python_blocks_on_pages_exist(page: Path, block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("distcommit"):
            module = import_module(str(node.module))
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


def test_python_block_of_the_page_for_readers_runs(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.folder)
    block = next(
        block for page, block in blocks_of_python() if page.name == "readers.md"
    )  # the Spark blocks run in the tests with Spark
    lines = [line for line in block.splitlines() if "branch=" not in line and "spark" not in line]
    shown: dict[str, Any] = {}
    for line in lines:
        exec(line.replace("/data/", f"{job.folder}/"), shown)
    assert len(lines) > 10
    assert set(shown["snapshot"].datasets) == {"orders"}
    assert shown["snapshot"].to_arrow().num_rows == 3


def test_commands_in_comments_of_job_files_exist() -> None:
    for file in (ROOT / "conf" / "jobs").glob("*.yaml"):
        for name, path in re.findall(r"distcommit ([a-z -]+) (conf/\S+\.yaml)", file.read_text(encoding="utf-8")):
            assert name in COMMANDS
            assert (ROOT / path).is_file()


def test_options_named_alone_on_pages_exist() -> None:
    group: Any = typer.main.get_command(app)
    commands = [group, *COMMANDS.values()]
    existing = {option for command in commands for parameter in command.params for option in parameter.opts}
    for module in APPS:
        module_commands = commands_in(module).values()
        existing |= {option for command in module_commands for parameter in command.params for option in parameter.opts}
    named = {
        word.partition("=")[0] for page in PAGES for code in codes(page) for word in code.split() if code[:2] == "--"
    }
    options = {word for word in named if word.startswith("--")}
    assert options <= existing | {"--help"}
    assert len(options) > 15
