"""prozess puts your Kafka on trial: it breaks a real cluster on purpose and proves from the history which promises held."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prozess.harness import catalogue

if TYPE_CHECKING:
    from prozess.harness.checking.checker import Checker
    from prozess.harness.interfaces import AnyFault, Backend

# `harness` imports no other package of prozess. Here the registries of its catalogue learn where their values are. Python
# runs this before any module of prozess, in every process, so it does not matter who imports what first. Each dictionary is
# imported only when somebody reads it.


def _faults() -> "Mapping[str, type[AnyFault]]":
    from prozess.nemesis.registry import FAULTS

    return FAULTS


def _backends() -> "Mapping[str, Backend]":
    from prozess.clusters.registry import BACKENDS

    return BACKENDS


def _checkers() -> "Mapping[str, Checker]":
    from prozess.checkers.registry import CHECKERS

    return CHECKERS


catalogue.FAULTS.read_from(_faults)
catalogue.BACKENDS.read_from(_backends)
catalogue.CHECKERS.read_from(_checkers)
