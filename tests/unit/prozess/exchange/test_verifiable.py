"""What verifiable clients printed, imported."""

import json

import pytest

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.verifiable.clients import split_value
from prozess.exchange.verifiable.events import read_verifiable
from prozess.harness.errors import BadInput
from prozess.harness.report.reports import report_run
from prozess.harness.run_directory import RunDirectory
from prozess.harness.schema import NONE
from prozess.harness.verdict import AnomalyOutcome, Verdict

START_MS = 1_700_000_000_000


class Tool:
    """What one client prints."""

    def __init__(self, path):
        self.path, self.lines = path, ["[2026-01-01] INFO a line of a logger"]
        self.say("startup_complete")

    def say(self, name, **more):
        self.lines.append(json.dumps({"timestamp": START_MS + 10 * len(self.lines), "name": name, **more}))

    def sent(self, value, offset, *, partition=0):
        self.say("producer_send_success", key=None, value=value, topic="t", partition=partition, offset=offset)

    def failed(self, value):
        self.say("producer_send_error", key=None, value=value, topic="t", exception="class E", message="m")

    def moved(self, name, *partitions):
        self.say(name, partitions=[{"topic": "t", "partition": p} for p in partitions])

    def read(self, value, offset, *, partition=0):
        self.say("record_data", key=None, value=value, topic="t", partition=partition, offset=offset)

    def committed(self, offset, *, success=True):
        self.say("offsets_committed", offsets=[{"topic": "t", "partition": 0, "offset": offset}], success=success)

    def write(self):
        self.path.write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        return self.path


@pytest.fixture
def tool(tmp_path):
    return lambda name: Tool(tmp_path / f"{name}.jsonl")


def checked(folder, *tools, **options):
    imported = read_verifiable([tool.write() for tool in tools])
    run = new_directory(folder / "run")
    write_imported(run, imported, ImportOptions(**options), command="test")
    verdict = judge_run(run, check_run(run, CheckOptions(engine="local")))
    return verdict, {name: count for name, count in verdict.findings.items() if count}


def test_a_clean_run_of_two_clients_is_held_as_far_as_consumers_read(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0)
    for n in range(5):
        producer.sent(f"1.{n}", n)
        consumer.read(f"1.{n}", n)
    producer.failed("1.5")
    consumer.read("1.5", 5)  # an error may have written all the same
    consumer.read("1.6", 6)  # sent, and never reported
    consumer.say("records_consumed", count=7, partitions=[])
    consumer.committed(7)
    consumer.moved("partitions_revoked", 0)
    verdict, found = checked(tmp_path, producer, consumer)
    assert (verdict.verdict, found) == (Verdict.HELD, {})
    assert verdict.sentence.startswith(
        "Held: 1 of 1 cell kept every promise that was judged, as far as consumers read."
    )
    assert "8 guarantees were not judged: lost, dirty-read, skipped, unreported and 4 more." in verdict.sentence
    assert {"lost", "dirty-read", "unclean"} <= verdict.not_judged.keys()
    assert "lost" not in verdict.decided


def test_what_was_acknowledged_and_given_to_no_consumer_leaves_unknown_what_consumers_may_have_missed(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0)
    for n in range(5):
        producer.sent(f"1.{n}", n)
    consumer.read("1.0", 0)
    verdict, found = checked(tmp_path, producer, consumer)
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {"unseen": 4})
    assert "onsumers did not read 4 acknowledged records, and there was no audit" in verdict.sentence


def clients_of_one_machine(tool, *, read_after):
    """All is read as it is sent; once everything is sent, those below `read_after` are read once more."""
    producer, consumer, last = tool("p"), tool("c"), tool("last")
    consumer.moved("partitions_assigned", 0)
    last.moved("partitions_assigned", 0)
    producer.lines.append("")  # each line is 10 ms later
    for n in range(6):
        producer.sent(f"1.{n}", n)
        consumer.read(f"1.{n}", n)
    last.lines += [""] * 20  # later
    for n in range(read_after):
        last.read(f"1.{n}", n)
    return producer, consumer, last


@pytest.mark.parametrize(
    ("read_after", "same_clock", "decided"), [(6, True, True), (5, True, False), (6, False, False)]
)
def test_nothing_is_lost_that_was_read_again_when_all_was_sent_by_one_clock(
    tool, tmp_path, read_after, same_clock, decided
):
    clients = clients_of_one_machine(tool, read_after=read_after)
    verdict, found = checked(tmp_path, *clients, same_clock=same_clock)
    assert (verdict.verdict, found) == (Verdict.HELD, {})
    assert ("lost" in verdict.decided) is decided
    assert ("lost" in verdict.not_judged) is not decided


