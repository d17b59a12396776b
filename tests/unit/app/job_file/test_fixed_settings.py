"""Fixed settings of a job file, and the command printed when one of them changes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from distcommit.app.job_file.fixed_settings import fixed_settings_of
from distcommit.app.job_file.load_job_file import parse_config
from distcommit.core.errors import ConfigurationError
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.fs.local_disk.local_file_system import LocalFileSystem
from distcommit.stores.state.job_store import JobStore, Roots, open_store
from distcommit.stores.state.recorded_fixed_settings import record_settings, require_settings
from distcommit.testing.fakes.model_source import ModelSource
from distcommit.testing.fakes.sqlite_sink import SqliteSink

PATHS = {"store": "/j/store", "staging": "/j/staging-9", "output": "/j/output"}
KAFKA = {"type": "kafka", "brokers": "b:1", "topics": ["t"]}
FILES = {"sink.type": "files", "sink.commit_group": "dataset"}
MODEL = "tests.unit.app.job_file.test_fixed_settings:PinningSource"


class PinningSource(ModelSource):
    def fixed_settings(self) -> dict[str, FixedSetting]:
        return {"class": FixedSetting("as_it_was:Named"), "region": FixedSetting("eu")}


class PinningSink(SqliteSink):
    def fixed_settings(self) -> dict[str, FixedSetting]:
        return {"table": FixedSetting("t")}


def pinned(**sections: Any) -> dict[str, str]:
    config = parse_config({"job": "j", "source": KAFKA, "paths": PATHS, **sections}, Path("/j/job.yaml"))
    return {name: pin.value for name, pin in fixed_settings_of(config).settings.items() if pin.binds}


def test_dataset_naming_and_types_are_fixed_settings_of_a_kafka_to_files_job() -> None:
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
def test_settings_that_are_not_fixed_may_change(change: dict[str, Any]) -> None:
    assert pinned(**change) == pinned()


def test_partition_by_is_a_fixed_setting_if_partitions_are_replaced() -> None:
    """With other folders, files in the old folders would remain beside their replacements."""

    def fixed_partition_by(*partition_by: dict[str, str]) -> str:
        sink = {"publish": "replace_partitions", "partition_by": list(partition_by)}
        return pinned(sink=sink)["sink.partition_by"]

    day, site = {"column": "t", "granularity": "day"}, {"field": "site"}
    assert (
        fixed_partition_by(day)
        == fixed_partition_by({"column": "t"})
        != fixed_partition_by({"column": "t", "granularity": "hour"})
    )
    assert (
        len(
            {
                fixed_partition_by(day),
                fixed_partition_by(site),
                fixed_partition_by(day, site),
                fixed_partition_by(site, day),
            }
        )
        == 4
    )


def test_replacing_partitions_is_refused_in_an_output_with_other_folders(tmp_path: Path) -> None:
    """The publisher of the older files does not matter; they may also come from a job that appended."""

    def fixed(publish: str, *granularities: str) -> FixedSettings:
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

    day = fixed("replace_partitions", "day")
    for before in (
        fixed("append", "hour"),
        fixed("append"),
        fixed("replace", "hour"),
        fixed("replace_partitions", "hour"),
    ):
        with pytest.raises(ConfigurationError, match=r"sink\.partition_by") as refused:
            require_settings(filled_with(before), day)
        assert "give the job new folders (paths)" in refused.value.todo
    require_settings(filled_with(fixed("append", "hour")), fixed("append", "day"))
    require_settings(filled_with(fixed("append", "day")), day)
    store = filled_with(fixed("append", "day"), day)
    require_settings(store, fixed("append", "day"))
    with pytest.raises(ConfigurationError, match=r"sink\.partition_by"):
        require_settings(store, fixed("append", "hour"))


def test_custom_class_defines_its_fixed_settings() -> None:
    source = {"type": "python", "class": MODEL}
    assert pinned(source=source) == {
        "source.type": "python",
        "source.class": "as_it_was:Named",
        "source.region": "eu",
        **FILES,
    }
    plain = {"type": "python", "class": "distcommit.testing.fakes.model_source:ModelSource"}
    assert pinned(source=plain)["source.class"] == "distcommit.testing.fakes.model_source:ModelSource"
    sink = {
        "type": "python",
        "class": "tests.unit.app.job_file.test_fixed_settings:PinningSink",
        "options": {"path": "/j/db"},
    }
    assert pinned(sink=sink)["sink.table"] == "t"
    assert pinned(sink=sink)["sink.name"] == SqliteSink.name


def test_dataset_column_of_micro_batches_is_a_fixed_setting() -> None:
    assert pinned(source={"type": "micro_batch", "dataset_column": "site"})["source.dataset_column"] == "site"


def test_printed_import_command_names_new_folders_beside_the_old_ones() -> None:
    config = parse_config({"job": "j", "source": KAFKA, "paths": PATHS}, Path("/j/job.yaml"))
    command = fixed_settings_of(config, Path("/j/my job.yaml"), ["source.dataset=partition"]).carried_by
    assert shlex.split(command) == [
        *("distcommit", "migrate", "import-watermarks", "/j/my job.yaml", "--set", "source.dataset=partition"),
        *("--set", "paths.store=/j/store-2", "--set", "paths.staging=/j/staging-10"),
        *("--set", "paths.output=/j/output-2", "--from", "/j/my job.yaml"),
    ]
    generic_command = "distcommit migrate import-watermarks NEW.yaml --from OLD.yaml"
    assert fixed_settings_of(config).carried_by == generic_command
    assert fixed_settings_of(config, Path("j.yaml"), ["paths.store=/k"]).carried_by == generic_command
