"""Keys of records: what was sent with one key, and read with another, is corrupt."""

from dataclasses import replace

import numpy as np
import pytest

from prozess.checkers.log.records import OTHER_KEY, UNREADABLE_RECORD, corrupt
from prozess.harness.schema import MISSING, NONE
from tests.support.cells.partitions import CLIENTS, CORRUPT, OK, PRODUCER, READER, history


def partition(sent, read, *, audit=None):
    """One record, sent and given to a consumer with these keys. `audit`: the key by the audit, if it is another one."""
    return history(
        [(PRODUCER, 0, OK, 0, {"key": sent})],
        [(0, PRODUCER, 0, {"key": read if audit is None else audit})],
        [(READER, 0, PRODUCER, 0, {"key": read})],
    )


def cases(one):
    result = corrupt(one)
    assert result.count == len(result.witnesses)
    return result.witnesses["case"].tolist()


@pytest.mark.parametrize("key", [NONE, 0, 7])
def test_the_key_that_was_sent_is_right(key):
    assert cases(partition(key, key)) == []


@pytest.mark.parametrize(("sent", "read"), [(7, 8), (7, NONE)])
def test_another_key_is_corrupt_once_whoever_read_it(sent, read):
    assert cases(partition(sent, read)) == [OTHER_KEY]


def test_a_consumer_that_does_not_tell_keys_has_not_read_another_one():
    assert cases(partition(7, NONE, audit=7)) == []
    assert cases(partition(7, 8, audit=7)) == [OTHER_KEY]


def test_a_producer_that_does_not_tell_keys_has_not_sent_another_one():
    one = partition(NONE, 7)
    assert cases(one) == []
    told_ns = np.full(CLIENTS, MISSING)
    told_ns[PRODUCER] = 99
    assert cases(replace(one, client_reported_until_ns=told_ns)) == [OTHER_KEY], (
        "a client of ours sent it without a key"
    )


def test_without_an_audit_no_key_is_compared():
    assert cases(replace(partition(7, 8), audited=False, audit_end={})) == []


def test_an_unreadable_record_has_no_key_to_compare():
    one = history([(PRODUCER, 0, OK, 0, {"key": 7})], [(0, NONE, NONE, CORRUPT)])
    assert cases(one) == [UNREADABLE_RECORD]
