"""A store with an emptied file, as after a crash of a file system without journal."""

from __future__ import annotations

from pathlib import Path

from tests.drills.drill import Drilled
from tests.drills.quick_drills import KafkaHere, Printed, a_job, more
from tests.drills.registry import drill


def newest(folder: Path, pattern: str) -> Path:
    """Return the last file of a pattern by name."""
    return max(folder.glob(pattern))


def _emptied(situation: KafkaHere, pattern: str) -> Printed:
    """Empty a file, run the job, and check that `status`, `store verify` and `store repair` report it."""
    newest(situation.folder, pattern).write_bytes(b"")
    situation.run(5)
    printed = Printed(situation)
    for command in ("status", "store verify", "store repair --dry-run"):
        done = situation.type(f"distcommit {command} {situation.path}")
        if done.returncode != 5:
            printed.result.problems.append(f"{command} ended with {done.returncode}: {done.stdout}")
    return printed


def _rebuilt(printed: Printed, situation: KafkaHere) -> Drilled:
    printed.type(printed.problem("FILE_UNREADABLE")["command"])
    situation.run(0)
    more(situation)
    situation.run(0)
    return printed.ended()


@drill("FIXED_SETTINGS_CORRUPT: or make sure that the job file has the settings", quick=True)
def emptied_settings(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        return _rebuilt(_emptied(situation, "store/settings/*.json"), situation)


@drill("FOLDER_CLAIM_CORRUPT: `distcommit store rebuild` writes it again from the store", quick=True)
def emptied_claim_of_output(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        return _rebuilt(_emptied(situation, "output/.distcommit/owner.json"), situation)


@drill("FOLDER_CLAIM_CORRUPT: `distcommit store rebuild` writes it again from the store", quick=True)
def emptied_claim_of_staging(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        return _rebuilt(_emptied(situation, "staging/.distcommit/owner.json"), situation)


@drill("STORE_MARKER_CORRUPT: `distcommit store rebuild` writes it again from the claim of the output", quick=True)
def emptied_store_marker(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        printed = _emptied(situation, "store/store.json")
        printed.refused(f"distcommit status {situation.path}", "the store's marker is corrupt.*rebuild` writes it", 5)
        printed.type(f"distcommit store rebuild {situation.path}")
        situation.run(0)
        return printed.ended()


@drill(
    "FILE_UNREADABLE",
    "LOG_SEGMENT_CORRUPT: restore this file from a backup; if it is lost, `distcommit store rebuild`",
    quick=True,
)
def emptied_segment_of_job_log(folder: Path) -> Drilled:
    with a_job(folder, runs=2) as situation:
        return _rebuilt(_emptied(situation, "store/log/job/*.seg"), situation)


@drill("LOG_SEGMENT_CORRUPT: restore this file from a backup; if it is lost, `distcommit store rebuild`", quick=True)
def emptied_segment_of_bucket_log(folder: Path) -> Drilled:
    with a_job(folder, runs=2) as situation:
        newest(situation.folder, "store/log/bucket=00001/*.seg").write_bytes(b"")
        situation.run(1)
        return _rebuilt(Printed(situation), situation)


@drill("LOG_SEGMENT_MISSING: restore the file from a backup; if it is lost, `distcommit store rebuild`", quick=True)
def missing_segment_of_bucket_log(folder: Path) -> Drilled:
    with a_job(folder, runs=3) as situation:
        segments = sorted(situation.folder.glob("store/log/bucket=00001/*.seg"))
        segments[-2].unlink()
        situation.run(1)
        return _rebuilt(Printed(situation), situation)


@drill("LOG_TAIL_LOST: restore the newest segments; if they are lost", quick=True)
def lost_tail_of_bucket_log(folder: Path) -> Drilled:
    with a_job(folder, runs=2) as situation:
        for segment in sorted(situation.folder.glob("store/log/bucket=00001/*.seg"))[-3:]:
            segment.unlink()
        situation.run(1)
        return _rebuilt(Printed(situation), situation)


@drill("RUN_RECORD_UNREADABLE", quick=True)
def emptied_record_of_a_run(folder: Path) -> Drilled:
    with a_job(folder) as situation:
        for path in situation.folder.glob("store/runs/*.json"):
            path.write_bytes(b"")
        printed = Printed(situation)
        printed.type(printed.problem("RUN_RECORD_UNREADABLE")["command"])
        situation.run(0)
        return printed.ended()
