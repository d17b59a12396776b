"""The product on a machine in memory that knows what a power loss may leave, and the checkers that try all of it.

- The machine: `simulated_posix` stands in for the kernel (`power_loss`: what may be left of it), `faults` makes its
  operations go wrong, `world` runs whole jobs on it and looks at what came of them, and `log_watch` at their logs.
- What is played: `scenarios`, `programs` and `casts`; `damage` for bytes that are not as written.
- Who plays it: `explore` (crashes), `interleave` (several actors), `fault_histories` and `fault_chains` (errors), in
  the order of `fault_orders`. `python -m distcommit.testing` runs them.

What runs is the product's own code, above its own file system code: what is here must not do the product's work for it,
and what is played must not touch a real disk. Start reading at `world`, then `explore`.
"""
