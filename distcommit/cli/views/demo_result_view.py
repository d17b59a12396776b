"""The result of the demo as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape

from distcommit.cli.views.view_components import (
    bad_verdict,
    fact_table,
    good_verdict,
    new_table,
    page,
    seconds_spent,
    should_be_none,
)
from distcommit.core.support.counts import count_of

if TYPE_CHECKING:
    from distcommit.app.demo.demo_run import DemoResult


def demo_view(result: DemoResult) -> RenderableType:
    verdict = (
        good_verdict("exactly once", "every produced record is published once, after a kill in mid-commit")
        if result.exact
        else bad_verdict("not exact", "; ".join(map(escape, result.problems)))
    )
    table = new_table("", ">produced", ">published")
    table.add_row("records", f"{result.records_produced:,}", f"{result.records_published:,}")
    table.add_row("checksum", escape(result.checksum_produced), escape(result.checksum_published))
    facts = {
        "duplicates": should_be_none(result.duplicates),
        "missing": should_be_none(result.missing),
        "at the kill": f"{result.sequences_pending_at_kill} datasets sealed and not closed; of their files"
        f" {result.files_published_at_kill:,} published, {result.files_staged_at_kill:,} still staged",
        "replayed": count_of(result.sequences_replayed, "sequence"),
        "published": f"{count_of(result.files, 'file')} of {count_of(result.datasets, 'dataset')}",
        "seconds": seconds_spent(result.seconds),
    }
    return page(verdict, table, fact_table(facts))
