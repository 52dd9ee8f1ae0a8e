"""Transactions that an application began and did not end."""

import numpy as np
import pytest

from prozess.harness.columns import row_dtype
from prozess.harness.interfaces.application import RegisteredTopic
from prozess.harness.schema import MISSING, NONE, SENDS, TRANSACTIONS, Outcome
from prozess.testing.open_transactions import TransactionalClient, open_transactions

TOPICS = (RegisteredTopic("orders", 0, ((1,),), {}), RegisteredTopic("bookings", 1, ((1,), (1,)), {}))
COMMIT = 1


def rows(table, *given):
    made = np.zeros(len(given), dtype=row_dtype(table))
    for number, row in enumerate(given):
        for name, value in row.items():
            made[name][number] = value
    return made


def transaction(number, begun_ns, *, ended_by=NONE, completed_ns=MISSING, outcome=Outcome.INFO):
    return {
        "transaction": number, "begun_ns": begun_ns, "completed_ns": completed_ns, "ended_by": ended_by, "outcome": outcome
    }  # fmt: skip


def instance(begun_ns, *, outcome=Outcome.OK):
    return transaction(NONE, begun_ns, completed_ns=begun_ns + 1, outcome=outcome)


def client(*transactions, sent=(0, 1, 2), whole=True, number=1, name="booking"):
    sends = [{"transaction": t, "partition": 2, "sequence": s, "log_offset": 10 + s} for s, t in enumerate(sent)]
    return TransactionalClient(number, name, rows(TRANSACTIONS, *transactions), rows(SENDS, *sends), whole)


def judge(*clients, expected=True):
    return open_transactions(clients, TOPICS, expected=expected)


ENDED = transaction(0, 20, ended_by=COMMIT, completed_ns=30, outcome=Outcome.OK)


@pytest.mark.parametrize("expected", [True, False])
def test_one_that_was_never_ended_is_found_and_fails_where_the_test_says_that_all_are(expected):
    (found,) = judge(client(instance(1), ENDED, transaction(1, 40)), expected=expected)
    assert (found.anomaly, found.where, found.count) == ("open-transaction", "transactional.id 'booking'", 1)
    assert (found.fails, found.unknown) == (expected, False)
    assert "Transaction 2 of client 1, with 1 record, was neither committed nor aborted" in found.reason
    assert [w.text for w in found.witnesses] == ["bookings/1, offset 11: record 1 of client 1"]


@pytest.mark.parametrize(
    "whole",
    [
        client(instance(1), ENDED),
        client(instance(1), transaction(0, 20), sent=()),
        client(instance(1), transaction(0, 20), instance(50), ENDED | {"transaction": 1, "begun_ns": 60}),
    ],
    ids=["ended", "without records", "its successor aborted it"],
)
def test_what_is_over_or_holds_nothing_back_is_no_open_transaction(whole):
    assert judge(whole) == []


def test_a_later_instance_in_another_client_aborts_it_and_one_of_another_id_or_that_failed_does_not():
    left = client(instance(1), transaction(0, 20))
    assert judge(left, client(instance(50), number=2)) == []
    assert len(judge(left, client(instance(50), number=2, name="other"))) == 1
    assert len(judge(left, client(instance(50, outcome=Outcome.INFO), number=2))) == 1


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (client(instance(1), transaction(0, 20), whole=False), "its process ended first"),
        (client(instance(1), transaction(0, 20, ended_by=COMMIT)), "its end was asked for, and no answer was seen"),
    ],
)
def test_where_nothing_tells_it_is_unknown_if_the_test_asks_and_nothing_if_it_does_not(left, said):
    (found,) = judge(left)
    assert found.unknown
    assert said in found.reason
    assert judge(left, expected=False) == []