@pytest.mark.parametrize(("read_after", "expected"), [(6, Verdict.HELD), (5, Verdict.UNKNOWN)])
def test_who_chooses_lost_to_decide_gets_no_verdict_without_a_reading_in_the_end(tool, tmp_path, read_after, expected):
    clients = clients_of_one_machine(tool, read_after=read_after)
    verdict, _ = checked(tmp_path, *clients, same_clock=True, decide=("lost",))
    assert verdict.verdict is expected
    assert verdict.decided == ("lost",)


def test_the_first_line_says_what_was_found_and_why_it_is_not_judged(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0)
    for n in range(5):
        producer.sent(f"1.{n}", n)
        if n != 2:
            consumer.read(f"1.{n}", n)
    verdict, found = checked(tmp_path, producer, consumer)
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {"lost": 1, "skipped": 1})
    told = (
        "Unknown: lost 1 and skipped 1 found, but it is unknown whether that is permitted: the history does not say which "
        "faults struck the cluster"
    )
    assert verdict.sentence.startswith(told)


def test_what_was_found_and_not_chosen_is_named_beside_what_held(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0)
    for n in range(5):
        producer.sent(f"1.{n}", n)
        if n != 2:
            consumer.read(f"1.{n}", n)
    verdict, _ = checked(tmp_path, producer, consumer, decide=("phantom",), faults="none")
    assert verdict.verdict is Verdict.UNKNOWN, "not everything that was acknowledged was read"
    producer.sent("1.5", 5)
    verdict, _ = checked(tmp_path / "again", producer, consumer, decide=("rewound",), faults="none")
    assert "Found, but not judged: lost 1" in verdict.sentence
    assert verdict.cells[0].anomalies["lost"].outcome is AnomalyOutcome.NOT_JUDGED


def test_what_was_found_decides_by_default_though_it_could_not_be_held(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0)
    for n in range(3):
        producer.sent(f"1.{n}", n)
    consumer.read("1.0", 0)
    consumer.read("1.2", 2)
    verdict, _ = checked(tmp_path, producer, consumer, faults="none")
    assert verdict.verdict is Verdict.VIOLATED
    assert "lost" in verdict.decided


def test_what_is_wrong_is_found(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0, 1)
    for n in range(6):
        producer.sent(str(n), n)
    for n in (0, 1, 3, 4):
        consumer.read(str(n), n)
    consumer.read("3", 3)
    consumer.read("9", 0, partition=1)
    consumer.read("9", 1, partition=1)
    verdict, found = checked(tmp_path, producer, consumer, faults="none")
    assert found == {"lost": 1, "skipped": 1, "rewound": 1, "duplicate": 1, "unseen": 1}
    assert verdict.verdict is Verdict.VIOLATED


def test_a_new_assignment_begins_anew_and_a_share_group_owes_no_order(tool, tmp_path):
    producer, consumer, share = tool("p"), tool("c"), tool("s")
    for n in range(6):
        producer.sent(f"7.{n}", n)
    consumer.moved("partitions_assigned", 0)
    for n in range(6):
        consumer.read(f"7.{n}", n)
    consumer.moved("partitions_revoked", 0)
    consumer.moved("partitions_assigned", 0)
    consumer.read("7.2", 2)
    share.say("offsets_acknowledged", count=1, partitions=[], success=True)
    for n in (4, 1, 1):
        share.read(f"7.{n}", n)
    assert checked(tmp_path, producer, consumer, share)[1] == {}


def test_records_of_producers_that_were_not_imported_are_no_phantoms(tool, tmp_path):
    consumer = tool("c")
    consumer.moved("partitions_assigned", 0)
    for offset, value in enumerate(("3.0", "x", "4.0", "x", None, "5")):
        consumer.read(value, offset)
    assert checked(tmp_path, consumer)[1] == {}


def test_commits_and_assignments_are_kept(tool):
    consumer = tool("c")
    consumer.moved("partitions_assigned", 0)
    consumer.read("1.0", 0)
    consumer.committed(1)
    consumer.committed(1, success=False)
    others = read_verifiable([consumer.write()]).others
    assert others["commits"]["log_offset"].tolist() == [1, 1]
    assert others["commits"]["position"].tolist() == [1, 1]
    assert others["assignments"]["event"].tolist() == [1]


def test_a_consumer_without_verbose_is_said(tool):
    consumer = tool("c")
    consumer.say("records_consumed", count=3, partitions=[])
    assert any("--verbose" in note for note in read_verifiable([consumer.write()]).notes)


def test_two_producers_of_the_same_values_cannot_be_told_apart(tool):
    one, other = tool("a"), tool("b")
    one.sent("0", 0)
    other.sent("0", 1)
    with pytest.raises(BadInput, match="--value-prefix"):
        read_verifiable([one.write(), other.write()])


