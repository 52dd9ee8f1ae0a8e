"""One key in two partitions: found, explained where partitions were added, and not the near miss. Times in seconds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.checkers.log import keys
from prozess.checkers.log.keys import EMPTY_KEY, split_key
from prozess.harness.checking.checker import CellShare
from prozess.harness.config.configuration import ProducerConfiguration
from prozess.harness.interfaces.witnesses import KeyCase
from prozess.harness.plan.plan import SENTINEL_CLIENT, PlannedClient
from prozess.harness.schema import NONE
from tests.support.cells.groups import cell
from tests.support.cells.partitions import METADATA_ERROR_NS, OK, PARTITION, make, send_row, state_row

P, Q, R = PARTITION, PARTITION + 1, PARTITION + 2
A, B = 1, 2
K, L = 11, 12
ONE, TWO, ADDED, PERHAPS = KeyCase.ONE_PRODUCER, KeyCase.TWO_PRODUCERS, KeyCase.ADDED, KeyCase.PERHAPS_ADDED
S = 1_000_000_000


def history(*sends, added_s=None, log=True, age_ms=None):
    """A cell with three partitions. `sends`: client, key, partition, second of the acknowledgement; sequences count by
    client.
    `added_s`: when R was added. `log`: whether the controllers' log is there."""
    counts: dict[int, int] = {}
    rows = {P: [], Q: [], R: []}
    for client, key, partition, at_s, *outcome in sends:
        sequence = counts[client] = counts.get(client, -1) + 1
        row = send_row(client, sequence, *(outcome or [OK]), sequence, int(at_s * S) - 5)
        rows[partition].append(row | {"key": key, "partition": partition})
    born = {P: -1, Q: -1, R: -1 if added_s is None else int(added_s * S) + METADATA_ERROR_NS}
    metadata = {p: [state_row(at, leader=1, epoch=0, isr=(1, 2, 3)) | {"partition": p}] for p, at in born.items()}
    partitions = {p: replace(make(of_p, [], ends={}, issued={}), partition=p) for p, of_p in rows.items()}
    for p, one in partitions.items():
        made = make([], [], ends={}, issued={}, metadata=metadata[p]).metadata
        partitions[p] = replace(one, metadata=made if log else {name: column[:0] for name, column in made.items()})
    base = cell()
    properties = {} if age_ms is None else {"metadata.max.age.ms": age_ms}
    producer = ProducerConfiguration(client="java", properties=properties)
    clients = [PlannedClient(client=A, role="verifiable-producer", name="a", partitions=(P, Q, R), producer=producer)]
    update = {"partitions": (P, Q, R), "late_partitions": () if added_s is None else (R,), "keyed": True}
    return replace(base, cell=base.cell.model_copy(update=update), partitions=partitions, clients=clients)


def found(*sends, **given):
    result = split_key(history(*sends, **given))
    assert result.count == len(result.witnesses)
    assert result.incomplete is None
    return [
        (
            int(w["client"]),
            int(w["sequence"]),
            int(w["partition"]),
            int(w["other_client"]),
            int(w["other_sequence"]),
            w["case"],
        )
        for w in result.witnesses
    ]


def test_the_example_of_the_docstring():
    sends = [(A, K, P, 1), (A, K, P, 2), (A, K, R, 4), (A, K, P, 5)]
    assert found(*sends, added_s=3) == [(A, 2, R, A, 1, ADDED), (A, 3, P, A, 2, ONE)]
    assert found((A, K, P, 1), (B, K, Q, 2)) == [(B, 0, Q, A, 0, TWO)]


@pytest.mark.parametrize(
    "sends",
    [
        [(A, K, P, 1), (A, K, P, 2)],
        [(A, K, P, 1), (A, L, Q, 2)],
        [(A, K, P, 1), (B, K, P, 2)],
        [(A, NONE, P, 1), (A, NONE, Q, 2)],
        [(A, EMPTY_KEY, P, 1), (A, EMPTY_KEY, Q, 2)],
        [(A, K, P, 1), (SENTINEL_CLIENT, K, Q, 2)],
        [(A, K, P, 1), (A, K, Q, 2, 0)],
    ],
    ids=["one partition", "two keys", "two producers agree", "no key", "empty key", "sentinel", "not acknowledged"],
)
def test_what_is_none(sends):
    assert found(*sends) == []


