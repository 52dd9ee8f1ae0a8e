"""An audit that retention overtakes goes on from the log start of that moment; one whose log was cut was not whole."""

import pytest

from prozess.workloads.log.audit import unexplained_resets


@pytest.mark.parametrize(
    ("lost_at", "starts", "unexplained"),
    [
        ({}, {0: 5}, []),
        ({0: 40}, {0: 70}, []),  # retention took what was still to be read
        ({0: 40}, {0: 41}, []),
        ({0: 40}, {0: 40}, [0]),  # the position was there: something else was wrong
        ({0: 90}, {0: 0}, [0]),  # the log was cut at its end
        ({0: 40, 1: 90}, {0: 70, 1: 0}, [1]),
        ({0: 40}, {}, [0]),  # its log start could not be looked up any more
    ],
)
def test_a_reset_is_explained_by_a_log_that_begins_behind_the_lost_position(lost_at, starts, unexplained):
    assert list(unexplained_resets(lost_at, starts)) == unexplained
