"""Commit steps: one effect and its proof each, as in the original design.

After Apache Gobblin's "Exactly Once Support" page: https://gobblin.apache.org/docs/miscellaneous/Exactly-Once-Support/
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from distcommit.core.errors import DistcommitError, plain_text, storage_error
from distcommit.core.interfaces.committer import CommitterContext, OpensCommitter
from distcommit.core.ports import FileSystem
from distcommit.core.watermark import Watermark
from distcommit.decoding import from_msgpack


class Verdict(Enum):
    """What is known of a step's effect. The third answer, LOST, is an instance of `Lost`."""

    DONE = "done"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Lost:
    """The effect can't be proven and can't be redone."""

    expected: str
    found: str


Verification = Verdict | Lost


@dataclass(frozen=True, slots=True)
class StepContext:
    """What steps may touch: one file system, two roots on it that every path is relative to, and what opens the
    committers of the job's sinks, by name; `store_id`: whose steps they are, for ledgers at targets."""

    fs: FileSystem
    staging_root: str
    output_root: str
    committers: Mapping[str, OpensCommitter] = field(default_factory=dict)
    store_id: str = ""

    @property
    def for_committers(self) -> CommitterContext:
        """What the committers are opened with."""
        return CommitterContext(self.fs, self.staging_root, self.output_root, self.store_id)


@dataclass(frozen=True, slots=True)
class WatermarkMove:
    """A dataset's watermark from `low`, None before its first, to `high`: of the partitions that these name."""

    dataset_urn: str
    low: Watermark | None
    high: Watermark


