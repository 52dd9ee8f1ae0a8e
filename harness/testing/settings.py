"""What a test may ask of the plugin: by marker, else on the command line, else in the ini file. Pure."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from harness import catalogue
from harness.configuration import LAST_WITH_ZOOKEEPER, version_numbers
from harness.errors import BadInput
from harness.validation.known import misspelt

SCOPES = ("function", "module", "session")
UNAVAILABLE = ("fail", "skip")
METADATA_MODES = ("kraft-isolated", "kraft-combined", "zookeeper")
NO_ZOOKEEPER = (4,)
BACKENDS = ("local", "compose")
"""Of the catalogue's backends those that start a cluster of their own; for another one give clients its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestSettings:
    """Of one test. `faults`: those that nodes must be prepared for before they start (disks, clocks, power)."""

    __test__ = False

    backend: str = "local"
    variant: str = "kraft-isolated"
    version: str = "4.3.1"
    """Where the variant is ZooKeeper's and no version is asked for: the last that has it."""
    brokers: int = 3
    scope: str = "session"
    properties: tuple[tuple[str, str], ...] = ()
    """Of the brokers."""
    faults: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    """Anomalies that fail the test although the configuration permits them."""
    unavailable: str = "fail"
    isolation: str = "auto"

    @property
    def cluster(self) -> tuple[object, ...]:
        """Equal for tests that can share a cluster."""
        return (self.backend, self.variant, self.version, self.brokers, self.properties, self.faults, self.isolation)


def settings_from(configured: Mapping[str, Any], marked: Mapping[str, Any]) -> TestSettings:
    """The settings of a test. `configured`: of command line and ini file; `marked`: of its markers.
    BadInput for what is not known."""
    known = [f.name for f in fields(TestSettings)]
    for name in marked:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
            raise BadInput(f"@pytest.mark.prozess({name}=…) is not known; {hint}")
    given = {name: _normal(name, value) for name, value in {**configured, **marked}.items()}
    if given.get("variant") == "zookeeper":
        given = {"version": LAST_WITH_ZOOKEEPER} | given
    settings = replace(TestSettings(), **given)
    for name, allowed in (
        ("backend", BACKENDS),
        ("variant", METADATA_MODES),
        ("scope", SCOPES),
        ("unavailable", UNAVAILABLE),
        ("isolation", ("auto", "namespaces", "signals")),
    ):
        value = getattr(settings, name)
        if value not in allowed:
            raise BadInput(f"prozess {name} = {value!r} is not known. Known: {', '.join(allowed)}.")
    _refuse_unknown_names(settings)
    if settings.variant == "zookeeper" and version_numbers(settings.version) >= NO_ZOOKEEPER:
        raise BadInput(
            f"prozess version = {settings.version!r}: 3.9 is the last line of Kafka that has a ZooKeeper mode (KIP-833). "
            f"Leave it away, or give {LAST_WITH_ZOOKEEPER}, or another variant."
        )
    return settings


def _refuse_unknown_names(settings: TestSettings) -> None:
    """A name that nothing has would forbid nothing, prepare for nothing, or be passed over by the broker."""
    for name, given, known in (
        ("forbid", settings.forbid, catalogue.KERNELS | catalogue.CELL_KERNELS),
        ("faults", settings.faults, catalogue.FAULTS),
    ):
        if wrong := next((value for value in given if value not in known), None):
            near = difflib.get_close_matches(wrong, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"Known: {', '.join(sorted(known))}."
            raise BadInput(f"prozess {name} = {wrong!r} is not known; {hint}")
    for name, _ in settings.properties:
        if meant := misspelt("broker", name):
            raise BadInput(f"prozess properties: {name} is no property of Kafka's; did you mean {meant!r}?")


def _normal(name: str, value: Any) -> Any:  # noqa: ANN401
    """As the dataclass has it: hashable, and numbers from an ini file's text."""
    match name:
        case "properties":
            given = value.items() if isinstance(value, Mapping) else value
            return tuple(sorted((str(key), _property(v)) for key, v in given))
        case "faults" | "forbid":
            return tuple(value.split()) if isinstance(value, str) else tuple(value)
        case "brokers":
            if not str(value).isdigit() or not 1 <= int(value) <= 9:
                raise BadInput(f"prozess brokers = {value!r} must be a number from 1 to 9.")
            return int(value)
        case _:
            return str(value)


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
