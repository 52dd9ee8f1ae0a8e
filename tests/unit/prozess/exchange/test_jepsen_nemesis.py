"""What Jepsen's nemesis did is kept, shown, and never taken for an excuse that is proven."""

import pytest

from prozess.exchange.jepsen.history import of_nemesis, read_jepsen, stated_faults
from prozess.harness.verdict import AnomalyOutcome, Verdict
from tests.support.edn_histories import Jepsen


def nemesis(history, f, value=None, done=None):
    history.line(":nemesis", "info", f, value)
    history.line(":nemesis", "info", f, done)


@pytest.fixture
def history():
    return Jepsen()


def stated(lines):
    return stated_faults(of_nemesis(enumerate(lines, start=1)))


def test_each_operation_is_a_fault_until_the_one_that_ends_it(history):
    nemesis(history, "start-partition", ":one", {"n1": ["n2", "n3"]})
    nemesis(history, "kill", None, {"n2": ":killed"})
    history.send(0, 5, 0, 0)
    nemesis(history, "stop-partition", None, ":network-healed")
    nemesis(history, "bump-clock", {"n1": 300})
    nemesis(history, "start", ":all")
    nemesis(history, "pause", ["n3"])
    found = stated(history.lines)
    assert [(f.f, f.begin_ns, f.end_ns, f.value) for f in found] == [
        ("start-partition", 0, 7000, "n1: n2 n3"),
        ("kill", 2000, 11000, "n2: killed"),
        ("bump-clock", 8000, 9000, "n1: 300"),
        ("pause", 12000, None, "n3"),
    ]


def test_of_the_old_kind_start_is_a_fault_and_stop_its_end(history):
    nemesis(history, "start", None, ":cut")
    nemesis(history, "stop")
    assert [(f.f, f.begin_ns, f.end_ns) for f in stated(history.lines)] == [("start", 0, 3000)]


@pytest.mark.parametrize("value", ["[" * 500 + "]" * 500, "#{", "\\"])
def test_what_cannot_be_read_or_is_deep_is_a_fault_too(value):
    (found,) = stated(["{:type :info, :process :nemesis, :f :x, :time 5, :value " + value + "}"])
    assert len(found.value) < 50


def with_a_loss(history):
    history.send(0, 5, 0, 0)
    nemesis(history, "kill", None, {"n2": ":killed"})
    history.send(0, 5, 1, 1)
    nemesis(history, "start", ":all")
    history.assign_from_start(1, [5])
    history.poll(1, {5: [[1, 1]]})
    return history


def test_they_are_shown_and_what_they_brought_about_is_not_known(history, tmp_path):
    _, verdict = with_a_loss(history).checked(tmp_path)
    shown = [(f.fault, f.step, f.effective, f.detail) for f in verdict.faults]
    assert shown[0] == ("kill, effect not stated", "as the history states", None, "n2: killed")
    assert [name for name, *_ in shown] == ["kill, effect not stated", "unstated"]
    assert verdict.cells[0].anomalies["lost"].outcome is AnomalyOutcome.UNKNOWN


def test_where_it_is_stated_that_no_copy_was_destroyed_they_excuse_no_loss(history, tmp_path):
    _, verdict = with_a_loss(history).checked(tmp_path, faults="none")
    assert [f.fault for f in verdict.faults] == ["kill, no copy destroyed"]
    assert verdict.verdict is Verdict.VIOLATED


def test_a_file_without_times_counts_lines(tmp_path):
    file = tmp_path / "history.edn"
    file.write_text(
        "{:type :info, :process :nemesis, :f :kill, :value nil}\n"
        "{:type :ok, :process 0, :f :send, :value [[:send 1 [0 1]]]}\n"
        "{:type :info, :process :nemesis, :f :start, :value nil}\n",
        encoding="utf-8",
    )
    assert [(f.f, f.begin_ns, f.end_ns) for f in read_jepsen(file).faults] == [("kill", 1, 3)]
