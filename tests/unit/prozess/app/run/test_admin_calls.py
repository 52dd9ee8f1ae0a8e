"""What is recorded of an administrator's calls: how long each waited, and how it ended."""

from prozess.app.run.admin_calls import AdminCall
from prozess.harness.errors import ClusterFailed
from prozess.harness.schema import NONE, ObservationKind
from tests.support.clock import FakeClock

ANSWERED, WAITED = ObservationKind.ADMIN_ANSWERED, ObservationKind.ADMIN_WAITED
SECOND_NS = 1_000_000_000


class Rows:
    def __init__(self):
        self.rows = []

    def write(self, table, **columns):
        assert table == "observations"
        self.rows.append(columns)

    def seen(self):
        return [(row["kind"], row["node"], row["value"] / SECOND_NS) for row in self.rows]


def made(*attempts, node=1):
    """`attempts`: (how long one takes, whether it is answered, or what it raises). Returns the call and what was written."""
    clock, rows, left = FakeClock(), Rows(), list(attempts)

    def attempt():
        took_s, came = left.pop(0)
        clock.sleep(took_s)
        if isinstance(came, Exception):
            raise came
        return came

    call = AdminCall(node, attempt, rows, clock)
    for _ in attempts:
        call.once()
    return call, rows


def test_of_short_calls_the_first_is_written_and_of_long_ones_each():
    _, rows = made((0.1, True), (0.1, True), (2, True), (0.1, True), (3, True))
    assert rows.seen() == [(ANSWERED, 1, 0.1), (ANSWERED, 1, 2.0), (ANSWERED, 1, 3.0)]


def test_a_call_lasts_until_an_attempt_is_answered_and_a_definite_error_answers_it():
    _, rows = made((10, False), (10, False), (1, True), node=NONE)
    assert rows.seen() == [(ANSWERED, NONE, 21.0)]
    _, rows = made((10, False), (1, ClusterFailed("The broker refuses the login.")))
    assert rows.seen() == [(ANSWERED, 1, 11.0)]


def test_what_is_under_way_at_the_end_is_written_once_and_nothing_after_it():
    call, rows = made((0.1, True), (10, False), (10, False))
    call.close()
    call.close()
    assert rows.seen() == [(ANSWERED, 1, 0.1), (WAITED, 1, 20.0)]
    call, rows = made((0.1, True))
    call.close()
    assert rows.seen() == [(ANSWERED, 1, 0.1)]
