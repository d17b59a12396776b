"""Fixed settings of a store: recorded once by the first run and compared from then on."""

from __future__ import annotations

import errno
import random
from functools import partial

import pytest

from distcommit.core.errors import (
    ConfigurationError,
    CorruptError,
    FencedError,
    TransientError,
    UnknownVersionError,
)
from distcommit.core.records.fixed_settings import FixedSetting, FixedSettings
from distcommit.engine.committing.recover import recover_partition
from distcommit.engine.run_settings import RunSettings
from distcommit.stores.state.checksummed_json import encode_document
from distcommit.stores.state.job_store import JobStore
from distcommit.stores.state.recorded_fixed_settings import (
    RecordedSettings,
    RecordMark,
    change_settings,
    read_settings,
    record_settings,
    require_settings,
)
from distcommit.testing.fakes.faulty_calls import Crashed
from distcommit.testing.fakes.model_source import ModelDataset, ModelSource
from tests.simulation.damage import of_version
from tests.simulation.programs.parts import SOURCE, run_pinned
from tests.simulation.simulated_posix import SimulatedPosix
from tests.unit.engine.committing.situations import WORLD
from tests.unit.engine.driver.machines import Machine, Meeting, fails

TOPIC = FixedSettings(
    {"source.type": FixedSetting("kafka"), "source.dataset": FixedSetting("topic")}, "distcommit carry"
)
PARTITION = FixedSettings(
    {"source.type": FixedSetting("kafka"), "source.dataset": FixedSetting("partition")}, "distcommit carry"
)
CLUSTER = {"source.cluster": FixedSetting("a", "read the old one.")}
DOCUMENT = "/job/store/settings/000000000001.json"


def store(machine: SimulatedPosix) -> JobStore:
    return WORLD.store(machine)


def documents(machine: Machine) -> list[str]:
    return sorted(machine.paths("/job/store/settings"))


def test_fixed_settings_are_recorded_once_and_compared_from_then_on() -> None:
    machine = Machine()
    require_settings(store(machine), PARTITION)
    assert read_settings(store(machine)) == RecordedSettings(1, {}), "a comparison must not record settings"
    record_settings(store(machine), TOPIC)
    before = machine.paths("/job/store")
    for act in (require_settings, record_settings):
        act(store(machine), TOPIC)
        with pytest.raises(ConfigurationError, match="differs from the one that this store was filled with") as caught:
            act(store(machine), PARTITION)
        error = caught.value
        assert error.ids.items() >= {"store": "/job/store", "setting": "source.dataset"}.items()
        assert (error.expected, error.found) == ("source.dataset: topic", "source.dataset: partition")
        assert "`distcommit carry`" in error.todo
    assert machine.paths("/job/store") == before
    assert documents(machine) == [DOCUMENT]


def test_new_fixed_settings_are_added_and_recorded_ones_are_kept() -> None:
    machine = Machine()
    record_settings(store(machine), FixedSettings({"source.type": FixedSetting("kafka")}))
    record_settings(store(machine), TOPIC)
    record_settings(store(machine), TOPIC, CLUSTER)
    record_settings(store(machine), TOPIC, CLUSTER)
    record_settings(store(machine), TOPIC)
    recorded = read_settings(store(machine))
    assert recorded.settings == {"source.type": "kafka", "source.dataset": "topic"}
    assert recorded.source_facts == {"source.cluster": "a"}
    assert len(documents(machine)) == 3


def test_missing_fixed_setting_is_refused() -> None:
    machine = Machine()
    record_settings(store(machine), TOPIC)
    with pytest.raises(ConfigurationError, match=r"found source\.dataset: not set"):
        require_settings(store(machine), FixedSettings({"source.type": FixedSetting("kafka")}))


