"""Times of the metadata log, whatever the controller's clock stated: against a log written by clocks that were moved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.clusters.files.metadata_log import HISTORY_NAME, MovedClock, Stamps, read_moved_clocks, write_moved_clock
from prozess.harness.errors import HistoryUnreadable

S_NS = 10**9
WALL_NS = 1_700_000_000 * S_NS
LEAST_S = 600


def told(times_ns, moved):
    stamps = Stamps(moved, wall_minus_monotonic_ns=WALL_NS)
    found = []
    for ns in times_ns:
        off_ns = sum(m.offset_ns for m in moved if m.begin_ns <= ns < m.end_ns)
        found.append(stamps.time_ns((ns + WALL_NS + off_ns) // 10**6))
    return found


@given(
    st.lists(st.integers(0, 900 * 10**3), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(1, 500), st.integers(LEAST_S, 10**7), st.booleans()), max_size=4),
)
def test_times_are_what_they_were_whatever_was_stamped(times_ms, faults):
    moved, begin_s = [], 5
    for lasts_s, offset_s, behind in faults:
        moved.append(MovedClock(begin_s * S_NS, (begin_s + lasts_s) * S_NS, (-offset_s if behind else offset_s) * S_NS))
        begin_s += lasts_s + 5
    # Whoever moves a clock is no more exact than a few ms: records at the very edge may bear either time.
    edges = [edge for m in moved for edge in (m.begin_ns, m.end_ns)]
    # A controller that has nothing to write writes that, twice a second (metadata.max.idle.interval.ms).
    times_ms = [*times_ms, *range(0, 900 * 10**3, 500)]
    times_ns = [ms * 10**6 for ms in sorted(times_ms) if all(abs(ms * 10**6 - edge) > 10**8 for edge in edges)]
    for was, found in zip(times_ns, told(times_ns, moved), strict=True):
        assert abs(found - was) <= 10**6


def test_without_a_moved_clock_stamps_are_times_even_out_of_order():
    assert told([5 * S_NS, 3 * S_NS], []) == [5 * S_NS, 3 * S_NS]


def test_what_was_written_down_is_read_and_what_is_torn_is_said(tmp_path):
    assert read_moved_clocks(tmp_path) == []
    for at_ns, offset_ns in ((5, 100), (9, 0), (20, -7)):
        write_moved_clock(tmp_path, at_ns=at_ns, offset_ns=offset_ns)
    first, last = read_moved_clocks(tmp_path)
    assert first == MovedClock(5, 9, 100)
    assert (last.begin_ns, last.offset_ns) == (20, -7)
    (tmp_path / HISTORY_NAME).write_text('{"at_ns": 5')
    with pytest.raises(HistoryUnreadable, match="when the clock was moved"):
        read_moved_clocks(tmp_path)
