"""What a job file can put between source and sinks: converters, row checkers, task checkers, fork operators.

Each type is a module of one of the packages here, named as a job file names it; its `SETTINGS` is the class of its
section, which is the construct itself. Must not know sources, sinks, stores or Spark. Start reading at
`core.interfaces.constructs`, the interface, then `settings`, then any converter.
"""
