"""Casts of actors for the interleaver: the product's own code, each in a role of its own, on one store.

A cast says who acts, in whose name each may write, and what must hold at the end; who goes when is `interleave`'s
choice, and must not be the cast's. `parts` is what casts are made of, and where to start reading; then `tasks`.
"""

from __future__ import annotations

from tests.simulation.casts.flows import FLOWS
from tests.simulation.casts.people import PEOPLE
from tests.simulation.casts.readers import READERS
from tests.simulation.casts.rebucket import REBUCKET
from tests.simulation.casts.rebuild import REBUILD
from tests.simulation.casts.replacing import REPLACING
from tests.simulation.casts.runs import RUNS
from tests.simulation.casts.tasks import TASKS

CASTS = {cast.name: cast for cast in (*TASKS, *FLOWS, *REPLACING, *PEOPLE, *REBUILD, *REBUCKET, *RUNS, *READERS)}
