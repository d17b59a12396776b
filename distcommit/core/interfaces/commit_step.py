"""Commit steps: each brings about one effect at its target, and can prove it.

The design follows Apache Gobblin's page "Exactly Once Support":
https://gobblin.apache.org/docs/miscellaneous/Exactly-Once-Support/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from distcommit.core.error_handling.storage_errors import storage_error
from distcommit.core.errors import AnyError, DistcommitError, add_ids, copied, plain_text
from distcommit.core.interfaces.committer import CommitterContext, OpensCommitter
from distcommit.core.interfaces.file_system import FileSystem
from distcommit.core.records.run_counts import FlowCounts
from distcommit.core.support.decoding import from_msgpack
from distcommit.core.watermark import Watermark


class Verdict(Enum):
    """The known state of a step's effect. The third state is an instance of `Lost`."""

    DONE = "done"
    """The effect is proven."""
    PENDING = "pending"
    """The effect is absent and can be brought about."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The verdict that the effect can be neither proven nor repeated.

    Attributes:
        expected: the required state.
        actual: the actual state.
    """

    expected: str
    actual: str


Verification = Verdict | Lost


@dataclass(frozen=True, slots=True)
class StepContext:
    """The environment of commit steps.

    Attributes:
        fs: the file system of both roots.
        staging_root: the folder that staged paths are relative to.
        output_root: the folder that final paths are relative to.
        committers: the openers of committers by sink name.
        store_id: the id of the job's store, for ledgers at targets.
    """

    fs: FileSystem
    staging_root: str
    output_root: str
    committers: Mapping[str, OpensCommitter] = field(default_factory=dict)
    store_id: str = ""

    @property
    def for_committers(self) -> CommitterContext:
        return CommitterContext(self.fs, self.staging_root, self.output_root, self.store_id)


@dataclass(frozen=True, slots=True)
class WatermarkMove:
    """A move of a dataset's watermark.

    Attributes:
        dataset_urn: the dataset.
        low: the watermark before; None before the first commit.
        high: the watermark after, for the partitions that it names.
    """

    dataset_urn: str
    low: Watermark | None
    high: Watermark


class CommitStep(ABC):
    """One idempotent effect with a proof at its target.

    Subclasses set `type_name` and `version` and are registered with `steps.step_registry.register`. They are stored as
    `to_row()`: plain JSON-like values, never pickled. `execute` returns only once the effect is durable. A repeated
    execution changes nothing, also after later sequences. The steps of a sequence are verified and executed in order
    and stop at the first failure (see `batches`).
    """

    type_name: ClassVar[str]
    version: ClassVar[int] = 1

    def __repr__(self) -> str:
        return f"{class_name(type(self))}()"

    @property
    def sink_name(self) -> str:
        """Return the sink whose committer executes the step; empty if the effect is on the job's file system."""
        return ""

    @property
    def target_branch(self) -> str:
        """Return the branch whose target's ledger the step changes; empty if there is none."""
        return ""

    @property
    def move(self) -> WatermarkMove | None:
        """Return the watermark move if that is the step's only effect, else None.

        A store that keeps watermarks itself adds the move to the record that closes the sequence and does not execute
        the step.
        """
        return None

    @property
    def commit_counts(self) -> FlowCounts:
        """Return the counts of this step object's requests to its committer: answers, retries, time and the sink's own
        counters.

        If steps are committed together, the first one has the retries, time and counters of all. The default is empty.
        """
        return FlowCounts()

    @property
    def prepared_by(self) -> tuple[str, ...]:
        """Return the ids of the attempts whose data at the target this step publishes; empty if the data is in staging
        or in the step.
        """
        return ()

    @property
    def is_changed(self) -> bool:
        """Return whether `execute` has changed the step's row. If the sequence is not done, `to_row` is recorded in the
        log before the step is executed again.
        """
        return False

    def accept_change(self) -> None:  # noqa: B027 - optional hook
        """Use the changed row from now on, which the log has recorded. Before this call, `execute` uses the previous
        row."""

    @abstractmethod
    def verify(self) -> Verification | bool:
        """Return whether the effect is DONE, PENDING or `Lost`. A bool is accepted: True is DONE, False is PENDING."""

    @abstractmethod
    def execute(self) -> bool | None:
        """Bring about the effect, durably.

        Returns:
            True or None if the effect is durable. False is a failure, like an exception.

        Raises:
            LostError: if the effect can be neither proven nor repeated.
        """

    def make_durable(self) -> bool | None:
        """Make an effect durable that `verify` found DONE, because a crashed process may not have synced it. Returns
        like `execute`.

        Needed only if `verify` can see an effect that a power loss could still undo.
        """
        return None

    def is_gone(self) -> bool:
        """Return whether the effect of a done step has disappeared, if that can be detected. After a run died, a
        missing effect indicates a target that is older than the store.
        """
        return False

    @classmethod
    def can_be_abandoned(cls) -> bool:
        """Return whether the step type implements both `withdraw` and `undo`. If not, its sequence cannot be abandoned,
        which is checked before anything changes."""
        return cls.withdraw is not CommitStep.withdraw and cls.undo is not CommitStep.undo

    def withdraw(self) -> bool | None:
        """Remove everything that a late executor of this step would need, durably, because the step is being abandoned.
        Returns like `execute`.

        Raises:
            DistcommitError: if this step type cannot be abandoned.
        """
        raise DistcommitError(
            "this type of commit step cannot be abandoned",
            step=step_name(self),
            todo="release the dataset with retry or accept, or implement withdraw() and undo() in the step's class",
        )

    def allow(self) -> bool | None:
        """Undo `withdraw`, durably, because another target of the sequence could not be withdrawn. Returns like
        `execute`.

        Any executor can then bring about the effect again. If this fails, the sequence stays in status REVOKING.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{step_name(self)} cannot be allowed again after it was withdrawn")

    def undo(self) -> bool | None:
        """Remove the step's own effect, durably, after `withdraw` of all steps. Returns like `execute`."""
        raise DistcommitError(
            "this type of commit step cannot be undone",
            step=step_name(self),
            todo="release the dataset with retry or accept, or implement undo() in the step's class",
        )

    @abstractmethod
    def to_row(self) -> list[Any]:
        """Return the step as plain values: numbers, text, bytes, booleans, None, and lists or dicts of them."""

    @classmethod
    @abstractmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        """Create the step from the result of `to_row` in this or an older `version`."""

    @classmethod
    def to_rows(cls, steps: Sequence[Self]) -> bytes:
        """Return the MessagePack list of many steps' rows. The default calls `to_row` for each."""
        return msgspec.msgpack.encode([step.to_row() for step in steps])

    @classmethod
    def from_rows(cls, rows: bytes, version: int, context: StepContext) -> list[Self]:
        """Create the steps that `to_rows` stored. The default calls `from_row` for each. Raises like `from_row` for
        invalid rows."""
        return [cls.from_row(row, version, context) for row in from_msgpack(rows, list[list[Any]])]

    @classmethod
    def batches(cls, steps: Sequence[Self]) -> Sequence[Sequence[Self]]:
        """Split consecutive steps of one sequence into batches, in their order.

        The steps of a batch are verified together and then executed together. The next batch starts once all of them
        are done. The default puts each step into a batch of its own. A class may return larger batches only if no step
        of a batch depends on another one.
        """
        return [[step] for step in steps]

    @classmethod
    def verify_all(cls, steps: Sequence[Self]) -> list[Verification]:
        """Return the verdict on each of many steps. The default calls `verify` for each."""
        return [as_verification(step.verify()) for step in steps]

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Execute many steps and make them durable together. The default calls `execute` for each.

        Args:
            steps: the steps.
            verdicts: the result of `verify_all`. Steps found DONE are not executed, but are made durable.

        Returns:
            for each step None, or the reason of its failure. A failure does not stop the other steps.
        """
        errors: list[DistcommitError | None] = []
        for index, step in enumerate(steps):
            try:
                is_done = verdicts is not None and verdicts[index] is Verdict.DONE
                name, answer = ("make_durable", step.make_durable()) if is_done else ("execute", step.execute())
                require_success(step_name(step), name, answer)
                errors.append(None)
            except Exception as error:  # noqa: BLE001 - a step class may be the user's
                errors.append(step_error(error, step))
        return errors

    @classmethod
    def execute_atomically(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Execute all steps with a `sink_name`, or none of them. Arguments and result are those of `execute_all`, which
        the default calls.
        """
        return cls.execute_all(steps, verdicts)