class CommitStep(ABC):
    """One idempotent effect with a proof at its target.

    Subclasses set `type_name` and `version`, are made known with `steps.register`, and are stored as `to_row()`: plain
    JSON-like values, never pickled. `execute` returns only when the effect is durable; executing again, also after
    later sequences, changes nothing more. The steps of a sequence are verified and executed one after the other, and
    the first that fails is the last (see `batches`).
    """

    type_name: ClassVar[str]
    version: ClassVar[int] = 1

    def __repr__(self) -> str:
        return f"{class_name(type(self))}()"

    @property
    def sink_name(self) -> str:
        """The sink whose committer brings the effect about; empty: the effect is on the job's file system."""
        return ""

    @property
    def target_branch(self) -> str:
        """The branch whose target's ledger it changes; empty if it changes none."""
        return ""

    @property
    def move(self) -> WatermarkMove | None:
        """The move of the dataset's watermark that is all of its effect; None: it has another one. A store that keeps
        watermarks itself puts it into the record that closes the sequence, and does not execute the step."""
        return None

    @property
    def tries(self) -> Counter[str]:
        """What the sink's committer has answered to `execute` of this step, since it was made or loaded, and for how
        long it was asked: by the names of `Executed` that begin with `commit_`, and `target_ms`."""
        return Counter()

    @property
    def prepared_by(self) -> tuple[str, ...]:
        """The ids of attempts that have left at the target what this step makes visible; none if all that it needs is
        in staging, or in the step."""
        return ()

    @abstractmethod
    def verify(self) -> Verification | bool:
        """DONE, PENDING or LOST; a bool is accepted (True is DONE, False is PENDING)."""

    @abstractmethod
    def execute(self) -> bool | None:
        """Bring the effect about, durably.

        Returns:
            True or None if the effect is durable. False is a failure, like an exception.

        Raises:
            LostError: if the effect can neither be proven nor be redone.
        """

    def make_durable(self) -> bool | None:
        """Makes an effect that was found DONE durable: it may be a crashed process's, not synced yet.

        Needed only where `verify` can see an effect that a power loss could still undo. Returns as `execute`.
        """
        return None

    def is_gone(self) -> bool:
        """Whether the effect of a step that was done is there no more, where that can be told. After a run died that is
        the sign of a target that is older than the store."""
        return False

    @classmethod
    def can_be_abandoned(cls) -> bool:
        """Whether this kind of step has both `withdraw` and `undo`. One that has not keeps its sequence from being
        abandoned, before anything is changed."""
        return cls.withdraw is not CommitStep.withdraw and cls.undo is not CommitStep.undo

    def withdraw(self) -> bool | None:
        """Takes away what a late executor of this step would need, durably; the step is being abandoned. Returns as
        `execute`.

        Raises:
            DistcommitError: if this kind of step can't be abandoned.
        """
        raise DistcommitError("this kind of commit step can't be abandoned", step=step_name(self))

    def allow(self) -> bool | None:
        """Takes back `withdraw`, durably, as the step of another target of the sequence can't be withdrawn: whoever
        executes this one brings its effect about again. Where it can't, `_abandon` leaves the sequence revoking.
        Returns as `execute`.

        Raises:
            NotImplementedError: the default.
        """
        raise NotImplementedError(f"{step_name(self)} can't be allowed again once it was withdrawn")

    def undo(self) -> bool | None:
        """Removes the step's effect where it is ours, durably; called after `withdraw` of all steps. Returns as
        `execute`."""
        raise DistcommitError("this kind of commit step can't be undone", step=step_name(self))

    @abstractmethod
    def to_row(self) -> list[Any]:
        """The step as plain values: numbers, text, bytes, booleans, None, and lists or dicts of them."""

    @classmethod
    @abstractmethod
    def from_row(cls, row: list[Any], version: int, context: StepContext) -> Self:
        """The step from what `to_row` gave, in this or an older `version`."""

    @classmethod
    def to_rows(cls, steps: Sequence[Self]) -> bytes:
        """The MessagePack list of many steps' rows; the default asks one by one."""
        return msgspec.msgpack.encode([step.to_row() for step in steps])

    @classmethod
    def from_rows(cls, rows: bytes, version: int, context: StepContext) -> list[Self]:
        """The steps that `to_rows` stored; the default makes them one by one. Raises as `from_row` where they are not
        what the class wrote."""
        return [cls.from_row(row, version, context) for row in from_msgpack(rows, list[list[Any]])]

    @classmethod
    def batches(cls, steps: Sequence[Self]) -> Sequence[Sequence[Self]]:
        """Split consecutive steps of one sequence into batches, in their order.

        The steps of a batch are verified together and then executed together, and the next batch begins once all of
        them are done. The default puts each step into a batch of its own. A class may return larger batches only if
        no step of a batch depends on another one.
        """
        return [[step] for step in steps]

    @classmethod
    def verify_all(cls, steps: Sequence[Self]) -> list[Verification]:
        """The verdict on each of many steps; the default asks one by one."""
        return [as_verification(step.verify()) for step in steps]

    @classmethod
    def execute_all(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """Executes many steps and makes them durable together; the default goes one by one.

        Args:
            steps: the steps.
            verdicts: what `verify_all` just said of them; steps found DONE are not executed, but are made durable.

        Returns:
            for each step None, or why it failed. One failure does not keep others from running.
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
    def execute_whole(
        cls, steps: Sequence[Self], verdicts: Sequence[Verification] | None = None
    ) -> list[DistcommitError | None]:
        """As `execute_all`, of steps that are to take effect all or none; asked of those with a `sink_name` only. The
        default does what it can of each."""
        return cls.execute_all(steps, verdicts)


def as_verification(answer: Verification | bool) -> Verification:
    """Return the typed verdict for what a step's `verify` returned.

    Raises:
        TypeError: if it is neither a verdict nor a bool.
    """
    if isinstance(answer, bool):
        return Verdict.DONE if answer else Verdict.PENDING
    if not isinstance(answer, Verdict | Lost):
        raise TypeError(f"verify() must return DONE, PENDING, LOST or a bool, and returned {answer!r}")
    return answer


def class_name(kind: type[Any]) -> str:
    """Return the name that a class is imported by."""
    return f"{kind.__module__}.{kind.__qualname__}"


def step_name(step: CommitStep) -> str:
    """Return how errors name a step: the class of a custom one, and its own text."""
    name = class_name(type(step))
    try:
        text = plain_text(repr(step), 1000)
    except Exception:  # noqa: BLE001 - a step class may be the user's
        return name
    return text if name.startswith("distcommit.") or text.startswith(name) else f"{name}: {text}"


def step_error(error: BaseException, step: CommitStep) -> DistcommitError:
    """Return the typed error for whatever a step raised."""
    if isinstance(error, DistcommitError):
        return error
    if isinstance(error, OSError):
        return storage_error(error, "a commit step failed", step=step_name(step))
    return DistcommitError(
        "a commit step failed",
        step=step_name(step),
        found=f"{type(error).__name__}: {plain_text(error)}",
        todo="correct the step's code, then commit again",
    )


def require_success(step: str, callback: str, answer: object) -> None:
    """Check what a callback of a custom step or committer returned: True and None are a success.

    Args:
        step: how errors name the step.
        callback: the callback's name.
        answer: the value that it returned.

    Raises:
        DistcommitError: if the value stands for a failure.
    """
    if answer is None or answer is True:
        return
    raise DistcommitError(
        "a commit step failed",
        step=step,
        expected=f"{callback}() to return True or None",
        found=f"it returned {plain_text(repr(answer), 200)}",
        todo=f"correct the cause and try again; {callback}() must return True or None once its effect is durable",
    )
