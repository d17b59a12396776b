"""The product on a machine in memory that knows what a power loss may leave, and the checkers that try all of it.

- The machine: `simulated_posix` stands in for the kernel (`power_loss`: what may be left of it), `world` runs
  whole jobs on it and looks at what came of them, and `log_watch` at their logs. Its operations go wrong by
  `distcommit.testing.fakes.faulty_calls`.
- What is played: `scenarios`, `programs` and `casts`; `damage` for bytes that are not as written.
- Who plays it: `explore` (crashes), `interleave` (several actors), `fault_histories` and `fault_chains` (errors), in
  the order of `fault_orders`. `python -m tests.checkers` runs them.

A job in memory runs, crashes and recovers in milliseconds::

    machine = SimulatedPosix()
    machine.mkdir("/job")
    world = World(buckets=2, policy=CommitPolicy.FULL)
    world.run(machine, ModelSource({"orders": ModelDataset({"0": 5})}))
    after_a_power_loss = list(machine.after_power_loss(random.Random(1), bound=2, samples=3))

What runs is the product's own code, above its own file system code: what is here must not do the product's work for it,
and what is played must not touch a real disk. Start reading at `world`, then `explore`.
"""
