"""What files of a run say, without a run."""

import pytest

from prozess.harness.run_directory import seconds_in_all


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ({}, 0),
        ({"prepare": 10, "run": 116, "run: cluster": 7, "run: audit": 61, "wait for Spark": 2, "check": 1}, 129),
    ],
)
def test_the_time_of_a_run_counts_what_is_part_of_a_part_once(parts, seconds):
    assert seconds_in_all(parts) == seconds
