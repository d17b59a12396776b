"""Small wrong changes to the product, made from its syntax trees, one at a time.

Dropped storage operations, neighbouring ones in the wrong order, and inverted comparisons: each is a hazard that some
test must notice.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from tests.checkers.operations import Source, mentioned

STORES = (
    *(
        f"logs.{name}"
        for name in (
            "commit_step_store",
            "fencing",
            "commit_log",
            "log_view",
            "segment_format",
            "step_store_sequence_end",
        )
    ),
    *(
        f"state.{name}"
        for name in (
            "file_system_probe",
            "job_lock",
            "job_store",
            "run_plans",
            "plan_and_task_state_encoding",
            "task_states",
        )
    ),
    *("history.retention", "history.run_records", "operator.operator_actions"),
)
PROTOCOL = (
    *("log_state", "record_effects", "next_log_record", "path_checks", "seal_decision", "record_validity"),
    *(f"paths.{name}" for name in ("output", "shared_names", "staging", "store", "temporary_and_probes")),
)
STEPS = (
    "step_execution",
    "guarded_folders",
    "bulk_rename",
    "step_registry",
    "rename_step",
    "sink_step",
    "watermark_step",
)
ENGINE = (
    *(
        f"committing.{name}"
        for name in (
            "delete_probes_and_task_output",
            "bucket_committer",
            "record_commit_failures",
            "poll_sealable_datasets",
        )
    ),
    *(
        "committing.recover",
        "committing.build_commit_sequence",
        "reading.ingest",
        "reading.task_plan",
        "planning.plan_partition",
    ),
    *("driver.launch_ingest_job", "driver.run"),
)
_COMPARED = (*(f"protocol.{name}" for name in PROTOCOL), *(f"stores.{name}" for name in STORES))
_STORING = (
    *(f"stores.{name}" for name in STORES),
    *(f"steps.{name}" for name in STEPS),
    *("fs.local_disk.local_file_system", "stores.folders.staging"),
    *(f"engine.{name}" for name in ENGINE),
)
MODULES = (*(f"protocol.{name}" for name in PROTOCOL), *_STORING)

_ANY, _LOG, _SELF = r".*", r"(.*log.*|self)$", r"(self|committer|BucketCommitter.*)$"
_NEUTRAL: dict[str, tuple[str, str]] = {
    # the names that it is called on, and its replacement
    **dict.fromkeys(("sync", "sync_tree", "rename", "make_folders", "link", "unlink", "fsync"), (_ANY, "None")),
    **dict.fromkeys(("fsync_folder", "syncfs", "mkdir", "rmdir", "rename_noreplace", "_sync_folder"), (_ANY, "None")),
    **dict.fromkeys(("put_if_absent", "make_folder", "delete", "delete_folder"), (_ANY, "True")),
    **dict.fromkeys(("make_durable", "truncate", "sweep_temporary"), (_ANY, "None")),
    **dict.fromkeys(("_sync_puts", "_sync_name", "_give_up"), (_ANY, "None")),
    "MakeDurable": ("", "None"),
    "PutIfAbsent": ("", "True"),
    **dict.fromkeys(("withdraw", "undo", "_move_again", "_remove"), (_ANY, "None")),
    **dict.fromkeys(("prepare_run", "prepare_bucket", "put_manifest", "record_ingest_ended"), ("", "None")),
    **dict.fromkeys(
        ("remove_empty", "remove_empty_bucket", "remove_empty_epoch", "expire_history", "_sync"), ("", "None")
    ),
    **dict.fromkeys(("require_fence", "check_relative", "check_names", "_act"), ("", "None")),
    **dict.fromkeys(("_drop", "_clean_up", "publish", "replay", "commit_ready"), (_SELF, "None")),
    **dict.fromkeys(("_commit", "_put_states", "_note_failure"), (_SELF, "None")),
    **dict.fromkeys(("_close", "_seal"), (_SELF, "{receiver}._log.refresh()")),
    **dict.fromkeys(("sweep_epoch", "remove_attempts", "delete_tree", "delete_entry"), ("", "0")),
    "write": (r"writer$", "None"),
    **dict.fromkeys(("make_room", "move_folders", "move_files", "_fail", "after_failed_rename"), (_ANY, "None")),
    "make": (r"(target|self)$", "None"),
    "make_all": (_ANY, "{{}}"),
    "rename_folder": (_ANY, "False"),
    "check": (r"(self\._sources|self\._folders|GuardedFolders.*)$", "None"),
    "create": (r".*log.*$", "None"),
    "checkpoint": (r".*log.*$", "None"),
    "settle": (_LOG, "{receiver}.refresh()"),
    "fence_bucket": ("", "{argument}.refresh()"),
    "put_all_if_absent": (_ANY, "[True] * len({argument})"),
    "write_plans": ("", "{{}}"),
    "append": (r".*_writer$", '"dropped.parquet"'),
    "_put": (_SELF, "True"),
    "decide_run": ("", "True"),
}
_OPPOSITE = {
    **{ast.Lt: ("<", ">="), ast.GtE: (">=", "<"), ast.Gt: (">", "<="), ast.LtE: ("<=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is")},
    **{ast.In: ("in", "not in"), ast.NotIn: ("not in", "in")},
}
_BOUNDARY = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong product.

    `id` names it by module, function, kind of change and operation, not by their position. `sources` are whole files,
    by path below the repository.
    """

    id: str
    description: str
    sources: Mapping[str, str]
    diff: str

    @property
    def is_named(self) -> bool:
        """Return whether a developer wrote it."""
        return self.id.split(":")[2] == "named"


