"""A plugin of pytest that keeps what the unit tests show to kernels: `pytest -p tests.support.shown_histories`.

Each kernel is replaced, where it is written and in the registry, before the tests import it. Of each test the first few
histories are kept, and now and then one of those that hypothesis makes; they go to the file that PROZESS_SHOWN names.
"""

import os
import pickle
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prozess.checkers.registry import CHECKERS
from prozess.harness.interfaces.checking import CellHistory, KernelResult, PartitionHistory
from tests.support.anomalies import ANOMALIES

FIRST, THEN_EVERY, AT_MOST = 2, 20, 100
READS_MAX = 2_000
"""Longer ones are left out: what they test is speed, or counting."""
VARIABLE = "PROZESS_SHOWN"
Shown = tuple[str, str, PartitionHistory | CellHistory, KernelResult]
"""Anomaly, test, what was shown, what the kernel found."""
_kept: list[Shown] = []
_calls: Counter[tuple[str, str]] = Counter()
_test = ""


def parts_of(history: PartitionHistory | CellHistory) -> list[PartitionHistory]:
    """Its partitions."""
    return list(history.partitions.values()) if isinstance(history, CellHistory) else [history]


def _watched(anomaly: str, kernel: Callable[[Any], KernelResult]) -> Callable[[Any], KernelResult]:
    def watching(history: PartitionHistory | CellHistory) -> KernelResult:
        result = kernel(history)
        number = _calls[_test, anomaly]
        _calls[_test, anomaly] += 1
        wanted = number < FIRST or (number % THEN_EVERY == 0 and number < AT_MOST)
        parts = parts_of(history)
        if wanted and all(part.audited and len(part.reads["client"]) < READS_MAX for part in parts):
            _kept.append((anomaly, _test, deepcopy(_held(history)), result))  # a test may change it
        return result

    watching.__name__, watching.__doc__ = kernel.__name__, kernel.__doc__
    return watching


def _held(history: PartitionHistory | CellHistory) -> PartitionHistory | CellHistory:
    """With every column in memory."""
    if isinstance(history, CellHistory):
        return replace(history, partitions={number: _plain(part) for number, part in history.partitions.items()})
    return _plain(history)


def _plain(part: PartitionHistory) -> PartitionHistory:
    def columns(name: str) -> dict[str, np.ndarray]:
        table = getattr(part, name)
        return {column: np.asarray(table[column]) for column in table}

    return replace(part, sends=columns("sends"), reads=columns("reads"), replicas=columns("replicas"))


def pytest_configure() -> None:
    """Replace the kernels. Not when this is imported: who only reads what was kept needs them as they are."""
    for anomaly in ANOMALIES:
        checker = CHECKERS[anomaly]
        watching = _watched(anomaly, checker.kernel)
        setattr(import_module(checker.kernel.__module__), checker.kernel.__name__, watching)
        CHECKERS[anomaly] = replace(checker, kernel=watching)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember which test runs."""
    global _test
    _test = item.nodeid


def pytest_sessionfinish() -> None:
    """Write down what was shown."""
    Path(os.environ[VARIABLE]).write_bytes(pickle.dumps(_kept))
