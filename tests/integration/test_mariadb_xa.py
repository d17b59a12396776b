"""XA at a MariaDB server: what the sink keeps, and what the server does by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distcommit.sinks.mariadb import xa
from distcommit.sinks.mariadb.sink import MariadbSink
from tests.integration.test_mariadb_sink import Target
from tests.servers.mariadb import MariadbServer, prepared_at, roll_back
from tests.unit.sinks.two_phase_cases import SHARED, PreparingTarget, TwoPhaseCases


class PreparingMariadb(PreparingTarget, Target):
    """A database of its own."""

    commit_sent, prepare_sent = rb"\x03XA COMMIT", rb"\x03XA PREPARE"
    modules = (*SHARED, xa.__file__)
    preloaded = ("distcommit.sinks.mariadb.xa",)
    apart = 8

    def sink(self, **settings: Any) -> MariadbSink:
        return self.plain(two_phase=True, **settings)

    def plain(self, **settings: Any) -> MariadbSink:
        return Target.sink(self, **settings)

    def prepared(self) -> list[str]:
        return ["|".join(each) for each in prepared_at(self.server)]

    def end(self, name: str, *, commit: bool) -> None:
        begin, end = name.split("|")
        if commit:
            self.sql(f"XA COMMIT '{begin}', '{end}'")
        else:
            roll_back(self.server, begin, end)


@pytest.fixture
def target(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[PreparingMariadb]:
    made = PreparingMariadb(mariadb_server, tmp_path)
    yield made
    for name in made.prepared():
        made.end(name, commit=False)
    made.sql(f"DROP DATABASE {made.database}")


class TestXa(TwoPhaseCases):
    """As any database."""
