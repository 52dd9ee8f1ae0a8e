"""What is known of clients, by their numbers: also by numbers that no client of the trial has."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from prozess.harness.columns import of_clients

NUMBERS = st.integers(-3, 9) | st.sampled_from([-(2**31), 2**31 - 1])


@given(st.lists(st.integers(0, 99), max_size=6), st.lists(NUMBERS, max_size=6), st.sampled_from([np.int32, np.int64]))
@example([1, 2, 3], [-1], np.int64)
@example([1, 2, 3], [-1], np.int32)
def test_of_clients_that_are_not_of_the_trial_nothing_is_known(values, clients, kind):
    found = of_clients(np.array(values, dtype=np.int64), np.array(clients, dtype=kind), unknown=-7)
    assert found.tolist() == [values[client] if 0 <= client < len(values) else -7 for client in clients]
