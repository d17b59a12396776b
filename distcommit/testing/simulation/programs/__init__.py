"""Programs for the crash explorer beyond runs of the usual job: what people do by hand, own commit steps and sinks, the
lock, damage.

Each has three parts: a machine as it is found, what is done on it (crashed at every operation), and what is done after
the crash, which must end with everything as it has to be. They must not do the product's work for it. `parts` is what
programs are made of, and where to start reading; then `by_hand`.
"""

from __future__ import annotations

from distcommit.testing.simulation.programs.attempts import ATTEMPTS
from distcommit.testing.simulation.programs.broken_steps import BROKEN_STEPS
from distcommit.testing.simulation.programs.by_hand import BY_HAND
from distcommit.testing.simulation.programs.cuts import CUTS
from distcommit.testing.simulation.programs.damage import DAMAGE
from distcommit.testing.simulation.programs.damaged_files import DAMAGED_FILES
from distcommit.testing.simulation.programs.delivery import DELIVERY
from distcommit.testing.simulation.programs.files import FILES
from distcommit.testing.simulation.programs.kept import KEPT
from distcommit.testing.simulation.programs.lock import LOCK
from distcommit.testing.simulation.programs.losers import LOSERS
from distcommit.testing.simulation.programs.misplaced_records import MISPLACED_RECORDS
from distcommit.testing.simulation.programs.moves import MOVES
from distcommit.testing.simulation.programs.overtaken import OVERTAKEN
from distcommit.testing.simulation.programs.own_steps import OWN_STEPS
from distcommit.testing.simulation.programs.own_store_ends import OWN_STORE_ENDS
from distcommit.testing.simulation.programs.partial import PARTIAL
from distcommit.testing.simulation.programs.rebucket import REBUCKET
from distcommit.testing.simulation.programs.rebuild import REBUILD
from distcommit.testing.simulation.programs.rebuilt_beside import REBUILT_BESIDE
from distcommit.testing.simulation.programs.released import RELEASED
from distcommit.testing.simulation.programs.replaced import REPLACED
from distcommit.testing.simulation.programs.replacing import REPLACING
from distcommit.testing.simulation.programs.reprocess import REPROCESS
from distcommit.testing.simulation.programs.restored_targets import RESTORED_TARGETS
from distcommit.testing.simulation.programs.restores import RESTORES
from distcommit.testing.simulation.programs.retained import RETAINED
from distcommit.testing.simulation.programs.retention import RETENTION
from distcommit.testing.simulation.programs.settings import SETTINGS
from distcommit.testing.simulation.programs.sink import SINK
from distcommit.testing.simulation.programs.stuck import STUCK
from distcommit.testing.simulation.programs.unread import UNREAD
from distcommit.testing.simulation.programs.wholes import WHOLES

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
    *CUTS,
    *KEPT,
    *WHOLES,
    *DAMAGED_FILES,
    *MISPLACED_RECORDS,
    *RELEASED,
    *OWN_STORE_ENDS,
    *OVERTAKEN,
)
PROGRAMS = {program.name: program for program in _ALL}
