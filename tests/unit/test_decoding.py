"""Types that many threads are the first to decode."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import distcommit

_FIRST_MET_BY_MANY = """
import sys, threading, types
import msgspec
from distcommit.decoding import converted, from_json, from_msgpack, json_decoder

sys.setswitchinterval(1e-6)
TYPES = '''
import msgspec
class Inner(msgspec.Struct):
    number: int
    text: "str"
class Middle(msgspec.Struct):
    inner: Inner
    more: "dict[str, Inner]"
class Outer(msgspec.Struct):
    middle: Middle
    others: "list[Middle]"
'''
PLAIN = {"middle": {"inner": {"number": 1, "text": "a"}, "more": {}}, "others": []}
JSON, MSGPACK = msgspec.json.encode(PLAIN), msgspec.msgpack.encode(PLAIN)
decode = {
    "from_json": lambda kind: from_json(JSON, kind),
    "from_msgpack": lambda kind: from_msgpack(MSGPACK, kind),
    "converted": lambda kind: converted(PLAIN, kind),
    "json_decoder": lambda kind: json_decoder(kind).decode(JSON),
}[sys.argv[1]]
for _ in range(300):
    sys.modules["made"] = made = types.ModuleType("made")
    exec(TYPES, made.__dict__)
    together, found = threading.Barrier(8), []
    def first():
        together.wait()
        found.append(decode(made.Outer))
    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(each == found[0] for each in found)
"""


@pytest.mark.parametrize("way", ["from_json", "from_msgpack", "converted", "json_decoder"])
def test_a_type_may_be_met_first_by_many_threads(way: str) -> None:
    subprocess.run([sys.executable, "-c", _FIRST_MET_BY_MANY, way], check=True, timeout=60)


def test_nothing_is_decoded_past_it() -> None:
    root = Path(distcommit.__file__).parent
    past = re.compile(r"\bdecode\((?:[^()]|\([^()]*\))*\btype=|msgspec\.convert\(|\.Decoder\(")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if past.search(path.read_text("utf-8"))}
    assert found == {"decoding.py"}
