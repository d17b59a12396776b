"""The product on an in-memory machine that models power losses, and the checkers that explore its states.

- The machine: `simulated_posix` replaces the kernel (`power_loss`: the states it may leave), `world` runs whole jobs on
  it and checks their outcome, and `log_watch` checks their logs. `distcommit.testing.fakes.faulty_calls` makes its
  operations fail.
- The histories: `scenarios`, `programs` and `casts`; `damage` for bytes that differ from those written.
- The players: `explore` (crashes), `interleave` (several actors), `fault_histories` and `fault_chains` (errors), in the
  order of `fault_orders`. `python -m tests.checkers` runs them.

A job in memory runs, crashes and recovers in milliseconds::

    machine = SimulatedPosix()
    machine.mkdir("/job")
    world = World(buckets=2, policy=CommitPolicy.FULL)
    world.run(machine, ModelSource({"orders": ModelDataset({"0": 5})}))
    after_a_power_loss = list(machine.after_power_loss(random.Random(1), bound=2, samples=3))

The product's own code runs above its own file system code: this package must not do the product's work for it, and its
histories must not touch a real disk. Start reading at `world`, then `explore`.
"""
