"""Jepsen's Kafka histories, imported: what each anomaly looks like there, what is no anomaly, and what is no history."""

import pytest

from prozess.exchange.jepsen.history import read_jepsen
from prozess.harness.errors import BadInput
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.edn_histories import Jepsen, found


@pytest.fixture
def history():
    return Jepsen()


def outcomes(verdict):
    return {name: a.outcome for name, a in verdict.cells[0].anomalies.items()}


def test_a_clean_history_is_held_as_far_as_consumers_read(history, tmp_path):
    history.assign(1, [5])
    for n in range(10):
        history.send(0, 5, n, n)
    history.poll(1, {5: [[n, n] for n in range(10)]})
    history.poll(1, {})
    _, verdict = history.checked(tmp_path)
    assert verdict.verdict is Verdict.HELD
    assert not any(verdict.findings.values())
    assert "lost" in verdict.decided, "all was read when all was sent"
    assert verdict.not_judged["dirty-read"] == "there was no audit"
    assert "not judged: dirty-read, skipped, unreported" in verdict.sentence
    assert ", as far as consumers read" in verdict.sentence


def test_what_was_sent_after_the_last_reading_is_not_held_to_be_there(history, tmp_path):
    history.assign(1, [5])
    history.send(0, 5, 0, 0)
    history.poll(1, {5: [[0, 0]]})
    history.send(0, 5, 1, kind="info")
    _, verdict = history.checked(tmp_path)
    assert verdict.verdict is Verdict.HELD
    assert "lost" in verdict.not_judged


def test_what_was_read_past_and_never_given_is_lost_and_what_nobody_reached_is_unseen(history, tmp_path):
    for n in range(6):
        history.send(0, 5, n, n)
    history.send(0, 5, 6)  # acknowledged, but nobody learned where
    history.poll(1, {5: [[0, 0], [1, 1]]})
    history.poll(2, {5: [[3, 3]]})
    _, verdict = history.checked(tmp_path)
    assert {n: c for n, c in verdict.findings.items() if c} == {"lost": 1, "unseen": 3}
    assert outcomes(verdict)["lost"] is AnomalyOutcome.UNKNOWN  # faults are unstated


def test_a_loss_is_forbidden_once_the_user_states_that_no_copy_was_destroyed(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(0, 5, 1, 1)
    history.assign_from_start(1, [5])
    history.poll(1, {5: [[1, 1]]})
    _, verdict = history.checked(tmp_path, faults="none")
    assert outcomes(verdict)["lost"] is AnomalyOutcome.VIOLATED
    assert verdict.verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("begins", "outcome"),
    [
        ("sought", AnomalyOutcome.VIOLATED),
        ("sought, kept", AnomalyOutcome.VIOLATED),
        ("sought before an abort", AnomalyOutcome.VIOLATED),
        ("read before", AnomalyOutcome.VIOLATED),
        ("read before, aborted", AnomalyOutcome.VIOLATED),
        ("not stated", AnomalyOutcome.UNKNOWN),
        ("assigned", AnomalyOutcome.UNKNOWN),
        ("sought in doubt", AnomalyOutcome.UNKNOWN),
        ("sought, other key", AnomalyOutcome.UNKNOWN),
        ("sought, crashed", AnomalyOutcome.UNKNOWN),
        ("sought, dropped", AnomalyOutcome.UNKNOWN),
        ("sought, rebalanced", AnomalyOutcome.UNKNOWN),
        ("sought, subscribed", AnomalyOutcome.UNKNOWN),
        ("read before, crashed", AnomalyOutcome.UNKNOWN),
    ],
)
def test_a_record_is_certainly_lost_only_if_a_consumer_came_by(history, tmp_path, begins, outcome):
    """Three records, and nobody got the second: a consumer that began at the end of the log need not have got it."""
    for n in range(3):
        history.send(0, 5, n, n)
    history.poll(7, {5: [[0, 0]]})
    _begin(history, begins)
    history.poll(1, {5: [[2, 2]]})
    _, verdict = history.checked(tmp_path, faults="none")
    assert verdict.findings["lost"] == 1, "by Jepsen's definition"
    assert outcomes(verdict)["lost"] is outcome
    assert verdict.verdict is (Verdict.VIOLATED if outcome is AnomalyOutcome.VIOLATED else Verdict.UNKNOWN)


