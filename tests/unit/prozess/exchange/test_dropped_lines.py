"""Lines that are dropped or torn, in histories of either format: never *held*, and never newly *violated*."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prozess.exchange.jepsen.history import read_at_once, read_jepsen, read_one_by_one
from prozess.harness.errors import BadInput
from prozess.harness.schema import NONE, Outcome
from prozess.harness.verdict import Verdict
from tests.support.edn_histories import Jepsen, found
from tests.support.examples import examples
from tests.unit.prozess.exchange.test_verifiable_gaps import consumer, judged, producer

QUIET = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
NO_EVIDENCE = ("startup_complete", "shutdown_complete", "partitions_revoked", "offsets_committed")
"""What says nothing of a partition's records. A revocation ends a span, and so does the assignment after it."""


@QUIET
@given(data=st.data())
def test_a_dropped_or_torn_line_of_verifiable_clients_is_never_held_nor_newly_violated(data):
    files = [producer(), consumer()]
    lines = files[data.draw(st.integers(0, 1), label="file")]
    at = data.draw(st.integers(0, len(lines) - 1), label="line")
    cut = data.draw(st.integers(0, len(lines[at]) - 1), label="cut")
    kept = data.draw(st.sampled_from(["head", "tail"]), label="kept")
    name = json.loads(lines[at])["name"]
    lines[at] = lines[at][:cut] if kept == "head" else lines[at][len(lines[at]) - cut :]
    if not lines[at].strip():
        del lines[at]
        if name in NO_EVIDENCE:
            return
    with tempfile.TemporaryDirectory() as folder:
        verdict, _, gaps = judged(folder, *files, same_clock=data.draw(st.booleans(), label="same clock"))
    assert (verdict.verdict, bool(gaps)) == (Verdict.UNKNOWN, True)


def clean_jepsen():
    history = Jepsen()
    history.assign(1, [5, 6])
    for n in range(4):
        history.send(0, 5, n, n)
        history.send(2, 6, n, n)
        history.poll(1, {5: [[n, n]], 6: [[n, n]]})
    return history


def test_the_clean_history_of_jepsen_is_held(tmp_path):
    assert clean_jepsen().checked(tmp_path, faults="none")[1].verdict is Verdict.HELD


@QUIET
@given(data=st.data())
def test_a_dropped_or_torn_line_of_jepsens_is_refused_or_unknown(data):
    history = clean_jepsen()
    at = data.draw(st.integers(0, len(history.lines) - 2), label="line")
    cut = data.draw(st.integers(0, len(history.lines[at]) - 1), label="cut")
    history.lines[at] = history.lines[at][:cut]
    if not cut:
        del history.lines[at]
    with tempfile.TemporaryDirectory() as folder:
        try:
            _, verdict = history.checked(Path(folder), faults="none")
        except BadInput as error:
            refused = str(error)
        else:
            refused = ""
            assert verdict.verdict is Verdict.UNKNOWN, found(verdict)
    assert not refused or "history.edn, line " in refused


def test_a_history_with_numbers_that_are_missing_is_unknown_by_name(tmp_path):
    history = clean_jepsen()
    del history.lines[14:16]  # a send, invoked and completed
    _, verdict = history.checked(tmp_path, faults="none")
    assert verdict.verdict is Verdict.UNKNOWN
    assert "very key: 2 lines are missing, by the numbers in :index" in verdict.sentence
    assert found(verdict) == {"phantom": 1}


def test_without_numbers_a_completion_without_its_invocation_is_a_gap_of_its_keys(tmp_path):
    history = clean_jepsen()
    history.lines = [line.replace(f":index {n}, ", "") for n, line in enumerate(history.lines)]
    del history.lines[4]  # the invocation of what process 2 sent to key 6
    _, verdict = history.checked(tmp_path, faults="none")
    assert verdict.verdict is Verdict.UNKNOWN
    assert "ompletes an operation that nobody invoked" in verdict.sentence


def test_a_history_without_any_invocation_has_no_gap(tmp_path):
    history = clean_jepsen()
    kept = [line for line in history.lines if ":type :invoke" not in line]
    history.lines = [line.partition(":time")[1] and "{:time" + line.partition(":time")[2] for line in kept]
    assert history.checked(tmp_path, faults="none")[1].verdict is Verdict.HELD


