"""Casts of actors for the interleaver: the product's own code, each in a role of its own, on one store.

A cast says who acts, in whose name each may write, and what must hold at the end; who goes when is `interleave`'s
choice, and must not be the cast's. `parts` is what casts are made of, and where to start reading; then `tasks`.
"""

from __future__ import annotations

from distcommit.testing.simulation.casts.flows import FLOWS
from distcommit.testing.simulation.casts.people import PEOPLE
from distcommit.testing.simulation.casts.readers import READERS
from distcommit.testing.simulation.casts.rebucket import REBUCKET
from distcommit.testing.simulation.casts.rebuild import REBUILD
from distcommit.testing.simulation.casts.replacing import REPLACING
from distcommit.testing.simulation.casts.runs import RUNS
from distcommit.testing.simulation.casts.tasks import TASKS

CASTS = {cast.name: cast for cast in (*TASKS, *FLOWS, *REPLACING, *PEOPLE, *REBUILD, *REBUCKET, *RUNS, *READERS)}
