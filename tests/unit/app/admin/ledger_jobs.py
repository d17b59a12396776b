"""Jobs whose branches write to an SQLite file, alone or beside files, on an in-memory machine.

The job's task flow rejects, drops and multiplies records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from distcommit.app.admin.rebuild_result import RebuildResult
from distcommit.app.admin.rebuild_store import plan_rebuild, rebuild_store, stored_states
from distcommit.app.auditing.audit import AuditResult, audit_store
from distcommit.app.auditing.target_ledgers import open_ledgers
from distcommit.core.interfaces.ledger import LedgerRow
from distcommit.core.interfaces.sink import Sink
from distcommit.core.interfaces.source import Source
from distcommit.engine.driver.run import RunResult, run
from distcommit.pipeline.task_flow import TaskFlow
from distcommit.stores.logs.fencing import end_run
from distcommit.stores.state.job_store import JobStore
from distcommit.testing.fakes.model_source import ModelSource
from distcommit.testing.fakes.sqlite_sink import SqliteSink
from tests.models.model_flow import model_flow
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, launch

FILES = World().files


@dataclass
class LedgerJob:
    """A job with one target database.

    `in_files` names the branches that write files; the other branches write to the target. `flow` builds the task flow
    in front of them from a source and one sink for all branches.
    """

    folder: Path
    in_files: frozenset[str] = frozenset({"left"})
    flow: Callable[[Source, Sink], TaskFlow] = model_flow
    machine: Machine = field(default_factory=Machine)
    world: World = field(default_factory=lambda: World(buckets=2))

    @property
    def path(self) -> Path:
        return self.folder / "rows.db"

    @property
    def sink(self) -> Sink:
        return SqliteSink(str(self.path))

    def flow_of(self, source: Source) -> TaskFlow:
        flow = self.flow(source, self.sink)
        branches = [replace(branch, sink=FILES) if branch.name in self.in_files else branch for branch in flow.branches]
        return replace(flow, branches=branches)

    @property
    def store(self) -> JobStore:
        return self.world.store(self.machine)

    def run(self, source: ModelSource) -> RunResult:
        settings = replace(self.world.begin(self.machine, source, sink=self.sink), flow=self.flow_of(source))
        result = run(launch, settings)
        end_run(settings.store, settings.epoch, clean=result.succeeded)
        return result

    def audit(self, *, deep: bool = True) -> AuditResult:
        with open_ledgers(self.flow_of(ModelSource()), self.store) as ledgers:
            return audit_store(self.store, ModelSource.provenance, deep=deep, ledgers=ledgers)

    def rebuild(self, *, accept_gaps: bool = False) -> RebuildResult:
        flow, store = self.flow_of(ModelSource()), self.store
        plan = plan_rebuild(store, stored_states(store), accept_gaps=accept_gaps, flow=flow)
        return rebuild_store(store, plan, "rebuild-1", "me", accept_gaps=accept_gaps, flow=flow)

    # -- the target, accessed without the sink

    def rows(self) -> list[tuple[str, str, str]]:
        """Return dataset, branch and value of all rows that a reader sees."""
        records = self.query("SELECT dataset, branch, columns FROM records")
        return sorted((urn, branch, msgspec.json.decode(columns)["value"]) for urn, branch, columns in records)

    def query(self, sql: str, *values: object) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(sql, values).fetchall()

    def change(self, urn: str, branch: str, **fields: object) -> None:
        """Change fields of a ledger row."""
        ((text,),) = self.query("SELECT row FROM ledger WHERE (dataset, branch) = (?, ?)", urn, branch)
        row = msgspec.structs.replace(msgspec.json.decode(text, type=LedgerRow), **fields)
        text = msgspec.json.encode(row).decode()
        self.query(
            "UPDATE ledger SET row = ?, dataset = ? WHERE (dataset, branch) = (?, ?)",
            *(text, row.dataset_urn, urn, branch),
        )
