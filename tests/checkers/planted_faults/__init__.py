"""Faults to be planted: slips that somebody might make who does not know why the code stands as it does.

A module for each kind of slip; `parts` is what they are made of. A fault has to be one that histories can see, and
nothing here plants or looks for any: see `planting` and `planted`. Start reading at `syncs`.
"""

from __future__ import annotations

from tests.checkers.planted_faults.attempts import ATTEMPTS
from tests.checkers.planted_faults.epochs import EPOCHS
from tests.checkers.planted_faults.incarnations import INCARNATIONS
from tests.checkers.planted_faults.leases import LEASES
from tests.checkers.planted_faults.marks import MARKS
from tests.checkers.planted_faults.names import NAMES
from tests.checkers.planted_faults.operators import OPERATORS
from tests.checkers.planted_faults.parts import FaultClass, Planted
from tests.checkers.planted_faults.readers import READERS
from tests.checkers.planted_faults.rebuilds import REBUILDS
from tests.checkers.planted_faults.syncs import SYNCS
from tests.checkers.planted_faults.targets import TARGETS
from tests.checkers.planted_faults.truncations import TRUNCATIONS
from tests.checkers.planted_faults.views import VIEWS

__all__ = ["PLANTED", "FaultClass", "Planted"]

PLANTED = (
    *(*SYNCS, *EPOCHS, *VIEWS, *NAMES, *TRUNCATIONS, *ATTEMPTS, *MARKS),
    *(*TARGETS, *INCARNATIONS, *READERS, *OPERATORS, *LEASES, *REBUILDS),
)