def test_an_operation_that_is_not_known_makes_every_key_unknown(tmp_path):
    history = clean_jepsen()
    history.line(1, "invoke", "drain", None)
    history.line(1, "ok", "drain", [[5, 9]])
    _, verdict = history.checked(tmp_path, faults="none")
    assert verdict.verdict is Verdict.UNKNOWN
    assert "it is not known what operations :drain sent or read" in verdict.sentence


def test_what_the_nemesis_does_is_no_operation_that_is_not_known(tmp_path):
    history = clean_jepsen()
    history.line(":nemesis", "info", "start-partition", ":majority")
    history.line(":nemesis", "info", "start-partition", ":majority")
    history.line(3, "info", "debug-topic-partitions", [5])
    assert not read_jepsen(history.write(tmp_path / "h.edn")).gaps


def test_a_history_of_another_workload_is_refused_with_its_operations(tmp_path):
    history = Jepsen()
    history.line(0, "invoke", "enqueue", 1)
    history.line(0, "ok", "enqueue", 1)
    history.line(0, "invoke", "drain", None)
    history.line(0, "ok", "drain", [1])
    with pytest.raises(BadInput, match=r"no :send, :poll or :txn. Its operations are :drain, :enqueue"):
        read_jepsen(history.write(tmp_path / "h.edn"))


@pytest.mark.parametrize("read", [read_at_once, read_one_by_one])
def test_an_acknowledgement_of_jepsens_without_an_offset_is_an_acknowledgement(tmp_path, read):
    history = clean_jepsen()
    history.send(0, 5, 4, -1)
    history.poll(1, {5: [[4, 4]]})
    sends = read(history.write(tmp_path / "h.edn")).columns.sends
    assert (sends["offset"][-1], sends["outcome"][-1]) == (NONE, Outcome.OK)
    _, verdict = history.checked(tmp_path, faults="none")
    assert (verdict.verdict, found(verdict)) == (Verdict.HELD, {})


@pytest.mark.parametrize("offset", [-2, 2**48 + 1, 2**62, 2**63, 1.0, 0.5, '"4"', "true", "[1]"])
@pytest.mark.parametrize("of", ["send", "poll"])
def test_an_offset_that_no_format_can_have_is_refused_with_its_line(tmp_path, of, offset):
    history = clean_jepsen()
    done = f"[[:send 5 [{offset} 9]]]" if of == "send" else f"[[:poll {{5 [[{offset} 9]]}}]]"
    asked = [[":send", 5, 9]] if of == "send" else [[":poll"]]
    history.line(1, "invoke", of, asked)
    history.line(1, "ok", of, "REPLACED")
    history.lines[-1] = history.lines[-1].replace('"REPLACED"', done)
    with pytest.raises(BadInput, match=rf"h\.edn, line {len(history.lines)}: .*offset"):
        read_jepsen(history.write(tmp_path / "h.edn"))


def test_a_read_before_its_send_was_invoked_keeps_its_times_and_one_clock(tmp_path):
    history = Jepsen()
    history.poll(1, {0: [[0, 1]]})
    history.send(0, 0, 1, 0)
    imported = read_jepsen(history.write(tmp_path / "h.edn"))
    (reads,), (sends,) = (list(table.parts()) for table in (imported.reads, imported.sends))
    assert reads["read_ns"][0] < sends["invoked_ns"][0]
    assert {client.clock for client in imported.clients} == {0}


@pytest.mark.parametrize("read", [read_at_once, read_one_by_one])
@pytest.mark.parametrize("f", ["send", "poll"])
def test_an_operation_that_never_completed_shows_that_the_file_ends_early(tmp_path, read, f):
    history = clean_jepsen()
    history.line(1, "invoke", f, [[":send", 5, 9]] if f == "send" else [[":poll"]])
    assert read(history.write(tmp_path / "h.edn")).open_lines == [len(history.lines)]
    _, verdict = history.checked(tmp_path, faults="none")
    assert (verdict.verdict, found(verdict)) == (Verdict.UNKNOWN, {})
    assert f"the operation of line {len(history.lines)} never completed" in verdict.sentence


def test_what_was_found_before_a_file_ends_early_stands(tmp_path):
    history = clean_jepsen()
    history.poll(2, {5: [[0, 0], [77, 0]]})
    history.line(1, "invoke", "poll", [[":poll"]])
    _, verdict = history.checked(tmp_path, faults="none")
    assert verdict.verdict is Verdict.VIOLATED
    assert verdict.findings["duplicate"] == 1
