"""Shapes of partitions: who still hears whom, for any set of nodes and any seed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prozess.nemesis.partition import GRUDGES, bridge, halves, isolated, open_ways, ring

NAMES = st.lists(st.integers(1, 9).map("broker-{}".format), min_size=3, max_size=9, unique=True)
SEED = st.integers(0, 10**6).map(random.Random)


def heard_by(node, nodes, cuts):
    return {node} | {source for receiver, source in open_ways(nodes, cuts) if receiver == node}


@given(names=NAMES, seed=st.integers(0, 99), kind=st.sampled_from(sorted(GRUDGES)))
def test_every_shape_cuts_both_ways_each_once_and_depends_on_seed_and_names_alone(names, seed, kind):
    shape = GRUDGES[kind](names, random.Random(seed))
    assert len(set(shape.cuts)) == len(shape.cuts) > 0
    assert {(b, a) for a, b in shape.cuts} == set(shape.cuts)
    assert GRUDGES[kind](sorted(names), random.Random(seed)) == shape


@given(names=NAMES, rng=SEED)
def test_halves_are_as_equal_as_can_be_and_hear_nobody_of_the_other(names, rng):
    shape = halves(names, rng)
    one, other = (set(part) for part in shape.parts.values())
    assert abs(len(one) - len(other)) <= 1
    assert one | other == set(names)
    assert all(heard_by(n, names, shape.cuts) == (one if n in one else other) for n in names)


@given(names=NAMES, rng=SEED)
def test_halves_by_rack_never_part_a_rack(names, rng):
    racks = {name: "abc"[int(name[-1]) % 3] for name in names}
    if len(set(racks.values())) < 2:
        return
    shape = halves(names, rng, racks)
    one, other = shape.parts.values()
    assert {racks[n] for n in one}.isdisjoint(racks[n] for n in other)
    assert one
    assert other


@given(names=NAMES, rng=SEED)
def test_a_bridge_hears_everybody_and_its_halves_hear_it_and_themselves(names, rng):
    shape = bridge(names, rng)
    (middle,) = shape.parts["bridge"]
    assert heard_by(middle, names, shape.cuts) == set(names)
    for half in ("one half", "the other half"):
        for node in shape.parts[half]:
            assert heard_by(node, names, shape.cuts) == {middle, *shape.parts[half]}


@given(names=NAMES, rng=SEED)
def test_on_a_ring_everybody_hears_a_majority_and_no_two_the_same(names, rng):
    heard = [frozenset(heard_by(n, names, ring(names, rng_copy(rng)).cuts)) for n in names]
    assert all(2 * len(h) > len(names) for h in heard)
    assert len(set(heard)) == len(names)


def rng_copy(rng):
    copy = random.Random()
    copy.setstate(rng.getstate())
    return copy


def test_isolated_nodes_hear_nobody_and_the_others_hear_themselves():
    nodes = ["a", "b", "c", "d"]
    cuts = isolated(["a", "b"], nodes)
    assert [heard_by(n, nodes, cuts) for n in nodes] == [{"a"}, {"b"}, {"c", "d"}, {"c", "d"}]
    assert len(set(cuts)) == len(cuts)


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda rng: halves(["a"], rng), "takes 2 nodes"),
        (lambda rng: bridge(["a", "b"], rng), "takes 3 nodes"),
        (lambda rng: ring(["a", "b"], rng), "takes 3 nodes"),
        (lambda rng: halves(["a", "b"], rng, {"a": "r"}), "b has no rack"),
        (lambda rng: halves(["a", "b"], rng, {"a": "r", "b": "r"}), "takes 2 racks"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_the_reason(draw, says):
    with pytest.raises(ValueError, match=says):
        draw(random.Random(1))
