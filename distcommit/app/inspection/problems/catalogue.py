"""The catalogue of problem kinds by id, and the reference page generated from it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distcommit.app.inspection.problems import dataset_problem_kinds, job_problem_kinds
from distcommit.app.inspection.problems.problem_kind import ProblemKind
from distcommit.app.inspection.problems.recommended_commands import GROUPS

PROBLEMS: Mapping[str, ProblemKind] = {
    kind.id: kind
    for module in (job_problem_kinds, dataset_problem_kinds)
    for kind in vars(module).values()
    if isinstance(kind, ProblemKind)
}

_HEAD = """\
# Problems that `status` reports

One entry for each kind of problem that `distcommit status`, `--json`, alerts and the report show, by its id. This page
is made from the catalogue in `distcommit.app.inspection.problems`: `python -m tests.unit.app.inspection.problems_page`
writes it. In a symptom, `…` stands for names, numbers and quoted reasons. If a quoted reason has a remedy of its own,
that remedy is printed instead of the entry's action. Commands are printed with the job file and its overrides, quoted
for a shell.

Severities: `critical`: no run can begin, or the next one publishes nothing. `error`: a run failed, or datasets do not
progress. `warning`: the job progresses. Give the first problem's command, then look again.
"""
_NAMES = {"buckets": "N", "way": "HOW"}
"""Names of command fields on the page, where they differ from those in templates."""


def problems_page() -> str:
    """Return the reference page of all problem kinds, as Markdown."""
    return _HEAD + "".join(_section(kind) for kind in PROBLEMS.values())


def _section(kind: ProblemKind) -> str:
    symptoms = [f"`{_shown(text)}`" for text in (kind.finding, kind.more) if text]
    commands = [f"`{_usage(text)}`" for text in (kind.command, kind.more_command) if text]
    rows = {
        "Severity": kind.severity.value,
        "Symptom": ", or ".join(symptoms),
        "Cause": kind.cause,
        "Impact": kind.impact,
        "Action": kind.action,
        "Command": ", or ".join(commands),
    }
    return f"\n## `{kind.id}`\n\n**{kind.title}.**\n\n" + "".join(
        f"- *{name}*: {text}\n" for name, text in rows.items()
    )


def _shown(template: str) -> str:
    return re.sub("…+", "…", re.sub(r"\{[^}]*\}", "…", template))


def _usage(template: str) -> str:
    name, *words = re.sub(r"\{(\w+)\}", lambda field: _NAMES.get(field[1], field[1].upper()), template).split()
    group = [name, words.pop(0)] if name in GROUPS else [name]
    return " ".join(["distcommit", *group, "job.yaml", *words])
