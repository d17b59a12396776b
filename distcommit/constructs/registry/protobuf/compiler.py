"""The compiler of untrusted `.proto` texts, in an isolated process, which only compiles.

It imports from the parent's import path alone, without secrets in its environment, and with bounded time and memory.
Each text has one fixed file name, so that no name from a registry becomes a path, a module or an argument.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pb2

from distcommit.constructs.registry.protobuf import protoc_child
from distcommit.constructs.registry.protobuf.protoc_child import KNOWN_FILE
from distcommit.core.errors import ConfigurationError
from distcommit.core.support.child_program_source import program_text
from distcommit.core.support.install_command import install_command
from distcommit.schemas.schema_size_limits import SchemaTooLargeError, UnusableSchemaError

COMPILE_S = 60
"""Seconds until the compiler's process is killed."""
_INHERITED = ("LD_LIBRARY_PATH", "PATH", "TMPDIR")


def compile_texts(
    texts: Sequence[tuple[str, str]], existing: descriptor_pb2.FileDescriptorSet
) -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptors of texts and of all that they import.

    Args:
        texts: name and text of each file, after the files that it imports.
        existing: descriptors of files that texts may import.

    Raises:
        UnusableSchemaError: if a text can't be compiled.
        SchemaTooLargeError: if the compiler takes more than 60 s.
        ConfigurationError: if the compiler is not installed.
    """
    tools = find_spec("grpc_tools")
    if tools is None or tools.origin is None:
        raise ConfigurationError(
            "the compiler of Protobuf schemas is not installed",
            id="PACKAGE_MISSING",
            found="no grpcio-tools",
            todo=f"run `{install_command('registry')}` on the driver and on all executors",
        )
    with tempfile.TemporaryDirectory(prefix="distcommit-proto-") as folder:
        Path(folder, KNOWN_FILE).write_bytes(existing.SerializeToString())
        job = {
            "import_path": [os.path.abspath(path) for path in sys.path if path],
            "seconds": COMPILE_S,
            "include": str(Path(tools.origin).parent / "_proto"),
            "texts": texts,
        }
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", program_text(protoc_child)],
                input=json.dumps(job).encode(),
                capture_output=True,
                check=False,
                timeout=COMPILE_S,
                cwd=folder,
                env={name: os.environ[name] for name in _INHERITED if name in os.environ},
            )
        except subprocess.TimeoutExpired as error:
            raise SchemaTooLargeError(f"protoc has not compiled it within {COMPILE_S} s, which is the limit") from error
        if done.returncode:
            output = done.stderr.decode(errors="replace").strip()[-500:]
            reason = output or f"it ended with code {done.returncode}"
            raise UnusableSchemaError(f"protoc refuses it: {reason}")
        return descriptor_pb2.FileDescriptorSet.FromString(Path(folder, KNOWN_FILE).read_bytes())
