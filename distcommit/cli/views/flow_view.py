"""The task flow as a tree."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from distcommit.app.checks.flow_description import FlowColumn, FlowDescription, FlowPart

COLUMNS_SHOWN = 12


def flow_view(result: FlowDescription) -> RenderableType:
    """Show the constructs before the fork in order, then each branch as a branch of the tree."""
    tree = Tree(Text.assemble("job ", (result.job, "bold")), guide_style="dim")
    _add(tree, result.parts, None)
    reached = result.parts[-1].columns
    if result.fork is None:
        _add(tree, result.branches[0].parts, reached)
    else:
        fork = tree.add(_part(result.fork, None))
        for branch in result.branches:
            note = "  optional: if it fails, its records go to the error branch" if branch.optional else ""
            _add(fork.add(Text.assemble("branch ", (branch.name, "bold"), (note, "dim"))), branch.parts, reached)
    if result.errors is not None:
        tree.add(_part(result.errors, None))
    return tree


def _add(tree: Tree, parts: Sequence[FlowPart], columns: Sequence[FlowColumn] | None) -> None:
    for part in parts:
        tree.add(_part(part, columns))
        columns = part.columns


def _part(part: FlowPart, before: Sequence[FlowColumn] | None) -> RenderableType:
    head = Text.assemble((f"{part.kind} ", "dim"), (part.name, "bold cyan"), f"  {part.settings}".rstrip())
    notes = [part.on_rejected] if part.on_rejected else []
    if columns := shown_columns(part, before):
        notes.append(f"columns: {', '.join(columns)}")
    return Group(head, *(Padding(Text(note, style="dim"), (0, 0, 0, 2), expand=False) for note in notes))


def shown_columns(part: FlowPart, before: Sequence[FlowColumn] | None) -> list[str]:
    """Return how a source or a converter changes the columns; empty for other constructs.

    Args:
        before: columns of its input; None if unknown.
    """
    if part.kind not in ("source", "converter"):
        return []
    if part.columns is None:
        return ["depend on the records"]
    others = ["others depend on the records"] if part.has_other_columns else []
    if before is None:
        return [*_first([f"{column.name} {column.type}" for column in part.columns]), *others]
    changes = [f"+ {column.name} {column.type}" for column in part.columns if column not in before]
    names = {column.name for column in part.columns}
    changes += [f"- {column.name}" for column in before if column.name not in names]
    same = len(set(part.columns) & set(before))
    return [*_first(changes), *([f"{same} unchanged"] if same else []), *others]


def _first(columns: Sequence[str]) -> list[str]:
    more = len(columns) - COLUMNS_SHOWN
    return [*columns[:COLUMNS_SHOWN], *([f"and {more} more"] if more > 0 else [])]
