"""Which partitions members have not read to their end when a trial gives up waiting for them."""

from prozess.workloads.runtime.final_phase import not_at_their_end


def test_what_nobody_has_and_what_was_not_read_to_its_end_is_named():
    found = not_at_their_end({0: (40, True), 1: (7, False), 9: (3, False)}, {0, 1, 2})
    assert found == [
        "partition 1: the member that owned it stood at 7, and not at its end",
        "partition 2: no member of its group owned it",
    ]
    assert not_at_their_end({0: (40, True)}, {0}) == []
