"""Check of the Java runtime. Must not import Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from distcommit.core.errors import ConfigurationError

MINIMUM_JAVA = 17


def check_java() -> None:
    """Check the Java runtime that Spark uses. Raise ConfigurationError if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    todo = (
        f"install a Java runtime of version {MINIMUM_JAVA} or later (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
    )
    expected = f"Java {MINIMUM_JAVA} or later"
    if java is None or not os.access(java, os.X_OK):
        location = f"none at JAVA_HOME {home}" if home else "no java on PATH, JAVA_HOME is not set"
        raise ConfigurationError("Spark needs Java", id="JAVA_MISSING", expected=expected, found=location, todo=todo)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    text = (answer.stderr or answer.stdout).strip()
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    if answer.returncode or version is None or int(version[1]) < MINIMUM_JAVA:
        actual = text.splitlines()[0] if text else f"exit code {answer.returncode}"
        raise ConfigurationError(
            "Spark needs a newer Java", id="JAVA_MISSING", path=java, expected=expected, found=actual, todo=todo
        )
