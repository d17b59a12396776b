"""Faults to be planted: positions of one incarnation of a source are used for another one."""

from __future__ import annotations

from tests.checkers.planted_faults.parts import FaultClass, fault

_WALK = ("tests/unit/app/admin/test_actions_by_incarnation.py",)
_SEES = ("tests/unit/app/admin/test_audit_after_operator_actions.py", *_WALK)

INCARNATIONS = (
    fault(
        FaultClass.INCARNATION,
        "files-of-any-incarnation",
        "the audit counts files of all incarnations as of the newest",
        (
            "app.auditing.audit",
            "_Dataset.key",
            'incarnation if is_other_incarnation(incarnation, self.incarnation) else ""',
            '""',
        ),
        tests=_SEES,
    ),
    fault(
        FaultClass.INCARNATION,
        "earlier-incarnations-forgotten",
        "the store forgets how far the incarnation before was read",
        (
            "protocol.audit_expected_positions",
            "earlier_readings_after",
            "(*other_readings, EarlierReading(before, state.origin))",
            "()",
        ),
        tests=_SEES,
    ),
    fault(
        FaultClass.INCARNATION,
        "origin-of-the-incarnation-before",
        "positions of a new incarnation begin where those of the old one did",
        (
            "protocol.audit_expected_positions",
            "reach_after_setting",
            'before is None or before.incarnation not in ("", watermark.incarnation)',
            "before is None",
        ),
        tests=("tests/spec/test_set_model.py", *_SEES),
    ),
    fault(
        FaultClass.INCARNATION,
        "rebuilt-in-no-incarnation",
        "a rebuild does not know of which incarnation the positions are that it finds",
        (
            "app.auditing.offsets.read_progress",
            "Continuation.watermark",
            "Watermark(positions, self.incarnation)",
            "Watermark(positions)",
        ),
    ),
    fault(
        FaultClass.INCARNATION,
        "recreated-source-is-read-on",
        "positions of a recreated source are set beside those of the one before",
        (
            "core.interfaces.source",
            "stored_incarnations",
            'state.watermark is not None and before and present not in ("", before)',
            "False",
        ),
        tests=_SEES,
    ),
)
