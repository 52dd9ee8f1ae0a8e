"""What another package adds by entry points is taken if it is what it must be, and is otherwise an error that names it."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from prozess.checkers import registry as checkers
from prozess.harness import plugins
from prozess.harness.checking.checker import CellChecker, PartitionChecker
from prozess.harness.errors import HarnessFailed
from prozess.harness.interfaces import Fault, UndoAction
from prozess.harness.plan.workloads import registry as workloads
from prozess.harness.plan.workloads.clients import WorkloadKind, plan_log_clients
from prozess.nemesis import registry as faults
from prozess.nemesis.faults import NoParameters
from prozess.nemesis.healing import Start


def kernel(history):
    raise AssertionError("nobody calls it here")


class Known(Fault[NoParameters]):
    name = "known"
    parameters_model = NoParameters

    def undos(self, context, parameters):
        return []

    def apply(self, context, parameters):
        pass

    def verify(self, context, parameters):
        return []


class Mute(Known):
    apply = Fault.apply


class Loose(Known):
    parameters_model = dict


class Halfway(UndoAction):
    def carry_out(self, undo, context):
        pass


def fact(**changes):
    return PartitionChecker(**{"anomaly": "known", "kernel": kernel, "fact": True} | changes)


ACCEPT = {
    "prozess.faults": faults._accept_fault,
    "prozess.undos": faults._accept_undo,
    "prozess.checkers": checkers._accept,
    "prozess.workloads": workloads._accept,
}


def installed(monkeypatch, points):
    """Packages with these entry points, and no others."""
    groups = {group: EntryPoints(points).select(group=group) for group in plugins.GROUPS}
    monkeypatch.setattr(plugins, "_installed", lambda: groups)


@pytest.fixture
def offer(monkeypatch):
    """Values that a package offers → what the registry of their group takes."""

    def offer(group, *values, own=(), names=None):
        module = ModuleType("acme")
        points = []
        for number, value in enumerate(values):
            setattr(module, f"value{number}", value)
            name = (names or ["known"] * len(values))[number]
            points.append(EntryPoint(name, f"acme:value{number}", group))
        monkeypatch.setitem(sys.modules, "acme", module)
        installed(monkeypatch, points)
        return plugins.offered(group, own, ACCEPT[group])

    return offer


def test_every_group_has_a_registry_that_reads_it():
    assert ACCEPT.keys() == set(plugins.GROUPS)


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("prozess.faults", Known),
        ("prozess.undos", Start),
        ("prozess.checkers", fact()),
        ("prozess.workloads", WorkloadKind(plan_log_clients)),
    ],
)
def test_what_is_as_it_must_be_is_taken_by_its_name(offer, group, value):
    assert offer(group, value) == {"known": value}


@pytest.mark.parametrize(
    ("group", "value", "why"),
    [
        ("prozess.faults", object(), "is no subclass of prozess.extend.Fault"),
        ("prozess.faults", Start, "is no subclass of prozess.extend.Fault"),
        ("prozess.faults", Mute, "has no method apply"),
        ("prozess.faults", Loose, "has no parameters_model that is a prozess.extend.Frozen"),
        ("prozess.undos", Known, "is no subclass of prozess.extend.UndoAction"),
        ("prozess.undos", Halfway, "has no method undone"),
        ("prozess.checkers", kernel, "is not a prozess.extend.PartitionChecker"),
        ("prozess.checkers", CellChecker(anomaly="known", kernel=kernel), "is not a prozess.extend.PartitionChecker"),
        (
            "prozess.checkers",
            fact(anomaly="other"),
            "has anomaly = 'other', and not the name of its entry point, 'known'",
        ),
        ("prozess.checkers", fact(fact=False), "has fact = False, and nothing says what Kafka promises of it"),
        ("prozess.checkers", fact(judged_when_plain=()), "has judged_when_plain"),
        ("prozess.checkers", fact(side_by_side=list), "has side_by_side"),
        ("prozess.checkers", fact(kernel=lambda history: None), "has a kernel that is no function of a module"),
        ("prozess.workloads", plan_log_clients, "is not a prozess.extend.WorkloadKind"),
    ],
)
def test_what_is_not_as_it_must_be_is_an_error_that_says_so(offer, group, value, why):
    with pytest.raises(HarnessFailed) as told:
        offer(group, value)
    assert str(told.value).startswith(f"an installed package adds acme:value0 to {group}, which {why}")
    assert str(told.value).endswith("See docs/extending.md.")


def test_a_fault_has_the_name_of_its_entry_point(offer):
    with pytest.raises(HarnessFailed, match="has name = 'known', and not that of its entry point, 'unknown'"):
        offer("prozess.faults", Known, names=["unknown"])


def test_nothing_replaces_what_prozess_has_itself(offer):
    with pytest.raises(HarnessFailed, match="has the name 'known', which prozess uses itself"):
        offer("prozess.faults", Known, own=["known"])


def test_two_packages_cannot_have_one_name(offer):
    with pytest.raises(HarnessFailed, match="has the name that an installed package uses, too"):
        offer("prozess.faults", Known, Known)


def test_what_cannot_be_imported_is_an_error_that_says_why(monkeypatch):
    points = [EntryPoint("known", "acme_that_is_not_there:Known", "prozess.faults")]
    installed(monkeypatch, points)
    with pytest.raises(
        HarnessFailed, match=r"cannot be imported \(ModuleNotFoundError: No module named 'acme_that_is_not_there'\)"
    ):
        plugins.offered("prozess.faults", (), faults._accept_fault)


def test_entries_of_other_groups_are_not_looked_at(monkeypatch):
    points = [EntryPoint("known", "acme_that_is_not_there:Known", "prozess.checkers")]
    installed(monkeypatch, points)
    assert plugins.offered("prozess.faults", (), faults._accept_fault) == {}