def path_of(module: str) -> str:
    """Return the file of a module, below the repository."""
    return f"distcommit/{module.replace('.', '/')}.py"


@cache
def generated_mutants(root: Path) -> tuple[Mutant, ...]:
    """Return all distinct mutants of the product below `root`, in the order of modules and lines.

    Generating them takes seconds; they are cached, as the modules do not change during a process.
    """
    mutants: list[Mutant] = []
    for module in dict.fromkeys(MODULES):
        place = _Module(module, (root / path_of(module)).read_text(encoding="utf-8"))
        candidates = [*place.drops(), *place.swaps()] if module in _STORING else []
        if module in _COMPARED:
            candidates += place.comparisons(boundaries=module.startswith("protocol."))
        programs = {ast.dump(place.source.tree)}
        for mutant in candidates:
            shape = ast.dump(ast.parse(mutant.sources[path_of(module)]))
            if shape not in programs:
                programs.add(shape)
                mutants.append(mutant)
    return tuple(_numbered(mutants))


def diff_of(path: str, before: str, after: str) -> str:
    """Return the change, as a unified diff with little context."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), path, path, n=1, lineterm="")
    return "\n".join(lines)


class _Module:
    """One module's source and tree."""

    def __init__(self, module: str, text: str) -> None:
        self.module, self.text, self.source = module, text, Source(text)

    def drops(self) -> Iterator[Mutant]:
        """Yield mutants without one storage operation, which a neutral value of its type replaces."""
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Call) and (value := _neutral(node)) is not None:
                text, place, instead = self._text(node), self.source.place(node), value
                asking = self.source.above[node]
                if isinstance(asking, ast.Call) and _called(asking) == "run_alone":
                    place = self.source.place(asking)
                elif isinstance(asking, ast.Yield | ast.YieldFrom):  # its function stays a generator
                    place, instead = self.source.place(asking), f"((yield from ()) or {value})"
                yield self._mutant(
                    node,
                    *("drop", _names(node)),
                    f"leaves out `{text}`" + ("" if value == "None" else f", takes `{value}` for its answer"),
                    self.source.replaced([(place, instead)]),
                )

    def swaps(self) -> Iterator[Mutant]:
        """Yield mutants with two neighbouring storing statements exchanged."""
        for node in ast.walk(self.source.tree):
            for _, body in ast.iter_fields(node):
                if not isinstance(body, list) or not all(isinstance(part, ast.stmt) for part in body):
                    continue
                for first, second in pairwise(body):
                    before, after = _operation(first), _operation(second)
                    if before is None or after is None or not _swappable(first, second):
                        continue
                    one, other = self._line(first), self._line(second)
                    yield self._mutant(
                        first,
                        *("swap", f"{_names(before)} <-> {_names(after)}"),
                        f"does `{other}` before `{one}`",
                        self._swapped(first, second),
                    )

    def comparisons(self, *, boundaries: bool) -> Iterator[Mutant]:
        """Yield mutants with one comparison inverted, and with `boundaries` also moved by one."""
        for node in ast.walk(self.source.tree):
            if not isinstance(node, ast.Compare):
                continue
            operands = [node.left, *node.comparators]
            for (left, right), operator in zip(pairwise(operands), node.ops, strict=True):
                for table in (_OPPOSITE, _BOUNDARY) if boundaries else (_OPPOSITE,):
                    if type(operator) not in table:
                        continue
                    was, now = table[type(operator)]
                    begin, end = self.source.place(left)[1], self.source.place(right)[0]
                    between = self.source.text(begin, end)
                    match = re.search(was.replace(" ", r"\s+"), between)
                    if match is None:
                        raise AssertionError(f"no {was} in {self._text(node)}")
                    first, last = (begin + len(between[:place].encode()) for place in match.span())
                    text = self._text(node)
                    yield self._mutant(
                        node,
                        *("compare", f"{_names(node)} ({was} to {now})"),
                        f"compares by `{now}` in `{text}`",
                        self.source.replaced([((first, last), now)]),
                    )

    def _mutant(self, node: ast.expr | ast.stmt, kind: str, operation: str, description: str, text: str) -> Mutant:
        path = path_of(self.module)
        return Mutant(
            f"{self.module}:{self._function(node)}:{kind}:{operation}",
            f"{self.module}.{self._function(node)}: {description}",
            {path: text},
            diff_of(path, self.text, text),
        )

    def _function(self, node: ast.AST) -> str:
        names = []
        above: ast.AST | None = node
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.ClassDef):
                names.append(above.name)
            above = self.source.above.get(above)
        return ".".join(reversed(names))

    def _text(self, node: ast.expr) -> str:
        return _on_one_line(self.source.text(*self.source.place(node)))

    def _line(self, node: ast.stmt) -> str:
        """Return a short form of a statement: its first line, or all of a simple one."""
        lines = self.text.splitlines()[node.lineno - 1 : node.end_lineno]
        return _on_one_line(" ".join(lines) if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) else lines[0])

    def _swapped(self, first: ast.stmt, second: ast.stmt) -> str:
        lines = self.text.splitlines(keepends=True)
        a, b = first.lineno - 1, first.end_lineno or first.lineno
        c, d = second.lineno - 1, second.end_lineno or second.lineno
        return "".join([*lines[:a], *lines[c:d], *lines[b:c], *lines[a:b], *lines[d:]])


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _neutral(node: ast.Call) -> str | None:
    """Return the replacement of a storage operation; None if the call is not one."""
    called_on, value = _NEUTRAL.get(_called(node), ("", ""))
    receiver = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if not value or bool(receiver) != bool(called_on) or not re.match(called_on, receiver):
        return None
    return value.format(receiver=receiver, argument=ast.unparse(node.args[0]) if node.args else "")


def _operation(node: ast.stmt) -> ast.Call | None:
    """Return the first storage operation in a statement, if any, outside of nested functions."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return None
    return next((part for part in ast.walk(node) if isinstance(part, ast.Call) and _neutral(part)), None)


def _swappable(first: ast.stmt, second: ast.stmt) -> bool:
    """Return whether the second one may come first: it does not need a name that the first one binds."""
    if isinstance(second, ast.Return | ast.Raise):
        return False
    bound = {part.id for part in ast.walk(first) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return not any(isinstance(part, ast.Name) and part.id in bound for part in ast.walk(second))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _names(node: ast.AST) -> str:
    """Return a name for an operation from the names that it mentions."""
    return " ".join(name for name in mentioned(node) if name != "self")


def _numbered(mutants: list[Mutant]) -> list[Mutant]:
    """Number those whose id equals an earlier one."""
    seen: Counter[str] = Counter()
    numbered = []
    for mutant in mutants:
        seen[mutant.id] += 1
        number = seen[mutant.id]
        numbered.append(mutant if number == 1 else replace(mutant, id=f"{mutant.id} #{number}"))
    return numbered
