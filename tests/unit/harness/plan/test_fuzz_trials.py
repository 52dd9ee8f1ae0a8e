"""Garbage for trial files: a clear error that names the file, or a plan; never a traceback.

PROZESS_FUZZ multiplies the number of cases (`make fuzz`).
"""

import copy
import random
import tempfile
import tomllib
from pathlib import Path

from prozess.harness.errors import BadInput
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial import Trial
from prozess.harness.plan.trial_files import known_trials, load_trial, parse_trial
from tests.unit.prozess.exchange.test_fuzz import error_of, fuzz

TRIALS = {name: path.read_text(encoding="utf-8") for name, path in sorted(known_trials().items())}
EACH = 20
"""Cases per example of hypothesis."""
ODD = (
    *(0, -1, 1, 3.5, float("inf"), float("nan"), 2**70, True, "", "x", "log", "kill", "broker(1)", "*", "leader(0,0)"),
    *([], [1, "x"], [[]], {}, {"kind": "kill"}, {"a": {"b": 1}}, "9" * 50, "\x00", "é", "../..", "all", "group"),
)


def planned(trial: Trial, seed: int) -> None:
    make_plan(trial, seed=seed)


def places(document: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where something stands in a document."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [found for key, value in inside for found in [(*path, key), *places(value, (*path, key))]]


def spoil(rng: random.Random, document: dict) -> None:
    """Something is put in another place, left out, or replaced by something odd."""
    known = places(document)
    path = rng.choice(known)
    at = document
    for key in path[:-1]:
        at = at[key]
    kind = rng.random()
    if kind < 0.2:
        del at[path[-1]]
    elif kind < 0.4 and isinstance(at, dict):
        at[str(rng.choice(rng.choice(known)))] = copy.deepcopy(rng.choice(ODD))
    else:
        at[path[-1]] = copy.deepcopy(rng.choice(ODD))


@fuzz(100)
def test_a_trial_with_odd_values_is_a_plan_or_bad_input(seed):
    rng = random.Random(seed)
    for _ in range(EACH):
        document = tomllib.loads(rng.choice(list(TRIALS.values())))
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            if places(document):
                spoil(rng, document)
        error = error_of(
            lambda document=document, rng=rng: planned(parse_trial(document, source="odd.toml"), rng.randrange(9)),
            BadInput,
        )
        assert error is None or str(error)


@fuzz(40)
def test_a_trial_file_with_rotten_text_is_a_plan_or_bad_input(seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rotten.toml"
        for _ in range(EACH):
            content = bytearray(rng.choice(list(TRIALS.values())).encode())
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(content))
                content[at : at + rng.randrange(4)] = bytes(rng.randrange(256) for _ in range(rng.randrange(3)))
            path.write_bytes(content[: rng.randrange(len(content))] if rng.random() < 0.2 else content)
            error = error_of(lambda path=path: planned(load_trial(str(path)), 1), BadInput)
            assert error is None or str(error)
