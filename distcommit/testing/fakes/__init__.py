"""Fakes for testing custom parts: a source, two sinks, and failing system calls.

- `ModelSource` (`model_source`) is a source with known records.
- `NotesSink` (`notes_sink`) and `SqliteSink` (`sqlite_sink`) are example sinks to learn from and to copy.
- `FaultyCalls` (`faulty_calls`) makes system calls fail. In this example the product's file system works on the real
  disk, and its fourth operation finds no space::

      LocalFileSystem(FaultyCalls(RealPosixCalls(), Fault(errno.ENOSPC, 3)))

  `times` extends the fault to several operations. With `takes_effect`, the operation is executed and only its result is
  lost.
- `Crashed` (`faulty_calls`) simulates the death of the process. Raise it where a call must be the last.

Fakes must not know the suites in `contracts`. Start reading at `notes_sink`, or at `model_source`.
"""

from distcommit.testing.fakes.faulty_calls import Crashed, Fault, FaultyCalls
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from distcommit.testing.fakes.notes_sink import NotesSink
from distcommit.testing.fakes.sqlite_sink import SqliteSink

__all__ = ["Crashed", "Fault", "FaultyCalls", "ModelDataset", "ModelSource", "NotesSink", "SqliteSink"]