def test_one_file_is_of_one_client(tool):
    mixed = tool("m")
    mixed.sent("1.0", 0)
    mixed.read("1.0", 0)
    with pytest.raises(BadInput, match="of a producer and of a consumer"):
        read_verifiable([mixed.write()])
    twins = tool("t")
    twins.sent("1.0", 0)
    twins.sent("2.0", 1)
    with pytest.raises(BadInput, match="of several producers"):
        read_verifiable([twins.write()])


@pytest.mark.parametrize(
    "content", [b"", b"nothing\n", b"\xff\xfe\x00", b'{"name": 5}\n', b'{"name":"startup_complete"}\n']
)
def test_a_file_without_events_is_said(tmp_path, content):
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="no event of a verifiable client"):
        read_verifiable([path])
    with pytest.raises(BadInput, match="cannot be read"):
        read_verifiable([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("value", "parts"),
    [("7.12", ("7", 12)), ("12", ("", 12)), ("a.b.3", ("a.b", 3)), (".3", None), ("7.", None), ("", None), (7, None)],
)
def test_values(value, parts):
    assert split_value(value) == parts


def test_no_number_is_called_unissued(tool):
    producer = tool("p")
    producer.sent("1.0", 0)
    assert [client.issued for client in read_verifiable([producer.write()]).clients] == [NONE]


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_acknowledged_in_one_partition_and_read_in_another_is_misplaced(tool, tmp_path, idempotent):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0, 1)
    for n in range(6):
        producer.sent(f"1.{n}", n // 2, partition=n % 2)
    for partition, values in ((0, (0, 2, 4)), (1, (1, 3, 5, 2))):
        for offset, n in enumerate(values):
            consumer.read(f"1.{n}", offset, partition=partition)
    settings = {} if idempotent else {"producer.enable_idempotence": False}
    verdict, found = checked(tmp_path, producer, consumer, settings=settings)
    assert (verdict.verdict, found) == (Verdict.VIOLATED, {"misplaced": 1}), "and neither reordered nor a duplicate"
    witness = verdict.cells[0].anomalies["misplaced"].witnesses[0]
    assert (witness.sequence, witness.number, witness.log_offset, witness.effect) == (2, 1, 3, "forbidden")


def test_a_record_without_an_acknowledgement_is_where_it_was_read(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    consumer.moved("partitions_assigned", 0, 1)
    producer.sent("1.0", 0, partition=0)
    producer.failed("1.1")  # names no partition
    consumer.read("1.0", 0)
    consumer.read("1.1", 0, partition=1)
    consumer.read("1.2", 1, partition=1)  # never reported
    assert checked(tmp_path, producer, consumer)[1] == {}


def test_of_two_producers_without_prefix_nobody_can_say_whose_record_it_is(tool, tmp_path):
    one, other, consumer = tool("p"), tool("q"), tool("c")
    consumer.moved("partitions_assigned", 0, 1)
    one.sent("7", 0, partition=0)
    other.sent("0", 0, partition=1)
    consumer.read("7", 0, partition=0)
    consumer.read("0", 0, partition=1)
    consumer.read("7", 1, partition=1)  # the other's, perhaps, which was never reported
    assert "misplaced" not in checked(tmp_path, one, other, consumer)[1]


@pytest.mark.parametrize(("prefix", "found"), [("1.", {"misplaced": 1}), ("", {})])
def test_in_another_topic_only_a_prefix_tells_whose_record_it_is(tool, tmp_path, prefix, found):
    producer, consumer = tool("p"), tool("c")
    producer.sent(f"{prefix}0", 0)
    consumer.read(f"{prefix}0", 0)
    consumer.say("record_data", key=None, value=f"{prefix}0", topic="u", partition=0, offset=0)
    assert checked(tmp_path, producer, consumer)[1] == found


def test_every_report_names_what_was_not_judged(tool, tmp_path):
    producer, consumer = tool("p"), tool("c")
    producer.sent("1.0", 0)
    consumer.read("1.0", 0)
    checked(tmp_path, producer, consumer)
    report_run(RunDirectory(tmp_path / "run"))
    told = "lost, dirty-read, skipped, unreported: there was no audit"
    summary, page, junit = (
        (tmp_path / "run" / name).read_text() for name in ("summary.md", "report.html", "junit.xml")
    )
    assert f"- not judged: {told}" in summary
    assert "What was not judged, and why" in page
    assert 'name="not judged" value="lost, dirty-read, skipped, unreported: there was no audit; ' in junit
    assert "Not judged: there was no audit." in junit