def test_changed_setting_that_cannot_be_migrated_is_refused_with_its_remedy() -> None:
    machine = Machine()
    record_settings(store(machine), TOPIC, CLUSTER)
    with pytest.raises(ConfigurationError, match=r"source\.cluster: a; found source\.cluster: b") as caught:
        record_settings(store(machine), TOPIC, {"source.cluster": FixedSetting("b", "read the old one.")})
    assert caught.value.todo == "read the old one"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", CorruptError),
        (b"not ours", CorruptError),
        (encode_document(RecordedSettings(1, {}))[:-3], CorruptError),
        (of_version(encode_document(RecordedSettings(1, {})), 2), UnknownVersionError),
    ],
)
def test_unreadable_settings_document_is_named_and_not_recreated(data: bytes, kind: type[CorruptError]) -> None:
    machine = Machine()
    record_settings(store(machine), TOPIC)
    machine.put(DOCUMENT, data)
    for act in (require_settings, record_settings):
        with pytest.raises(kind) as caught:
            act(store(machine), TOPIC)
        assert caught.value.ids == {"path": DOCUMENT}
    assert documents(machine) == [DOCUMENT]


def test_exactly_one_of_two_concurrent_runs_with_different_settings_is_refused() -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            record_settings(store(machine), PARTITION)
        except ConfigurationError:
            refused.append("other")

    for number in range(1000):
        refused.clear()
        machine = Machine()
        own_store = store(machine)
        meeting = Meeting(machine, number, other)
        machine.faults.append(meeting)
        try:
            record_settings(own_store, TOPIC)
        except ConfigurationError:
            refused.append("own")
        if meeting.number >= 0:
            break
        winner = "topic" if refused == ["other"] else "partition"
        assert len(refused) == 1, number
        assert read_settings(own_store).settings["source.dataset"] == winner, number
        assert documents(machine) == [DOCUMENT], number
    assert number > 5


def test_recorded_settings_survive_a_power_loss_whichever_process_put_them() -> None:
    for number in range(1000):
        machine = Machine()
        store(machine)
        machine.syncfs("/")
        meeting = Meeting(machine, number, crash)
        machine.faults.append(meeting)
        try:
            record_settings(store(machine), TOPIC)
        except Crashed:
            pass
        else:
            break
        killed = machine.after_kill()
        record_settings(store(killed), TOPIC)
        assert [e.name for e in store(killed).fs.list_folder("/job/store/settings")] == ["000000000001.json"], number
        for after in killed.after_power_loss(random.Random(number), 2, 3):
            assert read_settings(store(after)).settings["source.dataset"] == "topic", number
    assert number > 5


@pytest.mark.parametrize("kind", ["create", "mkdir", "rename", "write"])
def test_settings_put_with_an_error_is_completed_when_repeated(kind: str) -> None:
    machine = Machine()
    machine.faults.append(fails(errno.EIO, kind, "/job/store/settings"))
    with pytest.raises(TransientError, match="cannot be recorded"):
        record_settings(store(machine), TOPIC)
    machine.faults.clear()
    record_settings(store(machine), TOPIC)
    assert read_settings(store(machine)).settings["source.dataset"] == "topic"


def crash() -> None:
    raise Crashed


# -- settings with a known value in stores that have not recorded them


def grouped(by: str) -> FixedSettings:
    return FixedSettings(
        {**TOPIC.settings, "sink.commit_group": FixedSetting(by, unrecorded="dataset")}, "distcommit carry"
    )


def test_setting_with_its_original_value_is_not_recorded() -> None:
    """Older versions of the program, which do not know the setting, can still use the store."""
    machine = Machine()
    record_settings(store(machine), grouped("dataset"))
    require_settings(store(machine), TOPIC)
    assert "sink.commit_group" not in read_settings(store(machine)).settings


@pytest.mark.parametrize(("filled", "now"), [("dataset", "table"), ("table", "dataset"), ("table", "topic's table")])
def test_another_commit_group_setting_is_refused_with_both_values(filled: str, now: str) -> None:
    machine = Machine()
    record_settings(store(machine), grouped(filled))
    before = machine.paths("/job/store")
    for act in (require_settings, record_settings):
        act(store(machine), grouped(filled))
        with pytest.raises(ConfigurationError, match="differs from the one that this store was filled with") as caught:
            act(store(machine), grouped(now))
        error = caught.value
        assert (error.expected, error.found) == (f"sink.commit_group: {filled}", f"sink.commit_group: {now}")
    assert machine.paths("/job/store") == before


