"""What is missing in what verifiable clients printed makes its partition unknown, and never violated."""

import json
import shutil
from pathlib import Path

import pytest

from prozess.app.run.check import CheckOptions, check_run
from prozess.app.run.judge import judge_run
from prozess.exchange.imported_run import ImportOptions, new_directory, write_imported
from prozess.exchange.verifiable.events import read_verifiable
from prozess.harness.errors import BadInput
from prozess.harness.schema import OFFSET_MAX
from prozess.harness.verdict import Verdict

START_MS = 1_700_000_000_000
RECORDS = 8


def event(name, at_ms, **more):
    return json.dumps({"timestamp": START_MS + at_ms, "name": name, **more})


def sent(n, offset=None, *, topic="t", partition=0, at_ms=None):
    at_ms = 10 + n if at_ms is None else at_ms
    offset = n if offset is None else offset
    return event(
        "producer_send_success", at_ms, key=None, value=str(n), topic=topic, partition=partition, offset=offset
    )


def read(n, offset=None, *, topic="t", partition=0, at_ms=None):
    at_ms = 100 + n if at_ms is None else at_ms
    offset = n if offset is None else offset
    return event("record_data", at_ms, key=None, value=str(n), topic=topic, partition=partition, offset=offset)


def consumed(first, last, *, at_ms=150):
    where = {"topic": "t", "partition": 0, "count": last - first + 1, "minOffset": first, "maxOffset": last}
    return event("records_consumed", at_ms, count=last - first + 1, partitions=[where])


def assigned(*partitions, topic="t", at_ms=60):
    return event(
        "partitions_assigned", at_ms, partitions=[{"topic": topic, "partition": p} for p in partitions or (0,)]
    )


def producer(count=RECORDS):
    return [
        event("startup_complete", 0),
        *(sent(n) for n in range(count)),
        event("shutdown_complete", 50),
        event("tool_data", 51, sent=count, acked=count, target_throughput=-1, avg_throughput=1.0),
    ]


def consumer(count=RECORDS):
    half = count // 2
    return [
        event("startup_complete", 55),
        assigned(),
        *(read(n) for n in range(half)),
        consumed(0, half - 1),
        *(read(n) for n in range(half, count)),
        consumed(half, count - 1),
        event("offsets_committed", 190, offsets=[{"topic": "t", "partition": 0, "offset": count}], success=True),
        event("partitions_revoked", 195, partitions=[{"topic": "t", "partition": 0}]),
        event("shutdown_complete", 199),
    ]


def judged(folder, *files, **options):
    """The verdict, what was found, and why partitions have gaps."""
    folder = Path(folder)
    shutil.rmtree(folder / "run", ignore_errors=True)
    paths = []
    for number, lines in enumerate(files):
        paths.append(folder / f"f{number}.jsonl")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    imported = read_verifiable(paths)
    run = new_directory(folder / "run")
    write_imported(run, imported, ImportOptions(**{"faults": "none", **options}), command="test")
    verdict = judge_run(run, check_run(run, CheckOptions(engine="local")))
    found = {name: count for name, count in verdict.findings.items() if count}
    return verdict, found, [gap.why for gap in imported.gaps]


def test_a_clean_history_with_tallies_has_no_gap_and_is_held(tmp_path):
    for same_clock in (False, True):
        verdict, found, gaps = judged(tmp_path, producer(), consumer(), same_clock=same_clock)
        assert (verdict.verdict, found, gaps) == (Verdict.HELD, {}, [])


def test_a_torn_acknowledgement_leaves_its_partition_unknown_by_name(tmp_path):
    lines = producer()
    lines[5] = lines[5][:31]
    verdict, found, gaps = judged(tmp_path, lines, consumer())
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {})
    assert gaps[0] == "every partition of topic 't': line 6 of f0.jsonl is torn"
    assert gaps[0].capitalize() in verdict.sentence


def test_a_torn_read_makes_no_loss(tmp_path):
    lines = consumer()
    lines[4] = lines[4][:-20]
    verdict, found, gaps = judged(tmp_path, producer(), lines)
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {"lost": 1, "skipped": 1})
    assert "line 5 of f1.jsonl is torn" in gaps[0]
    assert gaps[0].startswith("every partition of topic 't'")


