"""The doctor's frame (no probe can break or delay it), and that every probe has its say on this machine."""

import threading
from importlib.metadata import PackageNotFoundError

from prozess.clusters import doctor
from prozess.clusters.doctor import _ask_all, _Question, probes
from prozess.clusters.links import kernel_probe
from prozess.harness.config.impairments import Capability


def test_every_probe_answers_in_order_and_says_what_the_lack_costs() -> None:
    found = probes()
    names = [p.name for p in found]
    assert names[:3] == ["java", "kafka jars", "namespaces"]
    assert len(set(names)) == len(names) == 19
    assert all(p.detail and p.costs.endswith(".") for p in found)


def test_with_an_empty_path_tools_are_missing_and_nothing_raises() -> None:
    found = {p.name: p for p in probes({"PATH": "", "HOME": "/nowhere"})}
    assert not found["toxiproxy"].found
    assert "not on PATH" in found["toxiproxy"].detail
    assert not found["chromium"].found


def test_where_spark_is_not_installed_it_says_how_to_install_it(monkeypatch) -> None:
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", nothing)
    assert doctor._spark({}) == (False, "it is not installed: pip install 'prozess[spark]'")
    monkeypatch.setattr(doctor, "version", lambda name: "4.1.0")
    assert doctor._spark({}) == (True, "PySpark 4.1.0")


def test_without_iptables_the_line_about_messages_names_it_and_what_trials_lose(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")
    why = kernel_probe._tried([[*kernel_probe.IPTABLES, "-L"]])
    assert why == "iptables is not installed (package iptables)"
    monkeypatch.setattr(doctor, "refusals", lambda: {Capability.MESSAGES: why})
    found = {probe.name: probe for probe in _ask_all(doctor._QUESTIONS, {}, timeout_s=30)}
    assert (found["messages"].found, found["messages"].detail) == (False, why)
    assert "No faults of single messages" in found["messages"].costs
    assert found["link faults"].found


def test_a_probe_that_raises_is_a_lack_with_the_reason() -> None:
    def broken(environment: object) -> tuple[bool, str]:
        raise RuntimeError("strange machine")

    (probe,) = _ask_all([_Question("x", broken, "All.")], {}, timeout_s=5)
    assert (probe.found, probe.detail) == (False, "could not be tried: strange machine")


def test_a_probe_that_hangs_does_not_hold_up_the_others() -> None:
    release = threading.Event()

    def hangs(environment: object) -> tuple[bool, str]:
        release.wait(30)
        return True, "late"

    def answers(environment: object) -> tuple[bool, str]:
        return True, "here"

    try:
        slow, quick = _ask_all([_Question("slow", hangs, "."), _Question("quick", answers, ".")], {}, timeout_s=0.2)
    finally:
        release.set()
    assert (slow.found, slow.detail) == (False, "no answer within 0.2 s")
    assert (quick.found, quick.detail) == (True, "here")
