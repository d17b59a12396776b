"""What checks this repository itself: `python -m tests.checkers mutants|planted|soak|peers|coverage|fuzz`.

The checkers for everybody, `explore`, `interleave` and `faults`, are in `distcommit.testing`; most of what is here asks
whether these, and the unit tests, would notice:

- `mutants`: small changes to the product's sources, made (`mutant_sources`) or written (`named_mutants`), each tried by
  `kill_suite` in a copy of the repository. They are named by function and operation (`operations`);
  `equivalent_mutants.toml` argues about those that no test can notice.
- `planted`: `planted_faults`, put by `planting` into the running product, and looked for where `reach` measured that
  histories come to them.
- `peers`: the explorer on `peer_rules`, which are known to be broken.
- `coverage_of_checkers`: what part of the protocol's code the three reach.

`soak` and `fuzz` check the product: on a real Spark that is killed, and with damaged bytes. Nothing here is in the
wheel, and only tests import it.
"""
