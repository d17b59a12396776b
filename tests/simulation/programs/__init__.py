"""Programs for the crash explorer beyond runs of the usual job: operator commands, custom commit steps and sinks, the
lock, damage.

Each has three parts: an initial machine, an act on it that is crashed at every operation, and a recovery that must end
in the required state. Programs must not do the product's work for it. Start reading at `parts`, the building blocks of
programs, then `by_hand`.
"""

from __future__ import annotations

from tests.simulation.programs.attempts import ATTEMPTS
from tests.simulation.programs.broken_steps import BROKEN_STEPS
from tests.simulation.programs.by_hand import BY_HAND
from tests.simulation.programs.cuts import SNAPSHOTS
from tests.simulation.programs.damage import DAMAGE
from tests.simulation.programs.damaged_files import DAMAGED_FILES
from tests.simulation.programs.delivery import DELIVERY
from tests.simulation.programs.files import FILES
from tests.simulation.programs.kept import KEPT
from tests.simulation.programs.lock import LOCK
from tests.simulation.programs.losers import LOSERS
from tests.simulation.programs.misplaced_records import MISPLACED_RECORDS
from tests.simulation.programs.moves import MOVES
from tests.simulation.programs.overtaken import OVERTAKEN
from tests.simulation.programs.own_steps import OWN_STEPS
from tests.simulation.programs.own_store_ends import OWN_STORE_ENDS
from tests.simulation.programs.partial import PARTIAL
from tests.simulation.programs.rebucket import REBUCKET
from tests.simulation.programs.rebuild import REBUILD
from tests.simulation.programs.rebuilt_beside import REBUILT_BESIDE
from tests.simulation.programs.released import RELEASED
from tests.simulation.programs.replaced import REPLACED
from tests.simulation.programs.replacing import REPLACING
from tests.simulation.programs.reprocess import REPROCESS
from tests.simulation.programs.restored_targets import RESTORED_TARGETS
from tests.simulation.programs.restores import RESTORES
from tests.simulation.programs.retained import RETAINED
from tests.simulation.programs.retention import RETENTION
from tests.simulation.programs.settings import SETTINGS
from tests.simulation.programs.sink import SINK
from tests.simulation.programs.stuck import STUCK
from tests.simulation.programs.unread import UNREAD
from tests.simulation.programs.wholes import WHOLES
from tests.simulation.programs.worker_deaths import WORKER_DEATHS

_ALL = (
    *BY_HAND,
    *OWN_STEPS,
    *SINK,
    *LOSERS,
    *BROKEN_STEPS,
    *STUCK,
    *FILES,
    *LOCK,
    *RETENTION,
    *DAMAGE,
    *MOVES,
    *REBUILD,
    *REBUILT_BESIDE,
    *REBUCKET,
    *REPLACED,
    *RESTORES,
    *RESTORED_TARGETS,
    *DELIVERY,
    *ATTEMPTS,
    *SETTINGS,
    *REPROCESS,
    *REPLACING,
    *RETAINED,
    *UNREAD,
    *PARTIAL,
    *SNAPSHOTS,
    *KEPT,
    *WHOLES,
    *DAMAGED_FILES,
    *MISPLACED_RECORDS,
    *RELEASED,
    *OWN_STORE_ENDS,
    *OVERTAKEN,
    *WORKER_DEATHS,
)
PROGRAMS = {program.name: program for program in _ALL}
