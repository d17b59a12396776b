"""Casts of actors for the interleaver: the product's own code, each actor in one role, on one store.

A cast states the actors, the names under which each may write, and the required end state. The order of their
operations is the choice of `interleave`, and must not be the cast's. Start reading at `parts`, the building blocks of
casts, then `tasks`.
"""

from __future__ import annotations

from tests.simulation.casts.changed_infos import CHANGED_INFOS
from tests.simulation.casts.flows import FLOWS
from tests.simulation.casts.operators import OPERATORS
from tests.simulation.casts.readers import READERS
from tests.simulation.casts.rebucket import REBUCKET
from tests.simulation.casts.rebuild import REBUILD
from tests.simulation.casts.replacing import REPLACING
from tests.simulation.casts.runs import RUNS
from tests.simulation.casts.tasks import TASKS

_ALL = (
    *(*TASKS, *FLOWS, *CHANGED_INFOS, *REPLACING),
    *(*OPERATORS, *REBUILD, *REBUCKET, *RUNS, *READERS),
)
CASTS = {cast.name: cast for cast in _ALL}
