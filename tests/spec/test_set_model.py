"""Watermarks that an operator sets, against their model: the audit requires exactly the records that were read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distcommit.core.records.log_records import DatasetState, Done, Fence, Intent, SetWatermark, SetWatermarks
from distcommit.core.records.sealed_sequences import SealedSequence, SequenceName
from distcommit.core.watermark import Watermark
from distcommit.core.work_units import positions_lost
from distcommit.protocol.log_state import Fold
from distcommit.protocol.record_effects import apply
from distcommit.sinks.files.offset_sets import OffsetSets, offsets_of
from tests.spec.set_model import Act, SetModel

PLACES = st.integers(0, 6)
ACTS = st.one_of(
    st.builds(Act, st.just("run"), PLACES, PLACES),
    st.builds(Act, st.just("set"), PLACES),
    st.just(Act("forget")),
    st.just(Act("recreate")),
)


class Product:
    """The fold of a log with the records that the product writes for each act."""

    def __init__(self) -> None:
        self.fold, self.epoch, self.there = Fold(), 0, 0

    @property
    def state(self) -> DatasetState:
        return self.fold.state_of("d")

    def do(self, act: Act, *, many: bool) -> None:
        match act.kind:
            case "recreate":
                self.there += 1
            case "forget":
                self._append(SetWatermark("d", None, "op"))
            case "set":
                incarnation = self.state.watermark.incarnation if self.state.watermark else f"id {self.there}"
                watermark = Watermark({"0": act.at}, incarnation)
                self._append(SetWatermarks({"d": watermark}, "op") if many else SetWatermark("d", watermark, "op"))
            case "run":
                self.epoch += 1
                low = self.state.watermark
                start: dict[str, int] = {} if low else {"0": act.begins}
                first = low.positions["0"] if low else act.begins
                assert isinstance(first, int)
                high = Watermark({"0": max(first, act.at)}, f"id {self.there}")
                self._append(Fence(self.epoch, "r"))
                self._append(Intent(self.epoch, (SealedSequence("d", self.epoch, low, high, (), {**start}),)))
                self._append(Done(self.epoch, (SequenceName("d", self.epoch),)))

    def _append(self, record: Fence | Intent | Done | SetWatermark | SetWatermarks) -> None:
        apply(self.fold.number + 1, record, self.fold)
        assert not self.fold.ignored

    def owed(self) -> set[int]:
        state = self.state
        watermark = state.watermark or state.unset_watermark
        if watermark is None:
            return set()
        first, end = state.origin.get("0", 0), watermark.positions["0"]
        assert isinstance(first, int)
        assert isinstance(end, int)
        expected = OffsetSets()
        expected.add_range("0", first, max(first, end))
        skipped = offsets_of(skip for skip in state.skipped if skip.incarnation in ("", watermark.incarnation))
        return {at for low, high in expected.difference(skipped).ranges("0") for at in range(low, high)}


@given(acts=st.lists(ACTS, max_size=8), many=st.booleans())
def test_audit_requires_exactly_the_read_records_after_any_operator_watermarks(acts: list[Act], many: bool) -> None:
    model, product = SetModel(), Product()
    for act in acts:
        if model.do(act):
            product.do(act, many=many)
        assert product.owed() == model.owed
        if model.watermark is not None:
            assert product.state.watermark == Watermark({"0": model.watermark}, f"id {model.incarnation}")


def test_positions_that_an_operator_skips_are_recorded_with_their_cause() -> None:
    product = Product()
    for act in (Act("run", 2), Act("set", 5)):
        product.do(act, many=False)
    (skipped,) = product.state.skipped
    assert (skipped.partition, skipped.low, skipped.high, skipped.incarnation) == ("0", 2, 5, "id 0")
    assert "set by hand (op)" in skipped.reason
    assert positions_lost(product.state.skipped) == 3
    product.do(Act("set", 3), many=False)
    assert positions_lost(product.state.skipped) == 1, "all other records are read again"
