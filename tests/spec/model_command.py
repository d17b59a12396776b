"""The command `python -m tests.spec.NAME_model [SCENARIO [SWITCH ...]]`: search one scenario, as designed or with naive
switches, and print a history that leads to a violation; or search all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence


def model_command(
    explore: Callable[[str, str], tuple[str, int, list[str]]],
    design: Sequence[str],
    naive: Sequence[tuple[str, str, str]],
) -> None:
    """Print a line for each scenario, and exit with 1 if a result is not as expected.

    Args:
        explore: returns the violation in a scenario with these switches, the number of states, and a history.
        design: scenarios that must have no violation.
        naive: scenarios with a switch and its description, which must have a violation.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="?", choices=design)
    parser.add_argument("switch", nargs="*")
    options = parser.parse_args()
    todo = [(options.scenario, " ".join(options.switch), "")] if options.scenario else []
    unexpected, began = 0, time.monotonic()
    for name, switches, text in todo or [*((name, "", "as designed") for name in design), *naive]:
        wrong, states, history = explore(name, switches)
        unexpected += bool(switches) != (not wrong.startswith("none"))
        print(f"{name:14s} {switches or '-':16s} {text:75s} {states:9,d} {wrong}", flush=True)
        for line in history if options.scenario else ():
            print(f"    {line}")
    print(f"{time.monotonic() - began:.0f} s; {unexpected} result(s) not as expected")
    raise SystemExit(bool(unexpected))
