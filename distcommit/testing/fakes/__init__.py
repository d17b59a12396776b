"""Stand-ins for the parts around your own: a source, two sinks, and system calls that fail.

- `ModelSource` (`model_source`) is a source whose records are known in advance.
- `NotesSink` (`notes_sink`) and `SqliteSink` (`sqlite_sink`) are sinks as a user writes them, to learn from and to
  copy.
- `FaultyCalls` (`faulty_calls`) makes system calls fail. The product's file system then works on the real disk, and its
  fourth operation finds no space::

      LocalFileSystem(FaultyCalls(RealPosixCalls(), Fault(errno.ENOSPC, 3)))

  `times` makes the fault last for several operations. With `takes_effect` only the answer is lost.
- `Crashed` (`faulty_calls`) stands for the death of the process. Raise it where a call is to be the last.

Fakes must not know the suites in `contracts`. Start reading at `notes_sink`, or at `model_source`.
"""

from distcommit.testing.fakes.faulty_calls import Crashed, Fault, FaultyCalls
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from distcommit.testing.fakes.notes_sink import NotesSink
from distcommit.testing.fakes.sqlite_sink import SqliteSink

__all__ = ["Crashed", "Fault", "FaultyCalls", "ModelDataset", "ModelSource", "NotesSink", "SqliteSink"]
