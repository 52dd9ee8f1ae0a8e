"""What files of a run say, without a run."""

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.run_directory import is_within, seconds_in_all


@pytest.mark.parametrize(
    ("parts", "seconds"),
    [
        ({}, 0),
        ({"prepare": 10, "run": 116, "run: cluster": 7, "run: audit": 61, "wait for Spark": 2, "check": 1}, 129),
    ],
)
def test_the_time_of_a_run_counts_what_is_part_of_a_part_once(parts, seconds):
    assert seconds_in_all(parts) == seconds


@given(st.text(alphabet="a./\0", max_size=8))
def test_a_name_is_within_a_run_as_its_parts_say(name):
    path = PurePosixPath(name)
    stays = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
    assert is_within(name) == stays
