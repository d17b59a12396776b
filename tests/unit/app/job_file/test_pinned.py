"""Which settings of a job file are pinned, and the command that a message names."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.job_file.config import parse_config
from distcommit.app.job_file.fixed_settings import fixed_settings_of
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.fs.posix_calls.local import LocalFileSystem
from distcommit.stores.state.fixed_settings import record_settings, require_settings
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.testing.fakes.model_source import ModelSource
from distcommit.testing.fakes.sqlite_sink import SqliteSink

PATHS = {"store": "/j/store", "staging": "/j/staging-9", "output": "/j/output"}
KAFKA = {"type": "kafka", "brokers": "b:1", "topics": ["t"]}
FILES = {"sink.type": "files", "sink.commit_group": "dataset"}
MODEL = "tests.unit.app.job_file.test_pinned:PinningSource"


class PinningSource(ModelSource):
    def pins(self) -> dict[str, FixedSetting]:
        return {"class": FixedSetting("as_it_was:Named"), "region": FixedSetting("eu")}


class PinningSink(SqliteSink):
    def pins(self) -> dict[str, FixedSetting]:
        return {"table": FixedSetting("t")}


def pinned(**sections: Any) -> dict[str, str]:
    config = parse_config({"job": "j", "source": KAFKA, "paths": PATHS, **sections}, Path("/j/job.yaml"))
    return {name: pin.value for name, pin in fixed_settings_of(config).settings.items() if pin.binds}


def test_of_kafka_to_files_what_names_datasets_and_the_types_are_pinned() -> None:
    assert pinned() == {"source.type": "kafka", "source.dataset": "topic", **FILES}


@pytest.mark.parametrize(
    "change",
    [
        {"job": "k"},
        {"source": {**KAFKA, "brokers": "c:2", "start": "latest", "topics": ["u"], "exclude": ["t"]}},
        {"source": {**KAFKA, "expired_offsets": "skip", "records_per_work_unit": 1, "client": {"a": "b"}}},
        {"sink": {"format": "avro", "compression": "none", "partition_by": {"granularity": "hour"}}},
        {"sink": {"target_file_bytes": 1, "access": {"mode": "0640"}}},
        {"converters": [{"type": "json", "fields": {"a": "string"}}], "on_rejected": "divert"},
        {"commit": {"policy": "successful", "delivery": "at_least_once", "durability": "none", "min_interval_ms": 1}},
        {"commit": {"scope": "job"}},
        {"paths": {name: f"/moved{place}" for name, place in PATHS.items()}},
        {"replay": {"max_attempts": 9}, "task": {"attempts": 1}, "limits": {"seconds": 1}, "lock": {"lease_ttl_s": 1}},
        {"spark": {"master": "local[1]", "partitions": 3}},
    ],
)
def test_other_settings_may_change(change: dict[str, Any]) -> None:
    assert pinned(**change) == pinned()


def test_what_replaces_partitions_pins_what_a_partition_is() -> None:
    """With other folders, what is in those of before would stay beside what takes its place."""

    def of(*partition_by: dict[str, str]) -> str:
        sink = {"publish": "replace_partitions", "partition_by": list(partition_by)}
        return pinned(sink=sink)["sink.partition_by"]

    day, site = {"column": "t", "granularity": "day"}, {"field": "site"}
    assert of(day) == of({"column": "t"}) != of({"column": "t", "granularity": "hour"})
    assert len({of(day), of(site), of(day, site), of(site, day)}) == 4


def test_files_of_before_stay_beside_what_replaces_partitions_of_other_folders(tmp_path: Path) -> None:
    """Whoever wrote them: also where files were only added at first, or again."""

    def of(publish: str, *granularities: str) -> FixedSettings:
        parts = [{"column": "t", "granularity": granularity} for granularity in granularities]
        sink = {"publish": publish, "partition_by": parts} if parts else {"publish": publish}
        return fixed_settings_of(
            parse_config({"job": "j", "source": KAFKA, "paths": PATHS, "sink": sink}, Path("/j.yaml"))
        )

    def filled_with(*before: FixedSettings) -> JobStore:
        places = (str(tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}") for name in PATHS)
        store = open_store(LocalFileSystem(), Roots(*places), "j", 1, create=True)
        for settings in before:
            record_settings(store, settings)
        return store

    day = of("replace_partitions", "day")
    for before in (of("append", "hour"), of("append"), of("replace", "hour"), of("replace_partitions", "hour")):
        with pytest.raises(ConfigurationError, match=r"sink\.partition_by") as refused:
            require_settings(filled_with(before), day)
        assert "give the job new ones (paths)" in refused.value.todo
    require_settings(filled_with(of("append", "hour")), of("append", "day"))
    require_settings(filled_with(of("append", "day")), day)
    store = filled_with(of("append", "day"), day)
    require_settings(store, of("append", "day"))
    with pytest.raises(ConfigurationError, match=r"sink\.partition_by"):
        require_settings(store, of("append", "hour"))


def test_a_class_of_the_user_s_own_says_what_it_pins() -> None:
    source = {"type": "python", "class": MODEL}
    assert pinned(source=source) == {
        "source.type": "python",
        "source.class": "as_it_was:Named",
        "source.region": "eu",
        **FILES,
    }
    plain = {"type": "python", "class": "distcommit.testing.fakes.model_source:ModelSource"}
    assert pinned(source=plain)["source.class"] == "distcommit.testing.fakes.model_source:ModelSource"
    sink = {"type": "python", "class": "tests.unit.app.job_file.test_pinned:PinningSink", "options": {"path": "/j/db"}}
    assert pinned(sink=sink)["sink.table"] == "t"
    assert pinned(sink=sink)["sink.name"] == SqliteSink.name


def test_a_micro_batch_pins_the_column_that_names_datasets() -> None:
    assert pinned(source={"type": "micro_batch", "dataset_column": "site"})["source.dataset_column"] == "site"


def test_the_command_names_new_folders_beside_the_old_ones() -> None:
    config = parse_config({"job": "j", "source": KAFKA, "paths": PATHS}, Path("/j/job.yaml"))
    command = fixed_settings_of(config, Path("/j/my job.yaml"), ["source.dataset=partition"]).carried_by
    assert shlex.split(command) == [
        *("distcommit", "migrate", "import-watermarks", "/j/my job.yaml", "--set", "source.dataset=partition"),
        *("--set", "paths.store=/j/store-2", "--set", "paths.staging=/j/staging-10"),
        *("--set", "paths.output=/j/output-2", "--from", "/j/my job.yaml"),
    ]
    by_hand = "distcommit migrate import-watermarks NEW.yaml --from OLD.yaml"
    assert fixed_settings_of(config).carried_by == by_hand
    assert fixed_settings_of(config, Path("j.yaml"), ["paths.store=/k"]).carried_by == by_hand
