"""`python -m tests.inputs`: print the table of inputs, each with its right value and its result. `--json` for a
program."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.inputs.case import Case
from tests.inputs.collect import cases


def main(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Run every input that needs no server, and print the table. Exit 1 if a value is wrong."""
    rows = [{"point": case.point, "given": case.given, "right": case.right, **_result(case)} for case in cases()]
    wrong = sum(row["result"] == "wrong" for row in rows)
    if as_json:
        typer.echo(json.dumps({"inputs": len(rows), "wrong": wrong, "rows": rows}, ensure_ascii=False))
    else:
        for row in rows:
            typer.echo(f"{row['result']:8} {row['point']:20} {row['given']}\n{'':30}{row['right']}")
        typer.echo(f"{len(rows)} inputs, {wrong} wrong")
    sys.exit(1 if wrong else 0)


def _result(case: Case) -> dict[str, str]:
    if case.run is None:
        return {"result": "by test", "test": case.test or ""}
    with tempfile.TemporaryDirectory() as folder:
        observed = case.run(Path(folder))
    test = "tests/inputs/test_inputs.py"
    return {"result": "right" if observed == case.right else "wrong", "observed": observed, "test": test}


if __name__ == "__main__":
    typer.run(main)
