"""The program that compiles `.proto` texts, which imports nothing of distcommit to start fast."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

MAIN_FILE = "distcommit-registered.proto"
"""The file name of each compiled text. No reference may have it."""
KNOWN_FILE = "known.descriptors"
_OUTPUT_FILE = "compiled.descriptors"
_SOURCE_FOLDER = "source"
"""Folder that contains only the one file, because a text can import every file in it."""
_MAX_MEMORY_BYTES = 1 << 30


def compile_job(job: dict[str, Any]) -> None:
    """Compile a job's texts into `KNOWN_FILE`; ends the process with code 1 at an error."""
    sys.path[:] = job["import_path"]
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - of the import path that was given
    from grpc_tools import _protoc_compiler  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"]))
    arguments = [
        "protoc",
        f"-I{_SOURCE_FOLDER}",
        f"-I{job['include']}",
        f"--descriptor_set_in={KNOWN_FILE}",
        "--include_imports",
    ]
    arguments += [f"--descriptor_set_out={_OUTPUT_FILE}", MAIN_FILE]
    existing = descriptor_pb2.FileDescriptorSet.FromString(Path(KNOWN_FILE).read_bytes())
    names = {file.name for file in existing.file}
    Path(_SOURCE_FOLDER).mkdir()
    for name, text in job["texts"]:
        Path(_SOURCE_FOLDER, MAIN_FILE).write_text(text, encoding="utf-8")
        if _protoc_compiler.run_main([argument.encode() for argument in arguments]):
            sys.stderr.write(f"(in {name!a})\n")
            sys.exit(1)
        for file in descriptor_pb2.FileDescriptorSet.FromString(Path(_OUTPUT_FILE).read_bytes()).file:
            if file.name == MAIN_FILE:
                file.name = name
            if file.name not in names:
                existing.file.append(file)
                names.add(file.name)
        Path(KNOWN_FILE).write_bytes(existing.SerializeToString())


if __name__ == "__main__":
    compile_job(json.load(sys.stdin))
