"""Java servers: their jars by Maven, once per machine and version, and the command that runs one."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.servers.process import ServerUnavailableError

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POMS = Path(__file__).parent / "maven"

NO_NEWER_JAVA = "no newer Java is installed"
"""Why a server that needs a newer Java is unavailable: Debian has none."""


def cache_folder() -> Path:
    """Return the folder for jars: `$XDG_CACHE_HOME/distcommit`, or `~/.cache/distcommit`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distcommit"


@functools.cache
def jars(server: str) -> Path:
    """Return a folder with the jars of `maven/<server>.xml`; the first call on a machine downloads them from Maven
    Central.

    Raises:
        ServerUnavailableError: if Maven is missing or cannot download them.
    """
    pom = _POMS / f"{server}.xml"
    folder = cache_folder() / f"{server}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise ServerUnavailableError(f"{server} comes by Maven, and mvn is not on PATH (Debian: apt-get install maven)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        open(folder.parent / ".maven-lock", "w", encoding="utf-8") as lock,
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as new,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # Maven's local repository does not support two concurrent processes
        if folder.is_dir():
            return folder
        command = [maven, "-q", "-B", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={new}/jars"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerUnavailableError(f"Maven can't get {server}: {(done.stdout + done.stderr).strip()[:1000]}")
        for archive in Path(new, "jars").glob("*.tar.gz"):
            _take_jars(archive)
        Path(new, "jars").rename(folder)
    return folder


def _take_jars(archive: Path) -> None:
    """Move the jars of an archive, from whichever folder of it, to their place."""
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and member.name.endswith(".jar"):
                member.name = Path(member.name).name
                opened.extract(member, archive.parent, filter="data")
    archive.unlink()


def java_command(
    server: str,
    main_class: str,
    *arguments: str,
    conf_dir: Path | None = None,
    heap_mb: int = 512,
    least: int = 17,
    for_long: bool = False,
) -> list[str]:
    """Return the command that runs a server's main class, in a small heap; warnings go to the standard error.

    Args:
        server: a file of `maven/`.
        main_class: the class to run.
        *arguments: its arguments.
        conf_dir: a folder of settings that come first on the class path.
        heap_mb: the largest heap, in megabytes.
        least: the lowest Java version.
        for_long: whether Java compiles its code fully, which takes a minute of a processor.

    Raises:
        ServerUnavailableError: if there is no such Java, or as `jars`.
    """
    return [
        _program("java") if least <= 17 else _newer_java(least),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        *(() if for_long else ("-XX:TieredStopAtLevel=1",)),
        "-XX:-UsePerfData",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={tempfile.gettempdir()}",
        "-cp",
        f"{conf_dir}:{jars(server)}/*" if conf_dir else f"{jars(server)}/*",
        main_class,
        *arguments,
    ]


def keytool(*arguments: str) -> None:
    """Run the JDK's tool for keys and certificates.

    Raises:
        ServerUnavailableError: if there is no Java, or keytool fails.
    """
    done = subprocess.run([_program("keytool"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerUnavailableError(f"keytool fails: {(done.stdout + done.stderr).strip()[-1000:]}")


@functools.cache
def _newer_java(least: int) -> str:
    """Return any Java on this machine of that version or a later one."""
    for program in (_program("java"), *sorted(map(str, Path("/usr/lib/jvm").glob("*/bin/java")))):
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
        match = re.search(r'version "(\d+)', done.stderr)
        if match is not None and int(match[1]) >= least:
            return program
    raise ServerUnavailableError(f"{NO_NEWER_JAVA} than 17 in JAVA_HOME, on PATH or in /usr/lib/jvm: {least} is needed")


def _program(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / name) if home else shutil.which(name)
    if program is None:
        raise ServerUnavailableError(f"there is no {name} on PATH (Debian: openjdk-17-jre-headless)")
    return program
