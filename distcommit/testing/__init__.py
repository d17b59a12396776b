"""Public tools to test a job, or your own parts, against what `distcommit` promises. Nothing here runs in production.

`contracts` are suites for parts of yours; `simulation` runs whole jobs in memory and tries all crashes, orders and
errors; `models` say what must come of it. What only checks this project is not here, and no product code may import
what is: it must not be needed where jobs run.

Where to start:

- You wrote a CommitStep, CommitStepStore, FileSystem, Source, Sink, checker or fork operator: subclass its suite in
  `testing.contracts`, whose docstring shows how in eight lines (needs pytest). `testing.models.sqlite_sink` is a sink
  to learn from.
- You want to see a whole job run, crash and recover in memory, in milliseconds::

      machine = SimulatedPosix()
      machine.mkdir("/job")
      world = World(buckets=2, policy=CommitPolicy.FULL)
      world.run(machine, ModelSource({"orders": ModelDataset({"0": 5})}))
      after_a_power_loss = list(machine.after_power_loss(random.Random(1), bound=2, samples=3))

  `SimulatedPosix` stands below the product's own file system code and knows what a power loss may leave.
- You want to see your own part under faults: `LocalFileSystem(FaultyCalls(RealPosixCalls(), Fault(errno.ENOSPC, 3)))`
  is the product's file system on the real disk, whose fourth operation finds no space; `times` makes an outage of it,
  `takes_effect` loses the answer only. `FaultyCalls` stands above a `SimulatedPosix` as well.
- You write property tests: `testing.models.strategies` (needs hypothesis) draws URNs, watermarks, log records that may
  follow a fold, work-unit layouts, task states and whole job histories; `LogModel` and `JobModel` say what must come of
  them.
- You want the checkers themselves: `python -m distcommit.testing --help`.

`tests/stateful/` of the project shows models and strategies at work. The modules that need pytest or hypothesis are not
imported from here.
"""

from distcommit.protocol.readiness import CommitPolicy
from distcommit.testing.models.job_model import JobModel
from distcommit.testing.models.log_model import LogModel
from distcommit.testing.models.model_source import ModelDataset, ModelSource
from distcommit.testing.simulation.faults import Fault, FaultyCalls
from distcommit.testing.simulation.simulated_posix import Crashed, Operation, SimulatedPosix
from distcommit.testing.simulation.world import SimulatedClock, SimulatedFileSystem, World

__all__ = [
    "CommitPolicy",
    "Crashed",
    "Fault",
    "FaultyCalls",
    "JobModel",
    "LogModel",
    "ModelDataset",
    "ModelSource",
    "Operation",
    "SimulatedClock",
    "SimulatedFileSystem",
    "SimulatedPosix",
    "World",
]