def test_a_torn_line_that_names_its_partition_spoils_no_other(tmp_path):
    writes = [
        event("startup_complete", 0),
        *(sent(n, n // 2, partition=n % 2) for n in range(10)),
    ]
    reads = [event("startup_complete", 55), assigned(0, 1), *(read(n, n // 2, partition=n % 2) for n in range(10))]
    del reads[-3]  # record 7, the fourth of partition 1: not printed
    whole = reads[4]  # record 2, the second of partition 0
    reads[4] = whole[whole.index('"topic"') :]
    verdict, found, gaps = judged(tmp_path, writes, reads)
    assert gaps == ["partition 0 of topic 't': line 5 of f1.jsonl is torn"]
    assert found == {"lost": 2, "skipped": 2}
    assert verdict.verdict is Verdict.VIOLATED, "record 7 of partition 1 is gone, whatever the torn line had"
    assert verdict.cells[0].anomalies["lost"].forbidden == 1


@pytest.mark.parametrize(
    "join",
    [
        lambda one, two: [one + two],
        lambda one, two: [one + " " + two],
        lambda one, two: ["[2026-01-01 00:00:00,000] WARN offset commit failed (kafka.Client)" + one, two],
        lambda one, two: [one + "[2026-01-01 00:00:00,000] INFO {a=b}", two],
        lambda one, two: ["\ufeff" + one + "\r", two],
        lambda one, two: [one, "{t-0=OffsetAndMetadata{offset=20}}", '{"level":"INFO","message":"of log4j"}', two],
    ],
)
def test_whole_events_among_log_lines_are_read_without_a_gap(tmp_path, join):
    writes, reads = producer(), consumer()
    writes[4:6] = join(*writes[4:6])
    reads[4:6] = join(*reads[4:6])
    verdict, found, gaps = judged(tmp_path, writes, reads)
    assert (verdict.verdict, found, gaps) == (Verdict.HELD, {}, [])


@pytest.mark.parametrize(
    "tear",
    [
        lambda line: [line[:3]],
        lambda line: [line[: len(line) // 2]],
        lambda line: [line[len(line) // 2 :]],
        lambda line: ["[2026-01-01] WARN a log line" + line[:40]],
        lambda line: [line[:40] + "[2026-01-01] WARN a log line", line[40:]],
        lambda line: ["\x00" * 200],
        lambda line: [line[:60] + line],
        lambda line: [line.replace('"name"', '"nam\\u0000"')],
        lambda line: [line[:-1]],
    ],
)
@pytest.mark.parametrize("of_producer", [True, False])
def test_whatever_is_torn_is_noticed(tmp_path, tear, of_producer):
    files = [producer(), consumer()]
    lines = files[not of_producer]
    lines[4:5] = tear(lines[4])
    verdict, _, gaps = judged(tmp_path, *files)
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("is torn" in gap for gap in gaps)


def test_what_is_left_of_two_events_on_one_line_is_no_event(tmp_path):
    lines = consumer()
    lines[4] = lines[4][: lines[4].index(', "topic"')] + lines[5][lines[5].index(', "value"') :]
    del lines[5]
    verdict, _, gaps = judged(tmp_path, producer(), lines)
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("line 5 of f1.jsonl is torn" in gap for gap in gaps)


def test_a_count_that_differs_from_what_was_printed_is_a_gap(tmp_path):
    writes, reads = producer(), consumer()
    del writes[3], reads[3]
    _, found, gaps = judged(tmp_path, writes, consumer())
    assert found == {}
    assert gaps == [
        "every partition of topic 't': tool_data counts 8 sends and 8 acknowledgements, and 7 and 7 were read"
    ]
    verdict, found, gaps = judged(tmp_path, producer(), reads)
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {"lost": 1, "skipped": 1})
    assert gaps == ["partition 0 of topic 't': line 6 of f1.jsonl counts other records than were printed before it"]


def test_a_consumer_that_prints_no_records_leaves_unknown_what_it_read(tmp_path):
    silent = [event("startup_complete", 55), assigned(), consumed(0, 7)]
    verdict, _, gaps = judged(tmp_path, producer(), consumer(), silent)
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("counts other records" in gap for gap in gaps)


def test_who_commits_beyond_what_was_printed_had_read_more(tmp_path):
    lines = [*consumer()[:-5], event("offsets_committed", 190, offsets=[{"topic": "t", "partition": 0, "offset": 9}])]
    _, _, gaps = judged(tmp_path, producer(), lines)
    assert any("commits records beyond those that were printed" in gap for gap in gaps)


def test_a_record_of_a_partition_that_was_not_assigned_is_a_gap(tmp_path):
    lines = consumer()
    del lines[1]
    verdict, _, gaps = judged(tmp_path, producer(), lines)
    assert verdict.verdict is Verdict.UNKNOWN
    assert "no partitions_assigned before it names its partition" in gaps[0]


def test_a_producer_that_ended_without_its_tally_is_a_gap_and_one_that_was_killed_is_none(tmp_path):
    assert judged(tmp_path, producer()[:-1], consumer())[2] == [
        "every partition of topic 't': the producer ended, and its tool_data is missing"
    ]
    assert judged(tmp_path, producer()[:-2], consumer())[0].verdict is Verdict.HELD


@pytest.mark.parametrize("acks", ["all", "0"])
def test_an_acknowledgement_without_an_offset_is_an_acknowledgement(tmp_path, acks):
    lines = producer()
    lines[4] = sent(3, -1)  # a duplicate sequence, or acks=0
    settings = {"producer.acks": acks, "producer.enable_idempotence": acks == "all"}
    verdict, found, gaps = judged(tmp_path, lines, consumer(), settings=settings)
    assert (verdict.verdict, found, gaps) == (Verdict.HELD, {}, [])
    verdict, found, _ = judged(tmp_path, lines, [line for line in consumer() if line != read(3)])
    assert found == {"unseen": 1}


@pytest.mark.parametrize("first", [1, 5, 8])
def test_a_consumer_that_began_later_proves_no_loss(tmp_path, first):
    """Reset to latest, retention, a commit of before, or a member whose file is missing."""
    lines = [event("startup_complete", 55), assigned(), *(read(n) for n in range(first, RECORDS))]
    verdict, found, gaps = judged(tmp_path, producer(), lines)
    assert (verdict.verdict, found, gaps) == (Verdict.UNKNOWN, {"unseen": first}, [])


def test_a_record_between_two_members_may_be_a_third_ones_and_one_within_a_span_is_lost(tmp_path):
    one = [event("startup_complete", 55), assigned(), *(read(n) for n in (0, 1, 2))]
    other = [event("startup_complete", 55), assigned(), *(read(n) for n in (4, 5, 6, 7))]
    assert judged(tmp_path, producer(), one, other)[1] == {"unseen": 1}
    again = [*one, event("partitions_revoked", 120, partitions=[{"topic": "t", "partition": 0}]), *other[1:]]
    assert judged(tmp_path, producer(), again)[1] == {"unseen": 1}
    verdict, found, _ = judged(tmp_path, producer(), [*one, *other[2:]])
    assert (verdict.verdict, found) == (Verdict.VIOLATED, {"lost": 1, "skipped": 1})


def test_a_topic_that_was_used_before_shows_no_certain_duplicate(tmp_path):
    """An earlier run wrote 0 to 7 at the offsets 0 to 7; this one writes 0 to 7 at 8 to 15."""
    writes = [event("startup_complete", 0), *(sent(n, n + RECORDS) for n in range(RECORDS))]
    reads = [
        event("startup_complete", 55),
        assigned(),
        *(read(offset % RECORDS, offset) for offset in range(2 * RECORDS)),
    ]
    verdict, found, gaps = judged(tmp_path, writes, reads)
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {"duplicate": RECORDS})
    assert "another run of the tool may have written" in gaps[0]


def test_a_second_copy_among_what_was_acknowledged_is_a_duplicate_whoever_else_wrote(tmp_path):
    writes = [event("startup_complete", 0), sent(0, 0), sent(1, 1), sent(2, 3), sent(3, 4)]
    reads = [
        event("startup_complete", 55),
        assigned(),
        *(read(n, at) for at, n in enumerate((0, 1, 1, 2, 3))),
    ]
    verdict, found, gaps = judged(tmp_path, writes, reads)
    assert (verdict.verdict, found, gaps) == (Verdict.VIOLATED, {"duplicate": 1}, [])


def test_a_producer_that_was_started_again_into_the_same_file_is_two_producers(tmp_path):
    second = [event("startup_complete", 52), *(sent(n, n + RECORDS, at_ms=60 + n) for n in range(RECORDS))]
    reads = [
        event("startup_complete", 55),
        assigned(),
        *(read(offset % RECORDS, offset) for offset in range(2 * RECORDS)),
    ]
    verdict, found, gaps = judged(tmp_path, [*producer(), *second], reads)
    assert (verdict.verdict, found, gaps) == (Verdict.HELD, {}, [])
    # A further copy is of either run, or of none.
    verdict, found, gaps = judged(tmp_path, [*producer(), *second], [*reads, read(3, 16)])
    assert (verdict.verdict, found) == (Verdict.UNKNOWN, {})
    assert "partition 0 of topic 't'" in gaps[0]


def test_a_producer_that_ran_twice_without_saying_so_is_found_by_its_acknowledgements(tmp_path):
    twice = [event("startup_complete", 0), *map(sent, range(4)), *(sent(n, n + 4) for n in range(4))]
    reads = [event("startup_complete", 55), assigned(), *(read(at % 4, at) for at in range(8))]
    verdict, _, gaps = judged(tmp_path, twice, reads)
    assert verdict.verdict is Verdict.UNKNOWN
    assert any("was acknowledged one value at two offsets" in gap for gap in gaps)


def test_what_compaction_may_have_taken_is_unknown(tmp_path):
    lines = [line for line in consumer()[:-5] if line != read(3) and "records_consumed" not in line]
    verdict, found, _ = judged(tmp_path, producer(), lines, settings={"topic.cleanup_policy": "compact"})
    assert verdict.verdict is Verdict.UNKNOWN
    assert "compaction may have removed records" in verdict.sentence
    assert not verdict.cells[0].anomalies["lost"].forbidden, found


def aged(lines):
    return [line.replace('"timestamp"', '"time_ms"') for line in lines]


def test_time_ms_of_old_tools_is_a_time(tmp_path):
    files = [producer(), consumer()]
    times = [
        {name: column.tolist() for name, column in part.items() if name in ("invoked_ns", "completed_ns")}
        for old in (False, True)
        for part in imported_of(tmp_path, *(map(aged, files) if old else files)).sends.parts()
    ]
    assert times[0] == times[1]
    assert max(times[0]["completed_ns"]) > 0


def imported_of(folder, *files):
    paths = []
    for number, lines in enumerate(files):
        paths.append(Path(folder) / f"i{number}.jsonl")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return read_verifiable(paths)


@pytest.mark.parametrize("spoil", ["no time", "one without", "no start"])
def test_a_client_without_its_times_proves_no_order_on_any_clock(tmp_path, spoil):
    lines = producer()
    if spoil == "no start":
        del lines[0]
    chosen = {"no time": range(len(lines)), "one without": [3], "no start": []}[spoil]
    for number in chosen:
        stripped = json.loads(lines[number])
        del stripped["timestamp"]
        lines[number] = json.dumps(stripped)
    # Read once more after the last send: proof that nothing is lost, if all clocks are one.
    verdict, _, _ = judged(tmp_path, producer(), consumer(), same_clock=True)
    assert "lost" in verdict.decided
    verdict, _, _ = judged(tmp_path, lines, consumer(), same_clock=True)
    assert "lost" not in verdict.decided


ABSURD = [-2, 2**48 + 1, 2**62, 2**63, 1.0, 0.5, "4", True, None, [1]]


@pytest.mark.parametrize("value", ABSURD)
@pytest.mark.parametrize(
    "field", ["sent offset", "sent partition", "read offset", "read partition", "committed offset"]
)
def test_a_number_that_no_format_can_have_is_refused_with_its_line(tmp_path, field, value):
    of, name = field.split()
    line = {
        "sent": json.loads(sent(1)),
        "read": json.loads(read(1)),
        "committed": json.loads(event("offsets_committed", 1, offsets=[{"topic": "t", "partition": 0, "offset": 1}])),
    }[of]
    (line["offsets"][0] if of == "committed" else line)[name] = value
    files = [producer(), consumer()]
    files[of != "sent"].insert(4, json.dumps(line))
    with pytest.raises(BadInput, match=rf"f{int(of != 'sent')}\.jsonl, line 5: {name}"):
        judged(tmp_path, *files)


def test_every_offset_that_a_log_can_have_is_read(tmp_path):
    reads = [event("startup_complete", 55), assigned(), read(0), read(1, OFFSET_MAX)]
    writes = [event("startup_complete", 0), sent(0), sent(1, OFFSET_MAX)]
    assert judged(tmp_path, writes, reads)[0].verdict is Verdict.HELD
