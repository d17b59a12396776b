"""Parsing of Spark's failure texts."""

from __future__ import annotations

import re

from distcommit.core.errors import plain_text, reason_text

_TASK = re.compile(r"Task (\d+) in stage ([\d.]+) failed (\d+) times?")
_HOST = re.compile(r"\(TID \d+\) \(([^\s)]+)")
_WORKER_DIED = re.compile(r"Python worker exited unexpectedly|Python worker failed to connect back")
_EXECUTOR_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+).*?\)(?: Reason: ([^\n]*))?")
_EXIT_CODE = re.compile(r"(?:exited with code|exit code|exit status)[:\s]*(\d+)", re.IGNORECASE)
_JVM_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError(?:: ([^\n]*))?")
_PYTHON_ERROR = re.compile(r"^([A-Za-z_][\w.]*(?:: [^\n]*)?)$", re.MULTILINE)
_PREFIX = re.compile(r"^(?:An error occurred while calling [^\n]*\n)?(?:: )?(?:[\w.$]+(?:Exception|Error): )*")
CAN_NOT_RUN = re.compile(
    r"No module named '[\w.]+'|Can't get attribute '\w+' on <module 'distcommit[\w.]*'"
    r"|Cannot run program \"[^\"]*\"[^\n]*|Python in worker has different version[^\n]*?(?=, PySpark|\n|$)"
    r"|\w+ >= [\d.]+ must be installed[^\n]*|Error from python worker:\s*[^\n]*"
)
"""Pattern of the failures of executors whose Python cannot run this package."""
_SIGNALS = {
    134: "SIGABRT",
    137: "SIGKILL, as by the kernel or a resource manager when memory runs out",
    139: "SIGSEGV",
    143: "SIGTERM",
}


def describe_death(failure: str) -> str:
    """Describe the process that died, from the text of a failed job; empty if none died."""
    if match := _EXECUTOR_LOST.search(failure):
        reason = plain_text(match[2] or "Spark reports no reason", 300).rstrip(". ")
        code = _EXIT_CODE.search(reason)
        signal = _SIGNALS.get(int(code[1][:9]), "") if code else ""
        return f"executor {match[1]} died: {reason}" + (f" ({signal})" if signal else "")
    if match := _JVM_MEMORY.search(failure):
        return f"an executor's JVM ran out of memory: {plain_text(match[1] or 'no details', 300)}"
    if "Traceback (most recent call last)" in failure and re.search(r"^MemoryError", failure, re.MULTILINE):
        return "a Python worker ran out of memory (MemoryError)"
    if _WORKER_DIED.search(failure):
        return (
            "a Python worker died; Spark reports no reason: a signal, such as the kernel's when memory runs out, or"
            " a crash in native code"
        )
    return ""


def failure_text(failure: str) -> str:
    task, host = _TASK.search(failure), _HOST.search(failure)
    location = f" on {host[1]}" if host else ""
    task_text = f"task {task[1]} of stage {task[2]}{location} failed {task[3]} times: " if task else ""
    return " ".join(reason_text(task_text + (describe_death(failure) or _cause(failure))).split())


def _cause(failure: str) -> str:
    _, trace, after = failure.rpartition("Traceback (most recent call last)")
    errors = _PYTHON_ERROR.findall(after) if trace else []
    return errors[-1] if errors else _PREFIX.sub("", failure.strip()).partition("\n")[0]
