"""What a session says at its end of tests that judged nothing of their application, and of what was seen and permitted."""

import pytest

from prozess.testing.summary import not_judged, nothing_judged, write_summary

GAP = ["missing-output", "orders", "nothing says what group 'g' must produce", "add kafka_cluster.expect(…)"]
OTHER = ["repeated", "orders", "nothing says which sends mean the same", "give identity="]


def told(*gaps, silent=True, seen=(), clients=True):
    return {"clients": clients, "silent": silent, "seen": list(seen), "unjudged": list(gaps)}


class Report:
    def __init__(self, nodeid, carried):
        self.nodeid, self.prozess_summary = nodeid, carried


class Terminal:
    """Keeps what is printed. `reports`: by how they ended."""

    def __init__(self, **reports):
        self.reports, self.lines = reports, []

    def getreports(self, name):
        return self.reports.get(name, [])

    def section(self, title, **_):
        self.lines.append(f"= {title}")

    def line(self, text):
        self.lines.append(text)


def test_tests_that_say_nothing_of_their_application_are_counted_named_and_told_what_to_add():
    tests = [("t::a", told(GAP, OTHER)), ("t::b", told(GAP)), ("t::c", told(OTHER, silent=False))]
    first, *rest = nothing_judged([*tests, ("t::d", told(silent=False, clients=False))])
    assert first.startswith("2 of 3 tests judged nothing of what your application does")
    assert rest[:4] == [
        "  t::a",
        "  t::b",
        "add: add kafka_cluster.expect(…) (2 of them)",
        "add: give identity= (1 of them)",
    ]
    assert "--prozess-strict" in rest[4]


def test_many_are_counted_and_not_all_named():
    lines = list(nothing_judged([(f"t::{number}", told(GAP)) for number in range(25)]))
    assert lines[0].startswith("25 of 25 tests")
    assert "  and 5 more" in lines
    assert lines[20] == "  t::19"


@pytest.mark.parametrize("tests", [[], [("t::a", told(silent=False))], [("t::a", told(GAP, silent=False))]])
def test_nothing_is_printed_where_each_test_says_something(tests):
    assert list(nothing_judged(tests)) == []


def test_a_gap_has_one_line_with_its_tests():
    (line,) = not_judged([(f"t::{name}", told(GAP)) for name in "abcd"])
    assert line == f"not judged in a, b, c and 1 more: missing-output: orders: {GAP[2]}; {GAP[3]}."


@pytest.mark.parametrize("how", ["passed", "xpassed"])
def test_what_a_passing_test_has_shown_is_printed_although_pytest_shows_nothing_of_it(how):
    terminal = Terminal(
        **{how: [Report("t::a", told(silent=False, seen=["permitted, and seen: orders: commit-first 5"]))]}
    )
    write_summary(terminal)
    assert terminal.lines == ["= prozess", "t::a: permitted, and seen: orders: commit-first 5"]


def test_failing_tests_count_too_and_come_with_their_gaps():
    terminal = Terminal(failed=[Report("t::a", told(GAP, seen=["…"]))], xfailed=[Report("t::b", told(GAP))])
    write_summary(terminal)
    assert terminal.lines[0] == "= prozess: your application was not judged"
    assert terminal.lines[1].startswith("2 of 2 tests")
    assert terminal.lines[-2:] == ["= prozess", f"not judged in a: missing-output: orders: {GAP[2]}; {GAP[3]}."]


def test_a_session_without_recorded_clients_prints_nothing():
    terminal = Terminal(passed=[Report("t::a", told(silent=False, clients=False))])
    write_summary(terminal)
    assert terminal.lines == []