def test_a_new_number_of_partitions_explains_one_switch_of_each_producer_and_key():
    sends = [(A, K, P, 1), (A, L, Q, 1), (A, K, R, 4), (A, L, P, 5), (A, K, Q, 6)]
    assert found(*sends, added_s=3) == [(A, 2, R, A, 0, ADDED), (A, 3, P, A, 1, ADDED), (A, 4, Q, A, 2, ONE)]


def test_a_switch_before_partitions_were_added_is_not_explained_by_them():
    assert found((A, K, P, 1), (A, K, Q, 2), added_s=3) == [(A, 1, Q, A, 0, ONE)]
    assert found((A, K, P, 1), (A, K, Q, 3), added_s=3) == [(A, 1, Q, A, 0, ADDED)]


@pytest.mark.parametrize(("age_ms", "case"), [("2000", TWO), ("6000", ADDED), (None, ADDED), ("soon", ADDED)])
def test_two_producers_may_disagree_for_the_age_of_their_metadata(age_ms, case):
    assert found((A, K, P, 1), (B, K, R, 8), added_s=3, age_ms=age_ms) == [(B, 0, R, A, 0, case)]


def test_without_the_controllers_log_nobody_knows_when_partitions_were_added():
    assert found((A, K, P, 1), (A, K, Q, 2), added_s=3, log=False) == [(A, 1, Q, A, 0, PERHAPS)]


RECORDS = st.lists(
    st.tuples(st.sampled_from([A, B]), st.sampled_from([NONE, K, L]), st.sampled_from([P, Q, R])), max_size=12
)


def by_definition(sends):
    """Switches by the two definitions, record by record."""
    numbered, counts = [], {}
    for at, (client, key, partition) in enumerate(sends):
        counts[client] = counts.get(client, -1) + 1
        numbered.append((client, counts[client], key, partition, at))
    result = []
    for client, sequence, key, partition, at in numbered:
        if key == NONE:
            continue
        before = [one for one in numbered if one[2] == key and one[4] < at]
        own = [one for one in before if one[0] == client]
        if own and own[-1][3] != partition:
            result.append((client, sequence, partition, *own[-1][:2], ONE))
        if before and before[-1][0] != client and before[-1][3] != partition:
            result.append((client, sequence, partition, *before[-1][:2], TWO))
    return sorted(result)


@given(RECORDS)
def test_every_switch_is_found_as_the_definition_has_it(sends):
    assert sorted(found(*((*one, at + 1) for at, one in enumerate(sends)))) == by_definition(sends)


@given(RECORDS, st.booleans())
def test_looking_at_one_partition_at_a_time_finds_the_same(sends, grown):
    whole = history(*((*one, at + 1) for at, one in enumerate(sends)), added_s=5 if grown else None)
    shares = {0: [CellShare(partition, 1) for partition in whole.partitions]}

    def each(looks):
        alone = [replace(whole, partitions={one.partition: whole.partitions[one.partition]}) for one in looks]
        return [keys.look(here, one.stage, *one.arguments) for here, one in zip(alone, looks, strict=True)]

    known = keys.gather(shares, each, ("split-key",))
    together = split_key(replace(whole, known={keys.FACTS: known[0]}))
    expected = split_key(whole)
    assert (together.count, together.judged) == (expected.count, expected.judged)
    assert np.array_equal(together.witnesses, expected.witnesses)


def test_judged_are_the_acknowledged_records_that_have_a_key():
    sends = [(A, K, P, 1), (A, NONE, P, 2), (A, L, Q, 3), (B, K, P, 4)]
    assert split_key(history(*sends)).judged == 3
