"""What the product is held against, and what stands in for what users bring.

- `LogModel` (`log_model`) and `JobModel` (`job_model`) say what must come of a log's records and of a job's runs;
  `histories` are the events that such a job's life is made of.
- `ModelSource` is a source whose records are known in advance; `sqlite_sink` a sink as a user writes it, to learn from.
- `strategies` (needs hypothesis) draws all that the protocol speaks of.

The two models are written from what is promised: they must not ask the code that is held against them. Nothing here
knows the simulation. Start reading at `log_model`.
"""
