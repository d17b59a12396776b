"""Faults to be planted: plausible mistakes of a developer who does not know the reasons behind the code.

Each module has one kind of mistake; `parts` has their building blocks. Histories must be able to see a fault. Nothing
here plants or looks for faults: see `planting` and `planted`. Start reading at `syncs`.
"""

from __future__ import annotations

from tests.checkers.planted_faults.attempts import ATTEMPTS
from tests.checkers.planted_faults.changed_infos import CHANGED_INFOS
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
    *(*TARGETS, *INCARNATIONS, *READERS, *OPERATORS, *LEASES, *REBUILDS, *CHANGED_INFOS),
)
