"""Torture in small: the first rounds of `make torture`, which have every backend."""

import os

import pytest

from tests.support.torture.rounds import draw, play
from tests.support.torture.trials import TORMENTS

pytestmark = pytest.mark.cluster
ROUNDS = int(os.environ.get("PROZESS_TORTURE", "0")) or len(TORMENTS)
QUICK = [n for n, torment in enumerate(TORMENTS) if torment.name == "disks"]
"""Rounds that `make test` has time for: the most that can be left behind on this machine."""
LONG = pytest.mark.long
FIRST = int(os.environ.get("PROZESS_TORTURE_SEED", "0"))


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n in QUICK else LONG) for n in range(FIRST, FIRST + ROUNDS)]
)
def test_a_harness_killed_at_any_moment_leaves_nothing_but_a_readable_history(seed, tmp_path, need):
    need("java")
    drawn = draw(seed)
    for part in drawn.torment.needs + (("namespaces",) if drawn.torment.isolation == "namespaces" else ()):
        need(part)
    outcome = play(drawn, tmp_path / "round")
    cleaned = "by `prozess heal`" if outcome.clean_s is None else f"by itself after {outcome.clean_s:.1f} s"
    print(f"{drawn}: clean {cleaned}", *outcome.said, sep="\n  ")  # noqa: T201 - shown if it fails, and by `make torture`
    assert outcome.problems == [], str(drawn)


def test_the_rounds_of_ci_have_every_backend_and_several_victims():
    drawn = [draw(seed) for seed in range(len(TORMENTS))]
    assert {r.torment.backend for r in drawn} == {"local", "compose", "ssh", "attach"}
    assert [r.torment for r in drawn] == list(TORMENTS)
    assert len({r.victims for r in drawn}) >= 3
    assert draw(17) == draw(17)
