"""Concurrent first decoding of a type by many threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

_DECODED_FIRST_BY_MANY = """
import sys, threading, types
import msgspec
from distcommit.core.support.decoding import converted, from_json, from_msgpack, json_decoder

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
    sys.modules["structs"] = structs = types.ModuleType("structs")
    exec(TYPES, structs.__dict__)
    together, results = threading.Barrier(8), []
    def first():
        together.wait()
        results.append(decode(structs.Outer))
    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(result == results[0] for result in results)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["from_json", "from_msgpack", "converted", "json_decoder"])
def test_type_can_be_decoded_first_by_many_threads_at_once(way: str) -> None:
    subprocess.run([sys.executable, "-c", _DECODED_FIRST_BY_MANY, way], check=True, timeout=60)