def as_verification(answer: Verification | bool) -> Verification:
    """Return the typed verdict for the result of a step's `verify`.

    Raises:
        TypeError: if it is neither a verdict nor a bool.
    """
    if isinstance(answer, bool):
        return Verdict.DONE if answer else Verdict.PENDING
    if not isinstance(answer, Verdict | Lost):
        raise TypeError(f"verify() must return DONE, PENDING, LOST or a bool, and returned {answer!r}")
    return answer


def class_name(kind: type[Any]) -> str:
    """Return the qualified name of a class, with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


def step_name(step: CommitStep) -> str:
    """Return the name of a step for errors: its `repr`, after the class name if the step is custom."""
    name = class_name(type(step))
    try:
        text = plain_text(repr(step), 1000)
    except Exception:  # noqa: BLE001 - a step class may be the user's
        return name
    return text if name.startswith("distcommit.") or text.startswith(name) else f"{name}: {text}"


def named_after(error: AnyError, step: CommitStep) -> AnyError:
    """Return a copy of an error that names the step."""
    named = copied(error)
    add_ids(named, step=step_name(step))
    return named


def step_error(error: BaseException, step: CommitStep) -> DistcommitError:
    """Return the typed error for any exception that a step raised. It names the step."""
    if isinstance(error, DistcommitError):
        return named_after(error, step)
    if isinstance(error, OSError):
        return storage_error(error, "a commit step failed", step=step_name(step))
    return DistcommitError(
        "a commit step failed",
        id="STEP_FAILED",
        step=step_name(step),
        found=f"{type(error).__name__}: {plain_text(error)}",
        todo="correct the step's code, then commit again",
    )


def require_success(step: str, callback: str, answer: object) -> None:
    """Check the value that a callback of a custom step or committer returned: True and None are a success.

    Args:
        step: the step's name for errors.
        callback: the callback's name.
        answer: the returned value.

    Raises:
        DistcommitError: if the value means failure.
    """
    if answer is None or answer is True:
        return
    raise DistcommitError(
        "a commit step failed",
        id="STEP_FAILED",
        step=step,
        expected=f"{callback}() to return True or None",
        found=f"it returned {plain_text(repr(answer), 200)}",
        todo=f"correct the cause and try again; {callback}() must return True or None once its effect is durable",
    )
