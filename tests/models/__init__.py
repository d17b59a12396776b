"""Reference models that the product is compared with, and parts for the jobs that tests run.

- `LogModel` (`log_model`) and `JobModel` (`job_model`) state the required result of a log's records and of a job's
  runs; `histories` has the events of such a job.
- `model_flow` and `rejecting_flows` are task flows for the records of `distcommit.testing.fakes.ModelSource`.
- `strategies` (needs hypothesis) draws URNs, watermarks, log records that may follow a fold, work-unit layouts, task
  states and whole job histories.

Tests run these models beside the product, on the product's own records. The models in `tests.spec` are searched
independently, over all states of a small scenario. Both kinds of model are written from the documented guarantees: they
must not call the code that is compared with them, and must not know the simulation. Start reading at `log_model`.
"""