def _begin(history, begins):
    if begins == "sought in doubt":
        history.line(1, "info", "assign", [5], **{"seek_to_beginning?": True})
    elif begins.startswith("sought"):
        history.assign_from_start(1, [6] if "other key" in begins else [5, 6])
    elif begins.startswith("read before"):
        history.poll(1, {5: [[0, 0]]}, kind="fail" if "aborted" in begins else "ok")
    then = {
        "kept": lambda: history.assign(1, [5]),
        "before an abort": lambda: history.poll(1, {5: [[0, 0]]}, kind="info"),
        "crashed": lambda: history.line(1, "info", "crash", None),
        "dropped": lambda: (history.assign(1, [6]), history.assign(1, [5])),
        "rebalanced": lambda: history.poll(1, {}, rebalance_log=[{":keys": [5]}]),
        "assigned": lambda: history.assign(1, [5]),
        "other key": lambda: history.assign(1, [5]),
        "subscribed": lambda: history.assign(1, [5], "subscribe"),
    }
    for what, happens in then.items():
        if begins.endswith(what):
            happens()


def test_a_record_is_certainly_lost_where_another_stands_wherever_consumers_began(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(2, 5, 1, 0)
    history.poll(1, {5: [[0, 0]]})
    _, verdict = history.checked(tmp_path, faults="none")
    assert outcomes(verdict)["lost"] is AnomalyOutcome.VIOLATED


def test_with_acks_1_a_loss_is_no_violation(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(0, 5, 1, 1)
    history.poll(1, {5: [[1, 1]]})
    settings = {"producer.acks": "1", "producer.enable_idempotence": False}
    _, verdict = history.checked(tmp_path, faults="none", settings=settings)
    assert outcomes(verdict)["lost"] is AnomalyOutcome.UNKNOWN


def test_a_value_at_two_offsets_is_a_duplicate_also_where_only_the_acknowledgement_differs(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(0, 5, 1, 4)
    history.poll(1, {5: [[0, 0], [2, 0], [3, 1]]})
    assert history.found(tmp_path) == {"duplicate": 2}


def test_an_offset_with_two_values_is_a_conflict(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(2, 5, 1, 0)
    history.poll(1, {5: [[0, 0]]})
    assert history.found(tmp_path) == {"offset-conflict": 1, "lost": 1}


def test_sends_of_a_process_that_go_back_are_reordered(history, tmp_path):
    for value, offset in ((0, 0), (1, 3), (2, 2), (3, 4)):
        history.send(0, 5, value, offset)
    history.poll(1, {5: [[0, 0], [2, 2], [3, 1], [4, 3]]})
    assert history.found(tmp_path) == {"reordered": 1, "time-travel": 1}


def test_a_value_that_nobody_sent_is_a_phantom_and_crashes_nothing(history, tmp_path):
    history.send(0, 5, 0, 0)
    history.send(0, 6, 77, 0)
    history.poll(1, {5: [[0, 0], [1, 77]], 6: [[0, 77]]})  # 77 was sent to key 6 only: values are unique per key
    history.poll(2, {5: [[1, 77]]})
    assert history.found(tmp_path) == {"phantom": 1}


def test_a_failed_send_that_is_read_is_resurrected_and_an_unknown_one_is_not(history, tmp_path):
    history.send(0, 5, 0, kind="fail")
    history.send(0, 5, 1, kind="info")
    history.line(2, "invoke", "send", [[":send", 5, 2]])  # never completed
    history.poll(1, {5: [[0, 0], [1, 1], [2, 2]]})
    assert history.found(tmp_path) == {"resurrected": 1}


def test_a_jump_and_a_step_back_within_one_assignment(history, tmp_path):
    for n in range(8):
        history.send(0, 5, n, n)
    history.poll(9, {5: [[n, n] for n in range(8)]})
    history.assign(1, [5])
    history.poll(1, {5: [[0, 0], [1, 1]]})
    history.poll(1, {5: [[3, 3], [4, 4]]})
    history.poll(1, {5: [[2, 2]]})
    assert history.found(tmp_path) == {"skipped": 1, "rewound": 1}


@pytest.mark.parametrize(
    "why", ["assigned anew", "crash", "subscribed", "aborted", "rebalanced", "dropped and regained"]
)
def test_order_is_judged_within_one_assignment_only(history, tmp_path, why):
    for n in range(8):
        history.send(0, 5, n, n)
        history.send(0, 6, n, n)
    history.poll(9, {5: [[n, n] for n in range(8)], 6: [[n, n] for n in range(8)]})
    history.assign(1, [5], "subscribe" if why == "subscribed" else "assign")
    history.poll(1, {5: [[0, 0], [1, 1]]}, kind="fail" if why == "aborted" else "ok")
    if why == "assigned anew":
        history.line(1, "ok", "assign", [5], **{"seek_to_beginning?": True})
    if why == "crash":
        history.line(1, "info", "crash", None)
    if why == "dropped and regained":
        history.assign(1, [6])
        history.assign(1, [5, 6])
    if why == "rebalanced":
        history.poll(1, {5: [[4, 4], [2, 2]]}, rebalance_log=[{":keys": [5]}])
    history.poll(1, {5: [[4, 4]]})
    assert history.found(tmp_path) == {}


@pytest.mark.parametrize("why", ["a failed poll", "a rebalance"])
def test_what_another_key_went_through_excuses_no_gap(history, tmp_path, why):
    for n in range(8):
        history.send(0, 5, n, n)
        history.send(0, 6, n, n)
    history.poll(9, {5: [[n, n] for n in range(8)], 6: [[n, n] for n in range(8)]})
    history.assign(1, [5, 6])
    history.poll(1, {5: [[0, 0]], 6: [[0, 0]]})
    if why == "a failed poll":
        history.poll(1, {6: [[1, 1]]}, kind="fail")
    else:
        history.poll(1, {6: [[5, 5], [1, 1]]}, rebalance_log=[{":keys": [6]}])
    history.poll(1, {5: [[2, 2]], 6: [[4, 4]]})
    assert history.found(tmp_path) == {"skipped": 1}


def test_a_member_of_a_group_is_judged_between_the_rebalances_that_its_client_tells(history, tmp_path):
    for n in range(8):
        history.send(0, 5, n, n)
        history.send(0, 6, n, n)
    history.poll(9, {5: [[n, n] for n in range(8)], 6: [[n, n] for n in range(8)]})
    history.assign(1, [5, 6], "subscribe")
    history.poll(1, {5: [[3, 3]]})  # nobody knows yet that this client reports its rebalances
    history.poll(1, {5: [[0, 0]], 6: [[0, 0]]}, rebalance_log=[{":keys": [5, 6]}])
    history.poll(1, {5: [[1, 1]], 6: [[1, 1]]})
    history.poll(1, {5: [[3, 3]]})
    history.assign(1, [5, 6], "subscribe")
    history.poll(1, {6: [[0, 0]]})
    assert history.found(tmp_path) == {"skipped": 1, "rewound": 1}


def test_who_leaves_a_group_for_an_assignment_begins_anew(history, tmp_path):
    for n in range(8):
        history.send(0, 5, n, n)
    history.poll(9, {5: [[n, n] for n in range(8)]})
    history.assign(1, [5], "subscribe")
    history.poll(1, {5: [[0, 0]]}, rebalance_log=[])
    history.poll(1, {5: [[1, 1]]})
    history.assign(1, [5])
    history.poll(1, {5: [[4, 4]]})
    assert history.found(tmp_path) == {}


def test_an_assignment_that_keeps_a_key_keeps_its_position(history, tmp_path):
    for n in range(4):
        history.send(0, 5, n, n)
    history.poll(9, {5: [[n, n] for n in range(4)]})
    history.assign(1, [5])
    history.poll(1, {5: [[0, 0]]})
    history.assign(1, [5, 6])
    history.poll(1, {5: [[2, 2]]})
    assert history.found(tmp_path) == {"skipped": 1}


def test_a_transaction_of_which_some_records_are_read_past_is_torn(history, tmp_path):
    history.txn(0, [[":send", 5, 0], [":send", 6, 0]], [[":send", 5, [0, 0]], [":send", 6, [0, 0]]])
    history.txn(0, [[":send", 6, 1]], [[":send", 6, [2, 1]]])
    history.assign_from_start(1, [5, 6])
    history.poll(1, {5: [[0, 0]], 6: [[2, 1]]})
    assert history.found(tmp_path) == {"torn": 1, "lost": 1}


def test_a_transaction_of_which_some_records_stand_where_a_consumer_may_have_begun_later_is_not_torn(history, tmp_path):
    history.txn(0, [[":send", 5, 0], [":send", 6, 0]], [[":send", 5, [0, 0]], [":send", 6, [0, 0]]])
    history.txn(0, [[":send", 6, 1]], [[":send", 6, [2, 1]]])
    history.assign(1, [5, 6])
    history.poll(1, {5: [[0, 0]], 6: [[2, 1]]})
    _, verdict = history.checked(tmp_path, faults="none")
    assert found(verdict) == {"lost": 1}
    assert verdict.verdict is Verdict.UNKNOWN


def test_a_committed_transaction_of_which_nothing_is_given_is_lost(history, tmp_path):
    history.txn(0, [[":send", 5, 0], [":send", 5, 1]], [[":send", 5, [0, 0]], [":send", 5, [1, 1]]])
    history.txn(0, [[":send", 5, 2]], [[":send", 5, [3, 2]]])
    history.assign_from_start(1, [5])
    history.poll(1, {5: [[3, 2]]})
    assert history.found(tmp_path) == {"lost-transaction": 2, "lost": 2}


def test_one_record_that_is_read_proves_a_transaction_in_doubt(history, tmp_path):
    history.txn(0, [[":send", 5, 0], [":send", 5, 1]], [[":send", 5, [0, 0]], [":send", 5, [1, 1]]], kind="info")
    history.txn(2, [[":send", 5, 2]], [[":send", 5, [3, 2]]])
    history.poll(1, {5: [[0, 0], [3, 2]]})
    assert history.found(tmp_path) == {"torn": 1, "lost": 1}


def test_a_record_of_an_aborted_transaction_that_is_read_is_an_aborted_read(history, tmp_path):
    history.txn(0, [[":send", 5, 0]], [[":send", 5, 0]], kind="fail")
    history.poll(1, {5: [[0, 0]]})
    _, verdict = history.checked(tmp_path)
    assert {n: c for n, c in verdict.findings.items() if c} == {"aborted-read": 1}


def test_a_transaction_that_reads_what_it_wrote_itself(history, tmp_path):
    done = [[":send", 5, [0, 0]], [":poll", {5: [[0, 0]]}]]
    history.txn(0, [[":send", 5, 0], [":poll"]], done)
    assert history.found(tmp_path) == {"own-read": 1}


def test_two_transactions_that_read_each_other_are_a_cycle(history, tmp_path):
    history.line(0, "invoke", "txn", [[":send", 5, 0], [":poll"]])
    history.line(1, "invoke", "txn", [[":send", 6, 0], [":poll"]])
    history.line(0, "ok", "txn", [[":send", 5, [0, 0]], [":poll", {6: [[0, 0]]}]])
    history.line(1, "ok", "txn", [[":send", 6, [0, 0]], [":poll", {5: [[0, 0]]}]])
    assert history.found(tmp_path) == {"information-cycle": 1}


def test_a_transaction_that_reads_one_that_overlaps_it_reads_nothing_early(history, tmp_path):
    history.line(1, "invoke", "txn", [[":poll"], [":send", 6, 0]])
    history.line(0, "invoke", "txn", [[":send", 5, 0]])
    history.line(1, "ok", "txn", [[":poll", {5: [[0, 0]]}], [":send", 6, [0, 0]]])
    history.line(0, "ok", "txn", [[":send", 5, [0, 0]]])
    history.poll(2, {6: [[0, 0]]})
    assert history.found(tmp_path) == {}


def test_keys_may_be_texts_and_lines_may_be_strange(tmp_path):
    lines = [
        "; a comment",
        '{:process 0 :type :invoke :f :send :value [[:send "a b" 1]]}',
        '{:f :send, :type :ok, :value [[:send "a b" [0 1]]], :process 0, :error #object[Foo 0x1 "x\\"y"], :s #{1 2}}',
        "",
        "{:process :nemesis, :type :info, :f :start, :value {:n1 #{:n2}}}",
        '#jepsen.history.Op{:process 1, :type :ok, :f :poll, :value [[:poll {"a b" [[0 1] [1 :odd]]}]]}',
    ]
    path = tmp_path / "history.edn"
    path.write_text("\r\n".join(lines), encoding="utf-8")
    imported = read_jepsen(path)
    assert imported.topics == [('"a b"', 0)]
    (sends,), (reads,) = imported.sends.parts(), imported.reads.parts()
    assert sends["log_offset"].tolist() == [0]
    assert reads["log_offset"].tolist() == [0, 1]
    assert len(set(reads["sender"].tolist())) == 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{:process 0, :type :ok, :f :send, :value [[:send 5 [0 1]]]"], "line 1: { of column 1 is not closed by }"),
        (["{:process 0, :type :ok}"], "line 1: :f is missing"),
        (["[1 2]"], "line 1: .* is not a map"),
        (["hello"], "line 1: .* is not a map"),
        (["{:a}"], "a map has a key without a value"),
        (["{:process 0, :type :maybe, :f :send, :value nil}"], "line 1: :type is :maybe"),
        (["{:process -1, :type :ok, :f :send, :value nil}"], "line 1: :process is -1"),
        (["{:process 0, :type :ok, :f :send, :value 5}"], "no vector of"),
        (["{:process 0, :type :ok, :f :send, :value [[:receive 5 1]]}"], "neither"),
        (["{:process 0, :type :ok, :f :send, :value [[:send 5 [-4 1]]]}"], "offset -4"),
        (["{:process 0, :type :ok, :f :poll, :value [[:poll {5 [[0.5 1]]}]]}"], "offsets that are not numbers from 0"),
        (["{:process 0, :type :ok, :f :poll, :value [[:poll {5 [[99999999999999999999 1]]}]]}"], "offsets that are"),
        (["{:process 0, :type :ok, :f :poll, :value [[:poll {5 7}]]}"], "no list of"),
        (["{:process 0, :type :ok, :f :poll, :value [[:poll 7]]}"], "has no map"),
        (["{:process 0, :type :invoke, :f :send, :value [[:send 5 1]]}"] * 2, "has not completed"),
        (
            [
                "{:process 0, :type :invoke, :f :send, :value [[:send 5 1]]}",
                "{:process 0, :type :ok, :f :send, :value [[:send 5 [0 2]]]}",
            ],
            "line 2: .* is not what was invoked",
        ),
        (
            [
                "{:process 0, :type :invoke, :f :send, :value [[:send 5 1]]}",
                "{:process 0, :type :ok, :f :send, :value []}",
            ],
            "line 2: 1 of its 1 sends are missing",
        ),
        (["{:process 0, :type :ok, :f :send, :value [[:send 5 [0 1]]]}"] * 2, "Lines 1 and 2 both send 1 to key 5"),
        (
            [
                "{:process 0, :type :ok, :f :poll, :value nil, :time 5}",
                "{:process 0, :type :ok, :f :poll, :value nil, :time 4}",
            ],
            "line 2: :time 4 is before",
        ),
        (
            ["{:process 0, :type :ok, :f :poll, :value nil, :time 5}", "{:process 0, :type :ok, :f :poll, :value nil}"],
            "others none",
        ),
        (["; nothing"], "nothing to import"),
        ([], "nothing to import"),
    ],
)
def test_what_is_no_history_is_said_with_its_line(tmp_path, lines, said):
    path = tmp_path / "history.edn"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        read_jepsen(path)


def test_a_file_that_is_no_text_or_not_there_is_said(tmp_path):
    path = tmp_path / "history.fressian"
    path.write_bytes(b"\x00\xff\xfe{:process")
    with pytest.raises(BadInput, match="not UTF-8"):
        read_jepsen(path)
    with pytest.raises(BadInput, match="cannot be read"):
        read_jepsen(tmp_path / "nowhere.edn")