def test_new_store_accepts_any_commit_group_setting() -> None:
    machine = Machine()
    require_settings(store(machine), grouped("table"))
    record_settings(store(machine), grouped("table"))
    assert read_settings(store(machine)).settings["sink.commit_group"] == "table"
    with pytest.raises(
        ConfigurationError, match=r"found sink\.commit_group: not set"
    ):  # like a program that does not know the setting
        require_settings(store(machine), TOPIC)


def test_paused_settings_change_never_overrides_later_changes() -> None:
    """Meanwhile other processes completed its move, and then moved back to the original value."""
    machine = Machine()
    record_settings(store(machine), TOPIC)

    def other_changes() -> None:
        if len(documents(machine)) > 1:
            raise FencedError("another process has taken the move over")
        for value in ("partition", "topic"):
            change_settings(store(machine), {"source.dataset": value}, lambda: None)

    with pytest.raises(FencedError):
        change_settings(store(machine), {"source.dataset": "partition"}, other_changes)
    assert read_settings(store(machine)).settings["source.dataset"] == "topic"
    assert len(documents(machine)) == 3


# -- settings that do not bind the store yet


def partitioned(by: str, *, binds: bool) -> FixedSettings:
    return FixedSettings({**TOPIC.settings, "sink.partition_by": FixedSetting(by, "other folders.", binds=binds)})


def test_non_binding_setting_may_change_and_all_its_values_are_recorded() -> None:
    machine = Machine()
    for by in ("hour", "day", "hour"):
        record_settings(store(machine), partitioned(by, binds=False))
    assert read_settings(store(machine)).unfixed_values == {"sink.partition_by": ("hour", "day")}
    assert read_settings(store(machine)).settings == {"source.type": "kafka", "source.dataset": "topic"}
    assert len(documents(machine)) == 2
    for by in ("hour", "day", "month"):
        for act in (require_settings, record_settings):
            with pytest.raises(ConfigurationError, match=r"expected sink\.partition_by: hour, day; found") as refused:
                act(store(machine), partitioned(by, binds=True))
            assert refused.value.todo == "other folders"


def test_binding_setting_must_keep_its_recorded_value() -> None:
    machine = Machine()
    record_settings(store(machine), partitioned("day", binds=False))
    record_settings(store(machine), partitioned("day", binds=True))
    record_settings(store(machine), partitioned("day", binds=False))
    assert read_settings(store(machine)).settings["sink.partition_by"] == "day"
    for binds in (True, False):
        with pytest.raises(ConfigurationError, match=r"expected sink\.partition_by: day; found"):
            require_settings(store(machine), partitioned("hour", binds=binds))
    assert len(documents(machine)) == 2


def test_store_without_recorded_values_accepts_any_binding_value() -> None:
    """Older versions of the program recorded no values."""
    machine = Machine()
    record_settings(store(machine), TOPIC)
    assert b"noted" not in machine.read_file(DOCUMENT)
    record_settings(store(machine), partitioned("day", binds=True))
    require_settings(store(machine), partitioned("day", binds=True))


# -- settings that a run replaces while nothing is committed


def begun(machine: SimulatedPosix) -> RunSettings:
    """Return a run that has fenced all logs."""
    settings = WORLD.begin(machine, SOURCE)
    for partition in range(WORLD.partitions):
        recover_partition(settings, partition)
    return settings


def record_as(settings: RunSettings, fixed: FixedSettings) -> None:
    record_settings(settings.store, fixed, epoch=settings.epoch)


