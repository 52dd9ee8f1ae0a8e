"""The identity in the value: it comes back exactly, and anything else is seen to be something else."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.harness.schema import NONE, ReadFlag
from prozess.workloads.record.identity import (
    RESIDUE,
    SENTINEL_KEY,
    VALUE_BYTES_MIN,
    decode,
    encoder,
    encoder_of_many,
    identities_of,
    key_id,
    key_ids,
    partition_mask,
)

IDS = st.integers(0, 2**31 - 1)
SEQUENCES = st.integers(0, 2**63 - 1)
SIZES = st.integers(VALUE_BYTES_MIN, 300)


@given(records=st.lists(st.tuples(IDS, IDS, SEQUENCES, SIZES), max_size=20))
def test_what_is_encoded_comes_back(records):
    values = [encoder(sender=s, value_bytes=size)(p, n) for s, p, n, size in records]
    found = decode(values)
    assert [len(value) for value in values] == [size for *_, size in records]
    assert found.sender.tolist() == [s for s, *_ in records]
    assert found.sent_partition.tolist() == [p for _, p, _, _ in records]
    assert found.sequence.tolist() == [n for _, _, n, _ in records]
    assert not found.flags.any()
    assert (found.sender.dtype, found.sequence.dtype) == (np.int32, np.int64)


@given(sender=IDS, size=SIZES, records=st.lists(st.tuples(IDS, SEQUENCES), max_size=20))
def test_a_batch_of_values_is_byte_for_byte_what_one_by_one_gives(sender, size, records):
    partitions = np.array([p for p, _ in records], dtype=np.int32)
    sequences = np.array([n for _, n in records], dtype=np.int64)
    values = encoder_of_many(sender=sender, value_bytes=size)(partitions, sequences)
    one = encoder(sender=sender, value_bytes=size)
    assert values == [one(p, n) for p, n in records]
    found = identities_of(values)
    assert [column.tolist() for column in found] == [partitions.tolist(), sequences.tolist()]


def test_a_batch_of_large_values_is_made_in_pieces():
    size, count = 1_000_000, 10
    values = encoder_of_many(sender=3, value_bytes=size)(np.full(count, 2), np.arange(count))
    assert [len(value) for value in values] == [size] * count
    found = decode(values)
    assert not found.flags.any()
    assert found.sequence.tolist() == list(range(count))


@given(sender=IDS, partition=IDS, sequence=SEQUENCES, size=SIZES)
def test_the_checksum_of_every_whole_value_is_one_constant(sender, partition, sequence, size):
    assert zlib.crc32(encoder(sender=sender, value_bytes=size)(partition, sequence)) == RESIDUE


@given(size=SIZES, position=st.integers(0, 299), flip=st.integers(1, 255))
def test_one_changed_byte_is_corrupt(size, position, flip):
    value = bytearray(encoder(sender=7, value_bytes=size)(3, 12345))
    value[position % size] ^= flip
    found = decode([bytes(value)])
    assert found.flags.tolist() == [ReadFlag.CORRUPT]
    assert (found.sender[0], found.sent_partition[0], found.sequence[0]) == (NONE, NONE, NONE)


@given(garbage=st.lists(st.none() | st.binary(max_size=80), max_size=20))
def test_garbage_is_corrupt_and_breaks_nothing(garbage):
    good = encoder(sender=1, value_bytes=64)(2, 3)
    found = decode([good, *garbage, good])
    assert found.flags.tolist() == [0, *[ReadFlag.CORRUPT] * len(garbage), 0]
    assert found.sequence.tolist() == [3, *[NONE] * len(garbage), 3]


@given(size=st.integers(VALUE_BYTES_MIN + 1, 200), cut=st.integers(1, 199))
def test_a_truncated_value_is_corrupt(size, cut):
    value = encoder(sender=1, value_bytes=size)(2, 3)
    assert decode([value[: -min(cut, size)]]).flags.tolist() == [ReadFlag.CORRUPT]


def test_a_right_checksum_over_a_wrong_length_is_corrupt():
    head = encoder(sender=1, value_bytes=64)(2, 3)[:-4] + b"more"
    value = head + zlib.crc32(head).to_bytes(4, "little")
    assert zlib.crc32(value) == RESIDUE
    assert decode([value]).flags.tolist() == [ReadFlag.CORRUPT]


@pytest.mark.parametrize("sequence", [2**63, 2**64 - 1])
def test_numbers_that_no_column_can_hold_are_corrupt(sequence):
    assert decode([encoder(sender=1, value_bytes=64)(2, sequence)]).flags.tolist() == [ReadFlag.CORRUPT]
    assert decode([encoder(sender=2**31, value_bytes=64)(2, 3)]).flags.tolist() == [ReadFlag.CORRUPT]


def test_an_empty_batch_is_no_record():
    assert len(decode([]).flags) == 0
    assert len(key_ids([])) == 0


def test_the_null_key_and_the_sentinels_key_are_told_apart():
    ids = key_ids([None, SENTINEL_KEY, b"other"])
    assert ids.tolist() == [NONE, key_id(SENTINEL_KEY), key_id(b"other")]
    assert len(set(ids.tolist())) == 3
    assert key_ids([None, None]).tolist() == [NONE, NONE]


def test_a_partition_of_a_topic_that_was_made_again_has_an_id_that_no_client_records():
    assert partition_mask(3, (0, 2, 5)).tolist() == [True, False, True]
    assert partition_mask(3, ()).tolist() == [False] * 3
