"""A service survives each of its jobs, whichever exception their custom classes raise."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from distcommit import Job
from distcommit.app.serving.job_file_folder import read_job_files, require_served
from distcommit.app.serving.served_job import Ended, Message, Outcome, Restarted, ScheduleCheck, ServedJob
from distcommit.core.errors import ConfigurationError
from tests.unit.app.serving.test_service import Serving, write

ENDS = [SystemExit(0), SystemExit("no licence"), GeneratorExit(), KeyboardInterrupt(), BaseException("a panic")]
names = pytest.mark.parametrize("error", ENDS, ids=lambda error: f"{type(error).__name__}({error})")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jobs"
    path.mkdir()
    return path


@pytest.mark.parametrize("ending", ["import sys; sys.exit(0)", "raise SystemExit", "raise BaseException('a panic')"])
def test_class_that_exits_at_import_is_reported_and_the_other_jobs_continue(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    module = f"ends_{abs(hash(ending))}"
    (folder / f"{module}.py").write_text(ending)
    monkeypatch.syspath_prepend(str(folder))
    Job.from_file(write(folder, "a", schedule={"interval_s": 1})).open_store(create=True)
    serving = Serving(folder)
    serving.until("a.yaml", "committed")
    write(folder, "b", source={"type": "python", "class": f"{module}:Source"})
    assert f"class_name={module}:Source" in serving.until("b.yaml", "wrong").text
    serving.until("a.yaml", "committed", 2)
    with pytest.raises(ConfigurationError, match=module):
        require_served(read_job_files(folder, (), {}), folder)


@names
def test_run_that_ends_its_thread_is_reported_as_failed_and_the_job_runs_again(
    folder: Path, error: BaseException
) -> None:
    Job.from_file(write(folder, "a", schedule={"interval_s": 1})).open_store(create=True)
    serving = Serving(folder)

    def end(_: Job) -> None:
        serving.runs.acts.clear()
        raise error

    serving.runs.acts["a"] = end
    assert type(error).__name__ in serving.until("a.yaml", "failed").text
    serving.until("a.yaml", "committed")


class Unsound(ServedJob):
    """A served job whose first poll, or first report of a run's end, raises an unexpected error."""

    fails: dict[str, BaseException]

    def _check_requests(self) -> ScheduleCheck:
        if error := self.fails.pop("look", None):
            raise error
        return super()._check_requests()

    def _alert(self, reason: str) -> None:
        if error := self.fails.pop("alert", None):
            raise error
        super()._alert(reason)


@names
@pytest.mark.parametrize("where", ["look", "alert"])
def test_dead_thread_of_a_job_is_restarted_and_its_run_is_reported_as_failed(
    folder: Path, error: BaseException, where: str
) -> None:
    inbox: SimpleQueue[Message] = SimpleQueue()
    Unsound.fails = {where: error}
    job = Job.from_file(write(folder, "a"))
    served = Unsound("a", job, lambda *_: pytest.fail("the run has no Spark"), inbox, 0.01)
    served.run(is_triggered=True)
    messages: list[Any] = []
    while not any(isinstance(message, Ended) for message in messages):
        messages.append(inbox.get(timeout=60))
    reported = [message.reason for message in messages if isinstance(message, Restarted)]
    ended = next(message for message in messages if isinstance(message, Ended))
    assert ended.outcome is Outcome.FAILED
    assert [type(error).__name__ in text for text in (reported if where == "look" else [ended.text])] == [True]
    served.leave()
