"""All checkers of this repository: `python -m tests.checkers` and a command.

`explore`, `interleave` and `faults` run the product in memory (`tests.simulation`). Most other checkers measure whether
these three, and the unit tests, would notice a fault:

- `mutants`: small changes to the product's sources, generated (`mutant_sources`) or written (`named_mutants`), each
  tried by `kill_suite` in a copy of the repository. They are named by function and operation (`operations`);
  `equivalent_mutants.toml` argues why no test can notice some of them.
- `planted`: `planted_faults`, put by `planting` into the running product, and searched for in the histories that
  `reach` measured to execute their places.
- `peers`: the explorer on `peer_rules`, which are known to be broken.
- `coverage_of_checkers`: the part of the protocol's code that the three reach.

`soak` and `fuzz` check the product: on a real Spark that is killed, and with damaged bytes. The wheel must not contain
this package, and only tests import it. Start reading at `tests.simulation.explore`, or at `planted`.
"""
