"""One setting has one name in what is printed: the one that the user's files have."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prozess.harness.errors import BadInput
from prozess.validation.first_lines import first_lines
from prozess.validation.remarks import remarks_of
from prozess.validation.setting_names import SettingNames, brokers_names
from prozess.validation.terminal import prediction_lines
from tests.support.examples import examples
from tests.support.predictions import VERSION, predicted

VALUES = {
    "default.replication.factor": ["1", "3"],
    "min.insync.replicas": ["1", "2"],
    "log.flush.interval.messages": ["1", "10000"],
    "log.retention.ms": ["1000", "60000", "604800000"],
    "log.retention.minutes": ["1", "10080"],
    "log.retention.hours": ["1", "168"],
    "log.retention.bytes": ["1024", "-1"],
    "log.cleanup.policy": ["delete", "compact"],
    "log.cleaner.delete.retention.ms": ["100", "86400000"],
    "log.segment.bytes": ["1048576"],
    "message.max.bytes": ["1000", "1048588"],
    "log.message.timestamp.type": ["CreateTime", "LogAppendTime"],
}
TOPICS = {"replication.factor": ["3"], "retention.ms": ["2000"], "flush.messages": ["1"], "cleanup.policy": ["compact"]}


def files(values):
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(some) for name, some in values.items()})


def printed(prediction):
    lines = [text for _, text in (*prediction_lines(prediction), *first_lines(prediction))]
    return lines + [remark.sentence for remark in remarks_of(prediction, strict=True)]


def has(text, name):
    """Whether the text has this name, and not as a part of a longer one."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text) is not None


@pytest.mark.hypothesis
@given(files(VALUES), st.none() | files(TOPICS))
@settings(max_examples=examples(60), deadline=None)
def test_what_only_the_brokers_files_set_has_the_brokers_name(broker, topic):
    try:
        found = predicted({"acks": "1"}, consumer={"group.id": "g"}, topic=topic, broker=broker)
    except BadInput:
        return
    for name, others in brokers_names(VERSION).items():
        given_ = next((other for other in others if other in broker), None)
        if given_ is None or name in (topic or {}):
            continue
        for line in printed(found):
            assert not has(line, name), (name, given_, line)


@pytest.mark.parametrize(("name", "week"), [("ms", "604800000"), ("minutes", "10080"), ("hours", "168")])
def test_a_change_has_the_name_and_the_unit_of_the_setting_that_it_changes(name, week):
    found = predicted(None, consumer={"group.id": "g"}, topic=None, broker={f"log.retention.{name}": "1"})
    (line,) = [line for line in printed(found) if "[lifetime/records]" in line]
    assert f"→ log.retention.{name} longer than any consumer may be away, such as log.retention.{name}={week}," in line


def test_the_brokers_setting_is_named_where_it_decides_and_the_topics_where_the_topic_has_its_own():
    broker = {"default.replication.factor": "3", "min.insync.replicas": "2", "log.flush.interval.messages": "1"}
    inherited = printed(predicted({}, topic=None, broker=broker))
    assert "log.flush.interval.messages=1: acknowledged records survive a loss of power" in inherited
    assert any(line.startswith("default.replication.factor=3, min.insync.replicas=2: ") for line in inherited)
    own = printed(predicted({}, topic={"replication.factor": "3", "flush.messages": "1"}, broker=broker))
    assert "flush.messages=1: acknowledged records survive a loss of power" in own
    assert any(line.startswith("replication.factor=3, min.insync.replicas=2: ") for line in own)


def test_names_that_have_another_one_in_them_are_left_as_they_are():
    names = SettingNames(predicted({}, topic=None, broker={"log.retention.ms": "1", "log.retention.bytes": "5"}).parts)
    text = "local.retention.ms=1, retention.ms=1 (retention.bytes) and delete.retention.ms, my-retention.ms"
    assert names.sentence(text) == (
        "local.retention.ms=1, log.retention.ms=1 (log.retention.bytes) and delete.retention.ms, my-retention.ms"
    )
