"""What a change of settings does: promises that change, brokers that must restart, and what a running broker refuses."""

import pytest

from prozess.app.run_options import RunOptions
from prozess.harness.errors import BadInput
from prozess.harness.exit_codes import ExitCode
from prozess.validation.change import files_of
from prozess.validation.command import ValidationInput, compare, refuse_contradictions
from prozess.validation.remarks import FORMATS

SAFE = {
    "producer.properties": "acks=all\nenable.idempotence=true\n",
    "consumer.properties": "group.id=g\nenable.auto.commit=false\nauto.offset.reset=earliest\n",
    "topic.properties": "replication.factor=3\nmin.insync.replicas=2\nunclean.leader.election.enable=false\n",
    "server.properties": "default.replication.factor=3\nmin.insync.replicas=2\noffsets.topic.replication.factor=3\n",
}


@pytest.fixture
def compared(tmp_path, capsys):
    """What is printed of a change, and the exit code."""

    def compared(changes, before=None, *, version="4.4.0", output="text"):
        sides = []
        for name, changed in (("old", before or {}), ("new", changes)):
            sides.append(tmp_path / name)
            sides[-1].mkdir(exist_ok=True)
            for file, text in (SAFE | changed).items():
                (sides[-1] / file).write_text(text)
        given = ValidationInput(commits="sync-after", kafka_version=version)
        code = compare(
            given, *sides, RunOptions(tmp_path, "local", 1, "auto", quiet=False, as_json=False), format=output
        )
        return capsys.readouterr().out, code

    return compared


def test_nothing_that_differs_changes_nothing(compared):
    said, code = compared({})
    assert code == ExitCode.HELD
    assert said.startswith("✓ 0 settings differ; ")
    assert "0 lost, 0 gained" in said


def test_a_default_that_is_written_down_is_no_change(compared):
    said, _ = compared({"producer.properties": "acks=all\nenable.idempotence=true\nretries=2147483647\n"})
    assert "0 settings differ" in said


def test_a_promise_that_is_lost_is_an_error_at_the_line_that_changed(compared, tmp_path):
    weak = {"producer.properties": "acks=1\nenable.idempotence=false\n"}
    said, code = compared(weak)
    assert code == ExitCode.VIOLATED
    assert (
        "lost was promised, but broken by an open defect, and is possible after the change: a producer with acks=1"
        in said
    )
    said, _ = compared(weak, output="github")
    assert (
        f"::error file={tmp_path / 'new' / 'producer.properties'},line=1,title=change/lost::lost was promised" in said
    )


def test_the_way_back_gains_what_was_lost(compared):
    said, code = compared({}, {"producer.properties": "acks=1\nenable.idempotence=false\n"})
    assert code == ExitCode.HELD
    assert "lost was possible, and is promised, but broken by an open defect after the change" in said


def test_what_becomes_unclear_makes_it_unknown(compared):
    said, code = compared({"producer.properties": "acks=${ACKS}\nenable.idempotence=true\n"})
    assert code == ExitCode.UNKNOWN
    assert "acks is a placeholder" in said
    assert "lost was promised, but broken by an open defect, and is unknown after the change" in said


def with_broker(text):
    return {"server.properties": SAFE["server.properties"] + text}


def test_a_property_that_brokers_read_when_they_start_rolls_them(compared):
    said, code = compared(with_broker("replica.lag.time.max.ms=60000\n"))
    assert code == ExitCode.HELD
    assert "roll       replica.lag.time.max.ms of the broker: 30000, the default → 60000" in said
    assert "1 setting of the brokers must be rolled out by restarts" in said


def test_a_property_that_running_brokers_take_needs_no_restart(compared):
    said, _ = compared(with_broker("num.io.threads=12\nlog.retention.ms=1000000\n"))
    assert "restarts" not in said
    assert said.count("alter      ") == 2
    assert "--entity-default --alter" in said


@pytest.mark.parametrize(("after", "refused"), [(4, False), (16, False), (3, True), (17, True)])
def test_a_running_broker_at_most_halves_or_doubles_a_number_of_threads(compared, after, refused):
    said, _ = compared(with_broker(f"num.io.threads={after}\n"))
    assert ("In one step it is refused" in said) is refused


def test_eligible_leader_replicas_are_told_of_from_4_0_on(compared):
    changed = {"server.properties": SAFE["server.properties"].replace("min.insync.replicas=2", "min.insync.replicas=3")}
    assert "eligible.leader.replicas.version=1" in compared(changed)[0]
    assert "eligible.leader.replicas.version=1" not in compared(changed, version="3.9.2")[0]


def test_copies_are_changed_by_a_reassignment_and_topics_while_brokers_run(compared):
    said, _ = compared(
        {"topic.properties": SAFE["topic.properties"].replace("factor=3", "factor=2") + "retention.ms=9\n"}
    )
    assert "kafka-reassign-partitions.sh" in said
    assert "kafka-configs.sh --entity-type topics --alter" in said


@pytest.mark.parametrize("output", FORMATS)
def test_each_format_has_the_conclusion(compared, output):
    said, code = compared(with_broker("num.io.threads=12\n"), output=output)
    assert code == ExitCode.HELD
    assert "1 setting differs" in said


def test_a_directory_that_is_missing_empty_or_ambiguous_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is not there"):
        files_of(tmp_path / "nothing")
    with pytest.raises(BadInput, match=r"has no file of a configuration. Names begin with one of producer\.\*"):
        files_of(tmp_path)
    (tmp_path / "producer.properties").write_text("")
    (tmp_path / "producer.yaml").write_text("")
    with pytest.raises(BadInput, match=r"several files for the producer: producer.properties, producer.yaml"):
        files_of(tmp_path)
    assert files_of(tmp_path / "producer.yaml") == {"applications": (tmp_path / "producer.yaml",)}


def test_options_that_contradict_are_refused(tmp_path):
    for given, old, new, output, as_json, said in (
        (ValidationInput(), tmp_path, None, "text", False, "Give both of them"),
        (ValidationInput(producer=tmp_path), tmp_path, tmp_path, "text", False, "--producer names a file"),
        (ValidationInput(), None, None, "xml", False, "--format 'xml' is not known. Known: text, github"),
        (ValidationInput(), tmp_path, tmp_path, "text", True, "--json prints the whole result"),
    ):
        with pytest.raises(BadInput, match=said):
            refuse_contradictions(given, old, new, output, as_json=as_json)