def test_run_replaces_settings_while_nothing_is_committed() -> None:
    machine = Machine()
    record_settings(store(machine), TOPIC, CLUSTER, epoch=begun(machine).epoch)
    require_settings(store(machine), PARTITION)
    record_as(begun(machine), PARTITION)
    recorded = read_settings(store(machine))
    assert recorded == RecordedSettings(1, {"source.type": "kafka", "source.dataset": "partition"})
    record_as(begun(machine), PARTITION)
    assert len(documents(machine)) == 3, "the first record, the announcement, the replacement"
    require_settings(store(machine), TOPIC)


def test_committed_dataset_freezes_settings_and_is_named() -> None:
    machine = Machine()
    record_as(begun(machine), TOPIC)
    run_pinned(WORLD, machine, SOURCE, TOPIC)
    settings = begun(machine)
    for act in (partial(require_settings, store(machine)), partial(record_as, settings)):
        with pytest.raises(ConfigurationError, match="dataset a with a watermark") as refused:
            act(PARTITION)
        assert refused.value.id == "SETTING_FIXED"
    assert documents(machine) == [DOCUMENT]


def test_operator_command_freezes_settings_before_it_puts_any_state() -> None:
    machine = Machine()
    record_as(begun(machine), TOPIC)
    record_settings(store(machine), TOPIC)
    assert read_settings(store(machine)).mark is RecordMark.FINAL
    settings = begun(machine)
    record_as(settings, TOPIC)
    with pytest.raises(ConfigurationError, match="an operator command has put"):
        record_as(settings, PARTITION)


def test_operator_command_with_changed_settings_is_refused_and_names_the_run_that_records_them() -> None:
    machine = Machine()
    record_as(begun(machine), TOPIC)
    with pytest.raises(ConfigurationError) as refused:
        record_settings(store(machine), PARTITION)
    assert "`distcommit run`" in refused.value.todo
    assert refused.value.ids["stored"] == "nothing that depends on the setting"
    record_as(begun(machine), PARTITION)
    record_settings(store(machine), PARTITION)


def test_run_that_is_fenced_replaces_nothing_at_any_moment() -> None:
    """The newer run has the recorded settings, so that it puts no other document, unless one was announced."""
    for number in range(1000):
        machine = Machine()
        record_as(begun(machine), TOPIC)
        older = begun(machine)
        newer: list[RunSettings] = []

        def begins(machine: Machine = machine, newer: list[RunSettings] = newer) -> None:
            newer.append(begun(machine))
            record_as(newer[0], TOPIC)

        meeting = Meeting(machine, number, begins)
        machine.faults.append(meeting)
        try:
            record_as(older, PARTITION)
        except FencedError:
            assert newer, number
        if meeting.number >= 0:
            break
        if newer and read_settings(store(machine)).settings["source.dataset"] != "topic":
            pytest.fail(f"the fenced run replaced the settings at operation {number}")
    assert number > 10


def test_bucket_that_the_run_could_not_fence_freezes_settings() -> None:
    machine = Machine()
    record_as(begun(machine), TOPIC)
    settings = WORLD.begin(machine, SOURCE)
    with pytest.raises(ConfigurationError, match="could not fence"):
        record_as(settings, PARTITION)


def test_read_failures_alone_do_not_freeze_settings() -> None:
    machine = Machine()
    settings = begun(machine)
    record_as(settings, TOPIC)
    failing = ModelSource({"a": ModelDataset({"0": 1}, fails=frozenset("0"))})
    run_pinned(WORLD, machine, failing, TOPIC)
    assert store(machine).bucket_log(0).refresh().state_of("a").read_failure is not None
    record_as(begun(machine), PARTITION)
    assert read_settings(store(machine)).settings["source.dataset"] == "partition"


def test_published_file_without_a_record_freezes_settings() -> None:
    machine = Machine()
    record_as(begun(machine), TOPIC)
    WORLD.run(machine, SOURCE)
    published = [path for path in machine.paths("/job/output") if path.endswith(".parquet")]
    fresh = Machine()
    record_as(begun(fresh), TOPIC)
    fresh.mkdir(published[0].rpartition("/")[0])
    fresh.put(published[0], b"data")
    with pytest.raises(ConfigurationError, match="published file"):
        record_as(begun(fresh), PARTITION)
