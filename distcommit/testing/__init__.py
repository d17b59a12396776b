"""Public tools to test parts of your own. Production code never imports them.

- `contracts` are test suites. If you wrote a CommitStep, CommitStepStore, FileSystem, Source, Sink, checker or fork
  operator, subclass its suite. The docstring of `contracts` shows how in eight lines. Suites need pytest.
- `fakes` stand in for sources, sinks and the kernel. They need no package besides the product.

The checkers, the simulation of crashes and the reference models of this project are not installed. They are below
`tests/` in the repository. Modules here must not import them, and the product must not import modules here. Start
reading at `contracts`.
"""
