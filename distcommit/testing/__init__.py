"""Public tools for testing custom parts. Production code never imports them.

- `contracts` are test suites. To test a custom CommitStep, CommitStepStore, FileSystem, Source, Sink, checker or fork
  operator, subclass its suite. The docstring of `contracts` has an example. Suites need pytest.
- `fakes` replace sources, sinks and the kernel. The fakes need no package besides the product.

The project's checkers, crash simulation and reference models are below `tests/` in the repository and not installed.
Modules here must not import them, and the product must not import modules here. Start reading at `contracts`.
"""
