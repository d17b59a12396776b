"""Programs for the crash explorer beyond runs of the usual job: operator commands, custom commit steps and sinks, the
lock, damage.

Each has three parts: an initial machine, an act on it that is crashed at every operation, and a recovery that must end
in the required state. Programs must not do the product's work for it. Start reading at `parts`, the building blocks of
programs, then `operator_actions`.
"""

from __future__ import annotations

from tests.simulation.programs.aborted_attempts import ABORTED_ATTEMPTS
from tests.simulation.programs.atomic_groups import ATOMIC_GROUPS
from tests.simulation.programs.attempts import ATTEMPTS
from tests.simulation.programs.broken_steps import BROKEN_STEPS
from tests.simulation.programs.changed_infos import CHANGED_INFOS
from tests.simulation.programs.compact import COMPACT
from tests.simulation.programs.concurrent_rebuild import CONCURRENT_REBUILD
from tests.simulation.programs.custom_steps import CUSTOM_STEPS
from tests.simulation.programs.custom_store_ends import CUSTOM_STORE_ENDS
from tests.simulation.programs.damage import DAMAGE
from tests.simulation.programs.damaged_files import DAMAGED_FILES
from tests.simulation.programs.delivery import DELIVERY
from tests.simulation.programs.expire import EXPIRE
from tests.simulation.programs.files import FILES
from tests.simulation.programs.imports import MOVES
from tests.simulation.programs.lock import LOCK
from tests.simulation.programs.misplaced_records import MISPLACED_RECORDS
from tests.simulation.programs.misplanned import MISPLANNED
from tests.simulation.programs.operator_actions import OPERATOR_ACTIONS
from tests.simulation.programs.overtaken import OVERTAKEN
from tests.simulation.programs.partial import PARTIAL
from tests.simulation.programs.read_failures import READ_FAILURES
from tests.simulation.programs.rebucket import REBUCKET
from tests.simulation.programs.rebuild import REBUILD
from tests.simulation.programs.released import RELEASED
from tests.simulation.programs.replaced import REPLACED
from tests.simulation.programs.replacing import REPLACING
from tests.simulation.programs.reprocess import REPROCESS
from tests.simulation.programs.restored_targets import RESTORED_TARGETS
from tests.simulation.programs.restores import RESTORES
from tests.simulation.programs.resumed import RESUMED
from tests.simulation.programs.retention import RETENTION
from tests.simulation.programs.settings import SETTINGS
from tests.simulation.programs.sink import SINK
from tests.simulation.programs.snapshots import SNAPSHOTS
from tests.simulation.programs.stored_records import STORED_RECORDS
from tests.simulation.programs.stuck import STUCK
from tests.simulation.programs.worker_deaths import WORKER_DEATHS

_ALL = (
    *OPERATOR_ACTIONS,
    *CUSTOM_STEPS,
    *SINK,
    *ABORTED_ATTEMPTS,
    *CHANGED_INFOS,
    *BROKEN_STEPS,
    *STUCK,
    *FILES,
    *LOCK,
    *RETENTION,
    *DAMAGE,
    *MOVES,
    *REBUILD,
    *CONCURRENT_REBUILD,
    *REBUCKET,
    *REPLACED,
    *RESTORES,
    *RESTORED_TARGETS,
    *DELIVERY,
    *ATTEMPTS,
    *SETTINGS,
    *REPROCESS,
    *REPLACING,
    *EXPIRE,
    *COMPACT,
    *READ_FAILURES,
    *PARTIAL,
    *SNAPSHOTS,
    *STORED_RECORDS,
    *ATOMIC_GROUPS,
    *DAMAGED_FILES,
    *MISPLACED_RECORDS,
    *MISPLANNED,
    *RELEASED,
    *RESUMED,
    *CUSTOM_STORE_ENDS,
    *OVERTAKEN,
    *WORKER_DEATHS,
)
PROGRAMS = {program.name: program for program in _ALL}
