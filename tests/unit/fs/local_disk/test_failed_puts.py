"""Puts by a rename: the known outcome of a failed one."""

from __future__ import annotations

import errno
from typing import cast

import pytest

from distcommit.core.interfaces.file_system import NotPutError
from distcommit.fs.local_disk.posix_calls import PosixCalls
from distcommit.testing.fakes.faulty_calls import Fault, FaultyCalls
from tests.simulation.simulated_hdfs import SimulatedHdfs
from tests.simulation.simulated_posix import SimulatedPosix


@pytest.mark.parametrize("takes_effect", [False, True], ids=["refused", "answer lost"])
def test_rejected_rename_is_not_a_put_and_one_with_a_lost_answer_may_be(takes_effect: bool) -> None:
    machine = SimulatedPosix()
    machine.mkdir("/job")
    fault = Fault(errno.EROFS, 0, 1, takes_effect, concerns=lambda name, arguments: name == "rename_noreplace")
    with pytest.raises(OSError, match="Read-only") as caught:
        SimulatedHdfs(cast(PosixCalls, FaultyCalls(machine, fault))).put_if_absent("/job/segment", b"record")
    assert (type(caught.value) is NotPutError) is not takes_effect
    assert [entry.name for entry in SimulatedHdfs(machine).list_folder("/job")] == ["segment"] * takes_effect
