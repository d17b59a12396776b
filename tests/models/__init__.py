"""Reference models that the product is compared with, and parts for the jobs that tests run.

- `JobModel` (`job_model`) states the required result of a job's runs; `histories` has the events of such a job.
- `model_flow` and `rejecting_flows` are task flows for the records of `distcommit.testing.fakes.ModelSource`.
- `strategies` (needs hypothesis) draws URNs, watermarks, log records that may follow a fold, work-unit layouts, task
  states and whole job histories.

Tests run these models beside the product. The models in `tests.spec` are searched independently, over all states of a
small scenario; that of the log also runs beside the product. Both kinds of model are written from the documented
guarantees: they must not call the code that is compared with them, and must not know the simulation. Start reading at
`job_model`.
"""
