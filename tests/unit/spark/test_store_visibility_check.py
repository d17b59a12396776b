"""The check that a task's machine sees the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from distcommit.core.errors import ConfigurationError
from distcommit.engine.node_failures import NodeFailedError
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.spark import store_visibility_check
from distcommit.spark.store_visibility_check import require_visible_store
from distcommit.stores.state.job_store import Roots, open_store
from tests.simulation.world import World
from tests.unit.engine.driver.machines import Machine, source

WORLD, DATA = World(buckets=2, partitions=2), source(a=2)


@pytest.mark.parametrize("other", [None, "another-store"])
def test_store_out_of_sight_is_handed_back_and_then_an_error(
    other: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is an empty folder of this machine, or has the store of another job with the same folders."""
    monkeypatch.setattr(store_visibility_check, "_SEEN", set())
    fs, roots = LocalFileSystem(), Roots(*(str(tmp_path / name) for name in ("store", "staging", "output")))
    settings = replace(WORLD.begin(Machine(), DATA), store=open_store(fs, roots, "j", create=True))
    require_visible_store(settings)
    elsewhere = Roots(*(str(tmp_path / "else" / name) for name in ("store", "staging", "output")))
    if other is not None:
        open_store(fs, elsewhere, "j", create=True)
    hidden = replace(settings, store=replace(settings.store, roots=elsewhere))
    require_visible_store(hidden)  # this process has seen it
    monkeypatch.setattr(store_visibility_check, "_SEEN", set())
    with pytest.raises(ConfigurationError, match=r"does not see the store.*mount the folders") as failed:
        require_visible_store(hidden)
    assert failed.value.id == "STORE_NOT_VISIBLE"
    assert failed.value.found.startswith("no such file" if other is None else "the store ")
    with pytest.raises(NodeFailedError, match="STORE_NOT_VISIBLE"):
        require_visible_store(replace(hidden, hands_back=True))
